"""What the roles of one process share: its tasks, why it is not ready, where it listens."""

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
"""Says why a part is not ready."""


class ProcessTasks:
    """Owns tasks that never end by themselves: one that does ends the process.

    Args:
        stopping: Is set when a task has failed.
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
        """End all tasks."""
        for task in self._tasks:
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)

    def raise_failure(self) -> None:
        """Raise what a task failed with, if one did."""
        for task in self._tasks:
            error = None if task.cancelled() else task.exception()
            if error is not None:
                raise first_error(error)


def first_error(error: BaseException) -> BaseException:
    """Return the first error of a task group's, which is why the others ended."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


@dataclass(slots=True)
class Process:
    """What the roles of one process share, and add to."""

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
        """Return what does not work without this process being of no use."""
        return [reason for degraded in self.degraded for reason in degraded()]

    def health(self) -> Sequence[str]:
        """Return what of this process stands still though it could go on."""
        return [fault for faults in self.faults for fault in faults()]

    def listens(self, name: str, address: tuple[str, int]) -> None:
        """Note where something listens."""
        self.addresses[name] = join_address(*address)


@dataclass(slots=True)
class EventHandlers:
    """Who is told that something about a job has changed; filled in as roles come up."""

    listeners: list[Callable[[str], None]] = field(default_factory=list)

    def enqueue(self, job_id: str) -> None:
        """Tell them."""
        for listener in self.listeners:
            listener(job_id)


@dataclass(frozen=True, slots=True)
class Core:
    """What API and reconciler share when they are in one process."""

    pipeline: Pipeline
    vault: Vault
    commands: JobCommands
    jobs: EventHandlers
    routes: EventHandlers
