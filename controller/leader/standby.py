"""Follows the cluster whoever leads, so that a controller that takes over need not read it first.

To read 50,000 pods takes longer than all else at a change of leaders. So the informers of every
replica run from its start, as those of kube-scheduler and of controller-runtime's managers do. What
they tell is acted on by a leader alone.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from controller.jobs.cluster.informer import InformerCache
from controller.kube.client import Kube
from controller.volcano.observed import ObservedJob, ObservedPod

KEPT_SECONDS: Final = 60.0
"""For so long at least it is known what has changed and left: for longer than nobody leads."""


class Standby:
    """Keeps the informer cache warm, and knows what changed lately.

    Args:
        instance: Whose objects are followed.
        services: Whether Services are.
    """

    def __init__(self, kube: Kube, *, instance: str, services: bool) -> None:
        self.informer = InformerCache(
            kube, instance=instance, changed=self._changed, services=services
        )
        self._leader: Callable[[str], None] | None = None
        self._lately: set[str] = set()
        self._before: set[str] = set()

    async def run(self) -> None:
        """Follow until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self.informer.run())
            tasks.create_task(self._forget())

    def problems(self) -> tuple[str, ...]:
        """Return why it could not take over at once: so that nobody ends the leader before."""
        return () if self.informer.is_complete else ("the cluster has not been read yet",)

    def lead(self, told: Callable[[str], None]) -> None:
        """Tell *told* of each job that changes, and first of those that changed lately.

        Of the latter, the leader before may not have seen everything.
        """
        self._leader = told
        self.informer.renew()
        for job_id in self._before | self._lately:
            told(job_id)

    def stand_by(self) -> None:
        """Tell nobody any more."""
        self._leader = None

    def _changed(self, job_id: str) -> None:
        if not self.informer.is_complete:
            return  # until then everything is new, and a leader looks at all of it
        if self._leader is not None:
            self._leader(job_id)
        else:
            self._lately.add(job_id)

    async def _forget(self) -> None:
        """Forget what left, and what changed, long ago: whoever leads has written it down."""
        left: list[ObservedJob | ObservedPod] = []
        while True:
            await asyncio.sleep(KEPT_SECONDS)
            self._before, self._lately = self._lately, set()
            if self._leader is None:
                self.informer.forget(left)
            left = self.informer.departed()
