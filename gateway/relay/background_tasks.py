"""The one place where the data path makes tasks."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

log = logging.getLogger(__name__)


class BackgroundTasks:
    """Owns short tasks that connections need (dialling, asking Redis), and ends them all.

    Every task has its own deadline; the connection that starts one cancels it when it goes.
    """

    __slots__ = ("_tasks",)

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()

    def __len__(self) -> int:
        return len(self._tasks)

    def run(
        self, work: Coroutine[Any, Any, None], *, failed: Callable[[], None]
    ) -> asyncio.Task[None]:
        """Start *work*; what it raises is logged, since nobody awaits it.

        Args:
            work: What is to be done.
            failed: Called when it raises: the connection that waits for it would wait for good.
        """
        return self.begin(work, failed=partial(_log, failed))

    def begin(
        self, work: Coroutine[Any, Any, object], *, failed: Callable[[BaseException], None]
    ) -> asyncio.Task[Any]:
        """Start *work*, and call *failed* with what ends it, if it is not its result."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(partial(self._over, failed))
        return task

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in self._tasks:
            task.cancel()

    async def close(self) -> None:
        """Cancel all tasks and wait until they are gone."""
        self.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def _over(self, failed: Callable[[BaseException], None], task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None:
            failed(error)


def _log(failed: Callable[[], None], error: BaseException) -> None:
    if not isinstance(error, asyncio.CancelledError):
        log.error("a background task failed", exc_info=error)
        failed()
