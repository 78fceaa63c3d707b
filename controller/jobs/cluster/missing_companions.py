"""Finds companions of running jobs that another client has deleted, and has them applied again.

A job without its NetworkPolicies is reachable by others, so the next attempt is too late. The
cluster is listed regularly: a watch of three more kinds would cost memory for each of their
objects. Secrets are not listed, since the controller may not read them. An object that is deleted
repeatedly is restored with growing pauses, so that two clients do not fight.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final

from controller.jobs.containment import Containment
from controller.jobs.history.job_record import recovery_name
from controller.kube.client import Kube
from controller.kube.errors import KubeError, NotFound, NotServed
from controller.kube.kinds import CONFIG_MAPS, NETWORK_POLICIES, SERVICES, Kind
from controller.store.database import FencedStore
from controller.store.errors import StoreUnavailable
from controller.store.jobs.existing_companions import (
    ExistingCompanion,
    companions_of_kind,
    forget_uid,
)
from controller.volcano.names import INSTANCE_LABEL, JOB_LABEL

EVERY_SECONDS: Final = 60.0
LONGEST_SECONDS: Final = 3600.0
"""The longest time for which an object that is deleted repeatedly is not restored."""
KINDS: Final = (NETWORK_POLICIES, SERVICES, CONFIG_MAPS)

log = logging.getLogger(__name__)


class MissingCompanions:
    """Finds missing companions, as the leader of *term*.

    Args:
        instance: The instance whose objects are checked.
        clock: Monotonic seconds.
        enqueue: Called with the id of a job whose companions must be applied again.
    """

    def __init__(
        self,
        store: FencedStore,
        *,
        kube: Kube,
        instance: str,
        clock: Callable[[], float],
        enqueue: Callable[[str], None],
        failed: Callable[[Exception], None],
    ) -> None:
        self._store = store
        self._kube = kube
        self._labels = f"{INSTANCE_LABEL}={instance},{JOB_LABEL}"
        self._clock = clock
        self._enqueue = enqueue
        self._contained = Containment("companions cannot be compared", failed)
        self._pauses: dict[tuple[str, str, str], tuple[float, float]] = {}

    async def run(self) -> None:
        """Look every minute; returns only by LeadershipLost."""
        while True:
            await asyncio.sleep(EVERY_SECONDS)
            for kind in KINDS:
                with self._contained.of(kind.kind):
                    try:
                        await self.look_at(kind)
                    except (KubeError, StoreUnavailable) as error:
                        details = {"kind": kind.kind, "why": str(error)}
                        log.warning("companions cannot be compared with the cluster", extra=details)

    async def look_at(self, kind: Kind) -> int:
        """Have missing companions of *kind* applied again; return how many.

        Raises:
            LeadershipLost: If another process leads.
            KubeError, StoreUnavailable: To be tried again.
        """
        # Before the list: a companion that is recorded by now is in the list, unless it was
        # deleted.
        async with self._store.read() as transaction:
            known = await companions_of_kind(transaction, kind.kind)
        if not known:
            return 0
        uids = set[str]()
        async for page in self._kube.metadata(kind, labels=self._labels):
            uids |= {str((one.get("metadata") or {}).get("uid")) for one in page}
        restored = [await self._restored(kind, one) for one in _missing(known, uids)]
        self._forget_pauses()
        return sum(restored)

    async def _restored(self, kind: Kind, one: ExistingCompanion) -> bool:
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
        except NotServed:
            raise
        except NotFound:
            return True
        return False

    def _forget_pauses(self) -> None:
        now = self._clock()
        over = [key for key, (at, _) in self._pauses.items() if now - at > LONGEST_SECONDS]
        for key in over:
            del self._pauses[key]


def _missing(
    known: Collection[ExistingCompanion], uids: Collection[str]
) -> list[ExistingCompanion]:
    # The recovery data is needed only if the store is lost.
    return [one for one in known if one.uid not in uids and one.name != recovery_name(one.job_id)]
