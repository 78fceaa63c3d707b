"""Sees to it that a job can run where it is to run, before it is submitted.

Volcano tries fifteen times to make a job's pods and then gives up: a namespace whose
ServiceAccount is not there yet, or a queue that is not open yet, would end the job.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from typing import Final

from controller.kube.client import Kube
from controller.kube.errors import AlreadyExists, NotFound
from controller.kube.kinds import NAMESPACES, QUEUES, SERVICE_ACCOUNTS
from controller.volcano.names import INSTANCE_LABEL

GOOD_FOR_SECONDS: Final = 10.0


class Ground:
    """Namespaces and queues, asked about every ten seconds while they are good.

    Args:
        kube: The cluster.
        instance: What a namespace that is made here is labelled with.
        clock: Monotonic seconds.
    """

    def __init__(self, kube: Kube, *, instance: str, clock: Callable[[], float]) -> None:
        self._kube = kube
        self._instance = instance
        self._clock = clock
        self._good_until: dict[tuple[str, str], float] = {}

    async def why_not_ready(self, namespace: str, queue: str) -> str | None:
        """Return what is still missing there, None when a job can be submitted.

        Makes the namespace where there is none.

        Raises:
            KubeError: If the cluster cannot be asked.
        """
        if self._good_until.get((namespace, queue), 0.0) > self._clock():
            return None
        problem = await self._namespace(namespace) or await self._queue(queue)
        if problem is None:
            self._good_until[namespace, queue] = self._clock() + GOOD_FOR_SECONDS
        return problem

    def forget(self) -> None:
        """Ask again: something turned out not to be as it was."""
        self._good_until.clear()

    async def _namespace(self, name: str) -> str | None:
        try:
            await self._kube.get(SERVICE_ACCOUNTS, "default", name)
        except NotFound:
            await ensure_namespace(self._kube, name, instance=self._instance)
            return f"the namespace {name} is being prepared"
        found = await self._kube.get(NAMESPACES, name)
        phase = (found.get("status") or {}).get("phase")
        return f"the namespace {name} is being removed" if phase == "Terminating" else None

    async def _queue(self, name: str) -> str | None:
        try:
            found = await self._kube.get(QUEUES, name)
        except NotFound:
            return f"there is no queue {name}"
        state = (found.get("status") or {}).get("state")
        return None if state == "Open" else f"the queue {name} is not open"


async def ensure_namespace(kube: Kube, name: str, *, instance: str) -> None:
    """Make the namespace where there is none; it is never removed.

    Raises:
        KubeError: If it cannot be made.
    """
    try:
        await kube.get(NAMESPACES, name)
    except NotFound:
        metadata = {"name": name, "labels": {INSTANCE_LABEL: instance}}
        with suppress(AlreadyExists):
            await kube.create(NAMESPACES, {"metadata": metadata})
