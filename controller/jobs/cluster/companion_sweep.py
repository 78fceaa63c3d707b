"""Compares the companions of jobs with the cluster once a minute, in both directions.

A **missing** companion of a running job was deleted by another client, and is applied again: a job
without its NetworkPolicies is reachable by others, so the next attempt is too late. An object that
is deleted repeatedly is restored with growing pauses, so that two clients do not fight.

An **orphan** is a companion whose VolcanoJob is gone and whose job is over or unknown. The garbage
collector deletes the objects that a VolcanoJob owns, and the store has those without an owner. So
orphans exist only if a store was lost, or if a user created an object by hand. A removal needs
evidence. An object is suspected first. After a grace period the object is deleted, if the store and
the API server still show that it is an orphan.

The cluster is listed: a watch of these kinds would cost memory for each of their objects. Secrets
are not listed, since the controller may not read them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from controller.jobs.cluster.informer import InformerCache
from controller.jobs.cluster.job_objects import JobObjects
from controller.jobs.containment import Containment
from controller.jobs.history.job_record import recovery_name
from controller.kube.client import Kube, Object
from controller.kube.errors import Conflict, KubeError, NotFound
from controller.kube.kinds import COMMANDS, CONFIG_MAPS, NETWORK_POLICIES, SERVICES, Kind
from controller.store.database import FencedStore
from controller.store.jobs.existing_companions import (
    ExistingCompanion,
    companions_of_kind,
    forget_uid,
)
from controller.store.jobs.job_rows import find_jobs
from controller.volcano.names import INSTANCE_LABEL, JOB_LABEL, volcano_job_name

EVERY_SECONDS: Final = 60.0
GRACE_SECONDS: Final = 120.0
LONGEST_SECONDS: Final = 3600.0
"""The longest time for which an object that is deleted repeatedly is not restored."""
SWEPT_KINDS: Final = (NETWORK_POLICIES, SERVICES, CONFIG_MAPS, COMMANDS)

log = logging.getLogger(__name__)


class _Suspect(NamedTuple):
    """An object that seems to be an orphan."""

    kind: Kind
    namespace: str
    name: str
    uid: str
    job_id: str


class Swept(NamedTuple):
    """The numbers of orphans that a sweep has removed, and of companions that it has restored."""

    removed: int
    restored: int


class CompanionSweep:
    """Removes orphans and restores missing companions, as the leader.

    Args:
        instance: The instance whose objects are swept; those of other instances are ignored.
        clock: Monotonic seconds.
        enqueue: Called with the id of a job whose companions must be applied again.
        kinds: Further kinds, of which plugins create companions.
    """

    def __init__(
        self,
        store: FencedStore,
        *,
        kube: Kube,
        cluster: JobObjects,
        informer: InformerCache,
        instance: str,
        clock: Callable[[], float],
        enqueue: Callable[[str], None],
        failed: Callable[[Exception], None],
        kinds: Collection[Kind] = (),
    ) -> None:
        self._store = store
        self._kube = kube
        self._cluster = cluster
        self._informer = informer
        self._labels = f"{INSTANCE_LABEL}={instance},{JOB_LABEL}"
        self._clock = clock
        self._enqueue = enqueue
        self._contained = Containment("companions cannot be compared with the cluster", failed)
        self._kinds = (*SWEPT_KINDS, *kinds)
        self._since: dict[_Suspect, float] = {}
        self._pauses: dict[tuple[str, str, str], tuple[float, float]] = {}

    async def run(self) -> None:
        """Sweep every minute; returns only by LeadershipLost."""
        await self._contained.repeat(self.sweep, lambda: EVERY_SECONDS)

    async def sweep(self) -> Swept:
        """Restore what is missing, find suspects, and delete those whose grace period is over.

        A kind that cannot be listed, or an object that cannot be deleted, does not keep the others
        from being swept.

        Raises:
            LeadershipLost: If another process leads.
            StoreUnavailable: If the store does not respond.
        """
        now, suspects, restored = self._clock(), set[_Suspect](), 0
        for kind in self._kinds:
            # If the kind cannot be listed, its earlier suspects remain.
            found = {one for one in self._since if one.kind == kind}
            with self._contained.of(kind.kind):
                try:
                    found, missing = await self._compare(kind)
                    restored += sum([await self._restore(kind, one) for one in missing])
                except KubeError as error:
                    log.warning(
                        "companions cannot be compared with the cluster",
                        extra={"kind": kind.kind, "why": str(error)},
                    )
            suspects |= found
        self._forget_pauses(now)
        # An object that is suspected again gets a new grace period.
        self._since = {one: self._since.get(one, now) for one in suspects}
        overdue = [one for one, since in self._since.items() if now - since >= GRACE_SECONDS]
        removed = [one for one in overdue if await self._tried_to_remove(one)]
        for one in removed:
            del self._since[one]
        return Swept(len(removed), restored)

    async def _compare(self, kind: Kind) -> tuple[set[_Suspect], list[ExistingCompanion]]:
        """Return the orphans of a kind, and its missing companions.

        One page of the kind's objects at a time is in memory.
        """
        # Before the list: a companion that is recorded by now is in the list, unless it was
        # deleted.
        async with self._store.read() as transaction:
            recorded = await companions_of_kind(transaction, kind.kind)
        # The recovery data is needed only if the store is lost.
        missing = {one.uid: one for one in recorded if one.name != recovery_name(one.job_id)}
        orphans = set[_Suspect]()
        async for page in self._kube.metadata(kind, labels=self._labels):
            suspects = set[_Suspect]()
            for given in page:
                missing.pop(str(given["metadata"].get("uid")), None)
                with self._contained.of(f"{kind.kind} {_name_of(given)}"):
                    if (one := _suspect(kind, given)) is not None:
                        suspects.add(one)
            orphans |= await self._orphans(suspects)
        return orphans, list(missing.values())

    async def _restore(self, kind: Kind, one: ExistingCompanion) -> bool:
        key = (kind.kind, one.namespace, one.name)
        not_before, pause = self._pauses.get(key, (0.0, EVERY_SECONDS))
        now = self._clock()
        if now < not_before or not await self._is_gone(kind, one):
            return False
        async with self._store.write() as transaction:
            if not await forget_uid(transaction, one):
                return False  # its job has ended or begun another attempt meanwhile
        self._pauses[key] = (now + pause, min(2 * pause, LONGEST_SECONDS))
        log.warning(
            "a companion was deleted by another client and is applied again",
            extra={"job": one.job_id, "object": f"{kind.kind} {one.namespace}/{one.name}"},
        )
        self._enqueue(one.job_id)
        return True

    async def _is_gone(self, kind: Kind, one: ExistingCompanion) -> bool:
        try:
            await self._kube.get(kind, one.name, one.namespace)
        except NotFound:
            return True
        return False

    def _forget_pauses(self, now: float) -> None:
        self._pauses = {
            key: pause for key, pause in self._pauses.items() if now - pause[0] <= LONGEST_SECONDS
        }

    async def _orphans(self, suspects: Collection[_Suspect]) -> set[_Suspect]:
        """Return those whose job has no VolcanoJob, and is unknown or over."""
        alone = {one for one in suspects if not self._informer.jobs.of_job(one.job_id)}
        if not alone:
            return set()
        async with self._store.read() as transaction:
            known = await find_jobs(transaction, {one.job_id for one in alone})
        return {one for one in alone if one.job_id not in known or known[one.job_id].is_final}

    async def _tried_to_remove(self, one: _Suspect) -> bool:
        what = f"{one.kind.kind} {one.namespace}/{one.name}"
        with self._contained.of(what):
            try:
                return await self._remove(one)
            except KubeError as error:
                log.warning(
                    "an orphan cannot be deleted", extra={"object": what, "why": str(error)}
                )
        return False

    async def _remove(self, one: _Suspect) -> bool:
        """Delete the object if store and API server still say that it is an orphan."""
        name = volcano_job_name(one.job_id)
        if await self._cluster.find_volcano_job(one.namespace, name, one.job_id) is not None:
            return False
        async with self._store.read() as transaction:
            await self._store.check(transaction)
        try:
            again = await self._kube.get(one.kind, one.name, one.namespace)
        except NotFound:
            return True
        if _suspect(one.kind, again) != one or not await self._orphans({one}):
            return False
        try:
            await self._kube.delete(one.kind, one.name, one.namespace, uid=one.uid)
        except Conflict:
            return True  # the name is another object's by now
        log.warning(
            "an orphan was deleted",
            extra={"job": one.job_id, "object": f"{one.kind.kind} {one.namespace}/{one.name}"},
        )
        return True


def _name_of(given: Object) -> str:
    metadata = given["metadata"]
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"


def _suspect(kind: Kind, given: Object) -> _Suspect | None:
    metadata = given["metadata"]
    job_id = (metadata.get("labels") or {}).get(JOB_LABEL)
    if not job_id or metadata.get("deletionTimestamp"):
        return None
    return _Suspect(kind, metadata.get("namespace", ""), metadata["name"], metadata["uid"], job_id)
