"""The one place where the data path makes tasks.

A coroutine of uvloop's own is compiled, and does nothing but wait for one future after the other:
connecting and accepting are such. It is driven by what it waits for, without a task, which costs
more to make and to end than all that it would do. Whatever is written in Python gets a task, since
a deadline (:func:`asyncio.timeout`) belongs to one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from types import CoroutineType
from typing import Any, Final, Protocol

log = logging.getLogger(__name__)

_MOST_TURNS: Final = 100
"""Of the loop, for what was cancelled to end: one is enough."""


class Cancellable(Protocol):
    """Something under way; cancelled when it is over, it changes nothing."""

    def cancel(self) -> object:
        """Have it end soon, with :class:`asyncio.CancelledError`."""


class BackgroundTasks:
    """Owns short tasks that connections need (dialling, asking Redis), and ends them all.

    Every task has its own deadline; the connection that starts one cancels it when it goes.
    """

    __slots__ = ("_driven", "_tasks")

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._driven: set[_Driven] = set()

    def __len__(self) -> int:
        return len(self._tasks) + len(self._driven)

    def run(self, work: Coroutine[Any, Any, None], *, failed: Callable[[], None]) -> Cancellable:
        """Start *work*; what it raises is logged, since nobody awaits it.

        Args:
            work: What is to be done.
            failed: Called when it raises: the connection that waits for it would wait for good.
        """
        return self.begin(work, failed=partial(_log, failed))

    def begin(
        self, work: Coroutine[Any, Any, object], *, failed: Callable[[BaseException], None]
    ) -> Cancellable:
        """Start *work*, and call *failed* with what ends it, if it is not its result.

        Never from within this call.
        """
        if not isinstance(work, CoroutineType):
            return _Driven(work, self._driven, failed)
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(partial(self._over, failed))
        return task

    def cancel(self) -> None:
        """Cancel all tasks."""
        for task in self._tasks:
            task.cancel()
        for driven in self._driven:
            driven.cancel()

    async def close(self) -> None:
        """Cancel all tasks and wait until they are gone."""
        self.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for _ in range(_MOST_TURNS):
            if not self._driven:
                break
            await asyncio.sleep(0)

    def _over(self, failed: Callable[[BaseException], None], task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = asyncio.CancelledError() if task.cancelled() else task.exception()
        if error is not None:
            failed(error)


class _Driven:
    """A coroutine that is resumed by the futures it waits for; in *driven* until it has ended."""

    __slots__ = ("_driven", "_failed", "_waits_for", "_work")

    def __init__(
        self,
        work: Coroutine[Any, Any, object],
        driven: set[_Driven],
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
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  # told
            asyncio.get_running_loop().call_soon(self._end, error)

    def cancel(self) -> None:
        """Have what it waits for cancelled, and with that the coroutine."""
        if self._waits_for is not None:
            self._waits_for.cancel()

    def _resume(self, _done: asyncio.Future[Any]) -> None:
        try:
            self._waits_for = self._work.send(None)
            self._waits_for.add_done_callback(self._resume)
        except StopIteration:
            self._driven.discard(self)
        except (Exception, asyncio.CancelledError) as error:  # noqa: BLE001  # told
            self._end(error)

    def _end(self, error: BaseException) -> None:
        self._driven.discard(self)
        if not isinstance(error, StopIteration):
            self._failed(error)


def _log(failed: Callable[[], None], error: BaseException) -> None:
    if not isinstance(error, asyncio.CancelledError):
        log.error("a background task failed", exc_info=error)
        failed()
