"""Deletes orphans: companions whose VolcanoJob is gone and whose job is over or unknown.

The garbage collector deletes the objects that a VolcanoJob owns, and the store has those without an
owner. So orphans exist only if a store was lost, or if a user created an object by hand. A removal
needs evidence. An object is suspected first. After a grace period the object is deleted, if the
store and the API server still show that it is an orphan. Secrets are not listed, since the
controller may not read them.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final, NamedTuple

from controller.jobs.cluster.informer import InformerCache
from controller.jobs.cluster.job_objects import JobObjects
from controller.jobs.containment import Containment
from controller.kube.client import Kube, Object
from controller.kube.errors import Conflict, KubeError, NotFound
from controller.kube.kinds import COMMANDS, CONFIG_MAPS, NETWORK_POLICIES, SERVICES, Kind
from controller.store.database import FencedStore
from controller.store.errors import StoreUnavailable
from controller.store.jobs.job_rows import find_jobs
from controller.volcano.names import INSTANCE_LABEL, JOB_LABEL, volcano_job_name

EVERY_SECONDS: Final = 600.0
"""Interval of sweeps: each lists four kinds, and seldom finds anything."""
GRACE_SECONDS: Final = 120.0
SWEPT_KINDS: Final = (CONFIG_MAPS, SERVICES, NETWORK_POLICIES, COMMANDS)

log = logging.getLogger(__name__)


class _Suspect(NamedTuple):
    """An object that seems to be an orphan."""

    kind: Kind
    namespace: str
    name: str
    uid: str
    job_id: str


class OrphanCollector:
    """Finds and deletes orphans, as the leader of *term*.

    Args:
        instance: The instance whose objects are swept; those of other instances are ignored.
        clock: Monotonic seconds.
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
        failed: Callable[[Exception], None],
        kinds: Collection[Kind] = (),
    ) -> None:
        self._store = store
        self._kube = kube
        self._cluster = cluster
        self._informer = informer
        self._instance = instance
        self._clock = clock
        self._contained = Containment("an orphan sweep failed", failed)
        self._kinds = (*SWEPT_KINDS, *kinds)
        self._since: dict[_Suspect, float] = {}

    async def run(self) -> None:
        """Sweep every ten minutes, and again when the grace period of a suspect is over.

        Returns only by LeadershipLost.
        """
        while True:
            try:
                await self.sweep()
            except StoreUnavailable as error:
                log.warning("orphans cannot be swept", extra={"why": str(error)})
            await asyncio.sleep(GRACE_SECONDS if self._since else EVERY_SECONDS)

    async def sweep(self) -> int:
        """Find suspects, and delete those whose grace period is over; return how many.

        A kind that cannot be listed, or an object that cannot be deleted, does not keep the others
        from being swept.

        Raises:
            LeadershipLost: If another process leads.
            StoreUnavailable: If the store does not respond.
        """
        now, suspects = self._clock(), set[_Suspect]()
        for kind in self._kinds:
            # If the kind cannot be listed, its earlier suspects remain.
            found = {one for one in self._since if one.kind == kind}
            with self._contained.of(kind.kind):
                try:
                    found = await self._suspects(kind)
                except KubeError as error:
                    log.warning(
                        "orphans cannot be listed", extra={"kind": kind.kind, "why": str(error)}
                    )
            suspects |= found
        # An object that is suspected again gets a new grace period.
        self._since = {one: self._since.get(one, now) for one in suspects}
        overdue = [one for one, since in self._since.items() if now - since >= GRACE_SECONDS]
        removed = [one for one in overdue if await self._tried_to_remove(one)]
        for one in removed:
            del self._since[one]
        return len(removed)

    async def _suspects(self, kind: Kind) -> set[_Suspect]:
        """Return the orphans of a kind; one page of its objects at a time is in memory."""
        orphans = set[_Suspect]()
        labels = f"{INSTANCE_LABEL}={self._instance},{JOB_LABEL}"
        async for page in self._kube.metadata(kind, labels=labels):
            suspects = set[_Suspect]()
            for given in page:
                with self._contained.of(f"{kind.kind} {_name_of(given)}"):
                    if (one := _suspect(kind, given)) is not None:
                        suspects.add(one)
            orphans |= await self._orphans(suspects)
        return orphans

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
    metadata = given.get("metadata") or {}
    return f"{metadata.get('namespace', '')}/{metadata.get('name', '')}"


def _suspect(kind: Kind, given: Object) -> _Suspect | None:
    metadata = given["metadata"]
    job_id = (metadata.get("labels") or {}).get(JOB_LABEL)
    if not job_id or metadata.get("deletionTimestamp"):
        return None
    return _Suspect(kind, metadata.get("namespace", ""), metadata["name"], metadata["uid"], job_id)
