"""The parts that the roles of one process share: tasks, readiness, addresses."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry

from controller.jobs.pipeline.pipeline import Pipeline
from controller.jobs.spec.accepted import Vault
from controller.jobs.submission.commands import JobCommands
from controller.logs.storage import LogStorage
from controller.settings import ControllerSettings
from controller.store.database import Store
from shared.runtime.process import join_address

Problems = Callable[[], Sequence[str]]
"""Returns why a part is not ready."""


class ProcessTasks:
    """Owns tasks that never end by themselves: a task that ends stops the process.

    Args:
        stopping: Set when a task has ended.
    """

    def __init__(self, stopping: asyncio.Event) -> None:
        self._stopping = stopping
        self._tasks: list[asyncio.Task[None]] = []

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        """Run *work* until the process ends."""
        task = asyncio.create_task(work)
        task.add_done_callback(lambda _: self._stopping.set())
        self._tasks.append(task)

    async def cancel(self) -> None:
        """Cancel all tasks, and wait for them."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def raise_failure(self) -> None:
        """Raise the error of a failed task, if there is one."""
        for task in self._tasks:
            error = None if task.cancelled() else task.exception()
            if error is not None:
                raise first_error(error)


def first_error(error: BaseException) -> BaseException:
    """Return the first error of a task group, which ended the other tasks."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@dataclass(slots=True)
class Process:
    """The state that the roles of one process share."""

    settings: ControllerSettings
    store: Store
    registry: CollectorRegistry
    tasks: ProcessTasks
    log_storage: LogStorage | None = None
    problems: list[Problems] = field(default_factory=list)
    degraded: list[Problems] = field(default_factory=list)
    faults: list[Problems] = field(default_factory=list)
    addresses: dict[str, str] = field(default_factory=dict)

    def readiness(self) -> Sequence[str]:
        """Return why this process is not ready."""
        return [reason for problems in self.problems for reason in problems()]

    def degradation(self) -> Sequence[str]:
        """Return what does not work while the process is still useful."""
        return [reason for degraded in self.degraded for reason in degraded()]

    def health(self) -> Sequence[str]:
        """Return what makes no progress although it could."""
        return [fault for faults in self.faults for fault in faults()]

    def listens(self, name: str, address: tuple[str, int]) -> None:
        """Record the address of a listener."""
        self.addresses[name] = join_address(*address)


@dataclass(slots=True)
class EventHandlers:
    """Callbacks for changes of a job; roles add them when they start."""

    listeners: list[Callable[[str], None]] = field(default_factory=list)

    def enqueue(self, job_id: str) -> None:
        """Call all of them."""
        for listener in self.listeners:
            listener(job_id)


@dataclass(frozen=True, slots=True)
class Core:
    """The parts that API and reconciler share within one process."""

    pipeline: Pipeline
    vault: Vault
    commands: JobCommands
    jobs: EventHandlers
    routes: EventHandlers
