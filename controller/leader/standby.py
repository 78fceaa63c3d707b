"""Follows the cluster in every replica, so that a new leader need not read it first.

Reading 50,000 pods takes longer than the rest of a change of leaders. So the informers of every
replica run from its start, as those of kube-scheduler and of controller-runtime's managers do. Only
the leader acts on their events.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from controller.jobs.cluster.informer import InformerCache
from controller.kube.client import Kube
from controller.volcano.observed import ObservedJob, ObservedPod

KEPT_SECONDS: Final = 60.0
"""Changed and deleted jobs are remembered for at least this time, which is longer than any gap
between two leaders.
"""


class Standby:
    """Keeps the informer cache warm, and remembers recent changes.

    Args:
        instance: The instance whose objects are followed.
        services: Whether to follow Services.
    """

    def __init__(self, kube: Kube, *, instance: str, services: bool) -> None:
        self.informer = InformerCache(
            kube, instance=instance, changed=self._changed, services=services, clock=kube.now
        )
        self._leader: Callable[[str], None] | None = None
        self._lately: set[str] = set()
        self._before: set[str] = set()

    async def run(self) -> None:
        """Follow the cluster until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.informer.run())
            tasks.create_task(self._forget())

    def problems(self) -> tuple[str, ...]:
        """Return why this replica could not take over at once."""
        return () if self.informer.is_complete else ("the cluster has not been read yet",)

    def lead(self, enqueue: Callable[[str], None]) -> None:
        """Call *enqueue* for each job that changes, and first for those that changed recently.

        The previous leader may not have seen all of the recent changes.
        """
        self._leader = enqueue
        self.informer.renew()
        for job_id in self._before | self._lately:
            enqueue(job_id)

    def stand_by(self) -> None:
        """Stop calling the leader."""
        self._leader = None

    def _changed(self, job_id: str) -> None:
        if not self.informer.is_complete:
            return  # until then everything is new, and a leader reconciles all jobs
        if self._leader is not None:
            self._leader(job_id)
        else:
            self._lately.add(job_id)

    async def _forget(self) -> None:
        """Drop old changes and deleted objects: the leader has recorded them."""
        left: list[ObservedJob | ObservedPod] = []
        while True:
            await asyncio.sleep(KEPT_SECONDS)
            self._before, self._lately = self._lately, set()
            if self._leader is None:
                self.informer.forget(left)
            left = self.informer.departed()
