"""The one place where the data path creates tasks.

uvloop's own coroutines, such as connecting and accepting, are compiled and only wait for one future
after another. They are resumed directly by these futures, without a task: creating and ending a
task costs more than all their work. A coroutine written in Python gets a task, since a deadline
(:func:`asyncio.timeout`) requires one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from types import CoroutineType
from typing import Any, Final, Protocol

log = logging.getLogger(__name__)

_MAX_TURNS: Final = 100
"""Turns of the loop to wait for cancelled work to end: one is enough."""


class Cancellable(Protocol):
    """Work in progress; cancelling finished work changes nothing."""

    def cancel(self) -> object:
        """Make it end soon, with :class:`asyncio.CancelledError`."""


class BackgroundTasks:
    """Owns the short tasks of connections (dialling, Redis calls), and ends them all.

    Each task has its own deadline. The connection that starts one cancels it when it closes.
    """

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._driven: set[_Taskless] = set()

    def __len__(self) -> int:
        return len(self._tasks) + len(self._driven)

    def spawn_logged(
        self, work: Coroutine[Any, Any, None], *, failed: Callable[[], None]
    ) -> Cancellable:
        """Start *work*; log what it raises, since no caller awaits it.

        Args:
            work: The coroutine.
            failed: Called if it raises: a connection that waits for it would wait forever.
        """
        return self.spawn(work, failed=partial(_log, failed))

    def spawn(
        self, work: Coroutine[Any, Any, object], *, failed: Callable[[BaseException], None]
    ) -> Cancellable:
        """Start *work*; call *failed* with the exception that ends it, if any.

        *failed* is never called within this call.
        """
        if not isinstance(work, CoroutineType):
            return _Taskless(work, self._driven, failed)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(partial(self._task_done, failed))
        return task

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in self._tasks:
            task.cancel()
        for driven in self._driven:
            driven.cancel()

    async def close(self) -> None:
        """Cancel all tasks and wait until they have ended."""
        self.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for _ in range(_MAX_TURNS):
            if not self._driven:
                break
            await asyncio.sleep(0)

    def _task_done(self, failed: Callable[[BaseException], None], task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None:
            failed(error)


class _Taskless:
    """A coroutine resumed by the futures that it awaits; a member of *driven* until it ends."""

    __slots__ = ("_driven", "_failed", "_waits_for", "_work")

    def __init__(
        self,
        work: Coroutine[Any, Any, object],
        driven: set[_Taskless],
        failed: Callable[[BaseException], None],
    ) -> None:
        self._work = work
        self._driven = driven
        self._failed = failed
        self._waits_for: asyncio.Future[Any] | None = None
        driven.add(self)
        try:
            self._waits_for = work.send(None)
            self._waits_for.add_done_callback(self._resume)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  # passed on
            asyncio.get_running_loop().call_soon(self._end, error)

    def cancel(self) -> None:
        """Cancel the awaited future, and with it the coroutine."""
        if self._waits_for is not None:
            self._waits_for.cancel()

    def _resume(self, _done: asyncio.Future[Any]) -> None:
        try:
            self._waits_for = self._work.send(None)
            self._waits_for.add_done_callback(self._resume)
        except StopIteration:
            self._driven.discard(self)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  # passed on
            self._end(error)

    def _end(self, error: BaseException) -> None:
        self._driven.discard(self)
        if not isinstance(error, StopIteration):
            self._failed(error)


def _log(failed: Callable[[], None], error: BaseException) -> None:
    if not isinstance(error, asyncio.CancelledError):
        log.error("a background task failed", exc_info=error)
        failed()
