"""Removes what was left behind: companions whose job is over or unknown, and whose owner is gone.

What a VolcanoJob owns goes with it, and what it does not own yet is in the store; so there is
nothing to sweep, unless a store was lost or somebody made an object by hand. Removal needs
evidence: an object is suspected first, and removed after a grace, if store and cluster, asked once
more, still say so. Secrets are not listed, since they are not ours to read.
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
from controller.store.database import Store
from controller.store.errors import LeadershipLost, StoreUnavailable
from controller.store.instance import read_leadership
from controller.store.jobs.job_rows import find_jobs
from controller.volcano.names import INSTANCE_LABEL, JOB_LABEL, volcano_job_name

EVERY_SECONDS: Final = 600.0
"""Between two looks: it lists what there is of four kinds, and seldom finds anything."""
GRACE_SECONDS: Final = 120.0
SWEPT_KINDS: Final = (CONFIG_MAPS, SERVICES, NETWORK_POLICIES, COMMANDS)

log = logging.getLogger(__name__)


class _Suspect(NamedTuple):
    """An object that seems to belong to nobody."""

    kind: Kind
    namespace: str
    name: str
    uid: str
    job_id: str


class OrphanCollector:
    """Looks for orphans, as the leader of *term*.

    Args:
        store: Says which jobs there are.
        instance: Whose objects; those of others are not looked at.
        clock: Monotonic seconds.
        failed: Counts what nobody expected.
        kinds: What else is swept: kinds of which plugins make companions.
    """

    def __init__(
        self,
        store: Store,
        *,
        term: int,
        kube: Kube,
        cluster: JobObjects,
        informer: InformerCache,
        instance: str,
        clock: Callable[[], float],
        failed: Callable[[Exception], None],
        kinds: Collection[Kind] = (),
    ) -> None:
        self._store = store
        self._term = term
        self._kube = kube
        self._cluster = cluster
        self._informer = informer
        self._instance = instance
        self._clock = clock
        self._contained = Containment("not swept", failed)
        self._kinds = (*SWEPT_KINDS, *kinds)
        self._since: dict[_Suspect, float] = {}

    async def run(self) -> None:
        """Look every ten minutes, and again when the grace of what was found is over.

        Returns only by LeadershipLost.
        """
        while True:
            try:
                await self.sweep()
            except StoreUnavailable as error:
                log.warning("nothing is swept", extra={"why": str(error)})
            await asyncio.sleep(GRACE_SECONDS if self._since else EVERY_SECONDS)

    async def sweep(self) -> int:
        """Suspect what seems to be nobody's, remove what has been for long; return how many.

        What cannot be listed or removed, for want of rights or of an answer, keeps nothing else
        from being swept.

        Raises:
            LeadershipLost: If another one leads.
            StoreUnavailable: If it cannot be said what is whose.
        """
        now, suspects = self._clock(), set[_Suspect]()
        for kind in self._kinds:
            # Where they cannot be looked for, those that are suspected stay so.
            found = {one for one in self._since if one.kind == kind}
            with self._contained.of(kind.kind):
                try:
                    found = await self._suspects(kind)
                except KubeError as error:
                    log.warning(
                        "orphans are not looked for", extra={"kind": kind.kind, "why": str(error)}
                    )
            suspects |= found
        # One that is no longer suspected begins anew, should it be once more.
        self._since = {one: self._since.get(one, now) for one in suspects}
        overdue = [one for one, since in self._since.items() if now - since >= GRACE_SECONDS]
        removed = [one for one in overdue if await self._tried_to_remove(one)]
        for one in removed:
            del self._since[one]
        return len(removed)

    async def _suspects(self, kind: Kind) -> set[_Suspect]:
        """Return what seems to be nobody's; a page of what there is at a time is in memory."""
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
                log.warning("an orphan stays", extra={"object": what, "why": str(error)})
        return False

    async def _remove(self, one: _Suspect) -> bool:
        """Remove the object if everything still says that it is nobody's."""
        name = volcano_job_name(one.job_id)
        if await self._cluster.find_volcano_job(one.namespace, name, one.job_id) is not None:
            return False
        async with self._store.read() as transaction:
            if (await read_leadership(transaction)).term != self._term:
                raise LeadershipLost("another controller leads")
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
            "removed what belonged to nobody",
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
