"""Redis calls from a thread of their own, so that a busy main loop does not delay them.

A Redis call takes about six iterations of the loop that makes it. With thousands of busy
connections an iteration takes hundreds of milliseconds. On the main loop, reads of the head then
time out and the bus counts as lost, although Redis responds within a millisecond.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from redis.asyncio import Redis

from gateway.bus.head_poller import CALL_SECONDS
from shared.bus import BusReader, Keys, Mark
from shared.bus.connection import check_master, named_master
from shared.bus.keys import CALL_SECONDS as REDIS_SECONDS
from shared.bus.translation import translated, unavailable
from shared.events import Head

MARKS_AT_ONCE: Final = 64
"""Each mark under way has a connection to Redis, and redis-py fails calls beyond its own limit of
connections at once. Further marks wait: a short pause of Redis then refuses nobody."""
_END_SECONDS: Final = 2.0
_CANCEL_SECONDS: Final = 1.0

T = TypeVar("T")


class OwnThread:
    """A thread with an event loop; call :meth:`close` after the last call has returned."""

    def __init__(self) -> None:
        # Not uvloop: an idle selector loop takes less memory.
        self._loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(target=self._run, name="bus", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._loop.run_forever()
        left = asyncio.all_tasks(self._loop)
        for task in left:
            if not task.cancelling():  # a second cancellation would interrupt its cleanup
                task.cancel()
        if left:
            # Tasks must end in the loop in which they opened their connections.
            self._loop.run_until_complete(asyncio.wait(left, timeout=_CANCEL_SECONDS))

    async def call(self, call: Coroutine[Any, Any, T]) -> T:
        """Run *call* in the thread and return its result; cancelling the caller cancels it."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self._loop))

    def close(self) -> None:
        """Stop the thread and cancel the calls under way."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_END_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()


class ReaderWithOwnThread(BusReader):
    """A bus reader that makes the calls which requests wait for in a thread of its own.

    These are reads of the head and marks of tokens. Snapshots, the log and events are read in the
    main loop: they are large, or no request waits for them.

    Args:
        connect: Returns a new Redis client; each thread gets its own.
    """

    def __init__(self, connect: Callable[[], Redis], keys: Keys) -> None:
        self.redis = connect()
        super().__init__(self.redis, keys)
        self._thread = OwnThread()
        self._there = connect()
        self._reader = BusReader(self._there, keys)
        self._marks = asyncio.Semaphore(MARKS_AT_ONCE)

    async def head(self) -> Head | None:
        """As :meth:`BusReader.head`, with a deadline of :data:`CALL_SECONDS`."""
        head = await self._thread.call(self._head())
        if named_master(self._there) != named_master(self.redis):
            # After a failover the old master may still respond to the main loop's connections.
            with translated():
                await check_master(self.redis)
        return head

    async def _head(self) -> Head | None:
        try:
            async with asyncio.timeout(CALL_SECONDS):
                return await self._reader.head()
        except TimeoutError as error:
            raise unavailable(error) from error

    async def mark_used(self, jti: str, use: str, *, kept_until: float, now: float) -> Mark:
        """As :meth:`BusReader.mark_used`; at most :data:`MARKS_AT_ONCE` are under way."""
        return await self._thread.call(self._mark(jti, use, kept_until=kept_until, now=now))

    async def _mark(self, jti: str, use: str, *, kept_until: float, now: float) -> Mark:
        try:
            async with asyncio.timeout(REDIS_SECONDS), self._marks:  # waiting included
                return await self._reader.mark_used(jti, use, kept_until=kept_until, now=now)
        except TimeoutError as error:
            raise unavailable(error) from error

    async def aclose(self) -> None:
        """Close the connections and stop the thread."""
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self._thread.call(self._there.aclose())
        except TimeoutError:
            pass  # Redis is not reachable; the sockets go with the thread
        finally:
            self._thread.close()
            await self.redis.aclose()
