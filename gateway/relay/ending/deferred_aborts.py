"""The end of apps' connections that are of no use any more: after the browsers', some at a time.

Who is shut out by the thousand is out with the last byte that a browser gets. Closing the apps'
connections in between takes as long again, wakes an app for each, and nobody waits for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from gateway.relay.transports import pause_reading

AT_ONCE: Final = 50
"""Connections aborted before the loop turns: half a millisecond."""
STEP_SECONDS: Final = 0.005
"""From there to the next ones: a tenth of the loop, and 10,000 connections a second."""


class DeferredAborts:
    """Aborts transports that nothing passes any more, in the order in which they came.

    Args:
        loop: The transports' own.
        seconds: How much later each is aborted; more when many came before it.
    """

    __slots__ = ("_closed", "_loop", "_seconds", "_timer", "_waiting")

    def __init__(self, *, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._loop = loop
        self._seconds = seconds
        self._waiting: deque[tuple[float, asyncio.Transport]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def __len__(self) -> int:
        """Return how many transports wait."""
        return len(self._waiting)

    def add(self, transport: asyncio.Transport) -> None:
        """Read nothing more from *transport*, write nothing more, and abort it later.

        What still waits in it to be sent could go out meanwhile: then it is aborted now.
        Whoever calls this writes to it no more, and discards what was read already.
        """
        if self._closed or transport.get_write_buffer_size():
            transport.abort()
            return
        pause_reading(transport)
        self._waiting.append((self._loop.time() + self._seconds, transport))
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._turn)

    def close(self) -> None:
        """Abort all that wait, and from now on whatever is added."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            self._abort_next()

    def _turn(self) -> None:
        self._timer = None
        now = self._loop.time()
        for _ in range(AT_ONCE):
            if not self._waiting or self._waiting[0][0] > now:
                break
            self._abort_next()
        if self._waiting:
            pause = max(STEP_SECONDS, self._waiting[0][0] - now)
            self._timer = self._loop.call_later(pause, self._turn)

    def _abort_next(self) -> None:
        self._waiting.popleft()[1].abort()
