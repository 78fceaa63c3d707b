"""Calls of the bus from a thread of their own, so that no turn of the main loop keeps them waiting.

A call of Redis takes half a dozen turns of the loop that makes it. With thousands of busy
connections a turn takes hundreds of milliseconds: a look at the head was then over its time, and
the bus counted as lost, while Redis answered within a millisecond.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

from redis.asyncio import Redis

from gateway.bus.head_poller import CALL_SECONDS
from shared.bus import BusReader, Keys, Mark
from shared.bus.connection import look_around, named_master, translated
from shared.errors import BusUnavailable
from shared.events import Head

_END_SECONDS: Final = 2.0
_CANCEL_SECONDS: Final = 1.0

T = TypeVar("T")


class OwnThread:
    """A thread with an event loop; close it when nobody calls any more."""

    def __init__(self) -> None:
        # Not the main loop's kind: one that rests costs less memory.
        self._loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(target=self._run, name="bus", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._loop.run_forever()
        left = asyncio.all_tasks(self._loop)
        for task in left:
            if not task.cancelling():  # a second time would end what it does at its end
                task.cancel()
        if left:
            # They end in their own loop, as what they have opened is closed there.
            self._loop.run_until_complete(asyncio.wait(left, timeout=_CANCEL_SECONDS))

    async def call(self, call: Coroutine[Any, Any, T]) -> T:
        """Return what *call* returns there; cancelled with its caller."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(call, self._loop))

    def close(self) -> None:
        """End the thread; what is under way there is cancelled."""
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(_END_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()


class ReaderWithOwnThread(BusReader):
    """Reads the bus; the head and the marks of tokens, which are waited for, from its own thread.

    Tables, the log and events come as they always did: they are large, or wait for nobody.

    Args:
        connect: Returns a client of the same Redis; one is used in each thread.
    """

    def __init__(self, connect: Callable[[], Redis], keys: Keys) -> None:
        self.redis = connect()
        super().__init__(self.redis, keys)
        self._thread = OwnThread()
        self._there = connect()
        self._reader = BusReader(self._there, keys)

    async def head(self) -> Head | None:
        """As :meth:`BusReader.head`, within :data:`CALL_SECONDS` of Redis' own time."""
        head = await self._thread.call(self._head())
        if named_master(self._there) != named_master(self.redis):
            # A failover: what was the master may go on answering, to whoever still asks it.
            with translated():
                await look_around(self.redis)
        return head

    async def _head(self) -> Head | None:
        try:
            async with asyncio.timeout(CALL_SECONDS):
                return await self._reader.head()
        except TimeoutError:
            raise BusUnavailable("Redis did not answer in time") from None

    async def mark_used(self, jti: str, use: str, *, kept_until: float, now: float) -> Mark:
        """As :meth:`BusReader.mark_used`."""
        return await self._thread.call(
            self._reader.mark_used(jti, use, kept_until=kept_until, now=now)
        )

    async def aclose(self) -> None:
        """Close the connections, and end the thread."""
        try:
            async with asyncio.timeout(_END_SECONDS):
                await self._thread.call(self._there.aclose())
        except TimeoutError:
            pass  # a Redis that does not even take a goodbye
        finally:
            self._thread.close()
            await self.redis.aclose()
