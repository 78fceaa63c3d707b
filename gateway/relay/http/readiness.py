"""Readiness of descriptors that belong to transports: an epoll inside the loop's own.

A loop reports to nothing but the transport that a socket is readable or writable. Code that moves
bytes past the transports registers here. The loop sees one more descriptor, however many are
watched.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from typing import Final

_AT_ONCE: Final = 256
"""Descriptors handled in one turn of the loop."""


class Readiness:
    """Calls back while a watched descriptor is ready (level-triggered).

    Errors and hang-ups count as ready: the following read or write tells which it is. The caller
    must stop the watch before the descriptor is closed.

    Args:
        loop: The loop that runs the callbacks.
    """

    possible: Final = hasattr(select, "epoll")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll: select.epoll | None = None
        self._readers: dict[int, Callable[[], None]] = {}
        self._writers: dict[int, Callable[[], None]] = {}
        self._closed = False

    def __len__(self) -> int:
        """Return how many descriptors are watched."""
        return len(self._readers.keys() | self._writers.keys())

    def readable(self, descriptor: int, call: Callable[[], None] | None) -> None:
        """Call *call* while *descriptor* is readable; None ends the watch."""
        self._set(self._readers, descriptor, call)

    def writable(self, descriptor: int, call: Callable[[], None] | None) -> None:
        """Call *call* while *descriptor* is writable; None ends the watch."""
        self._set(self._writers, descriptor, call)

    def close(self) -> None:
        """Stop all watches."""
        self._closed = True
        self._readers.clear()
        self._writers.clear()
        if self._epoll is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None

    def _set(
        self,
        calls: dict[int, Callable[[], None]],
        descriptor: int,
        call: Callable[[], None] | None,
    ) -> None:
        if self._closed:
            return
        before = self._mask(descriptor)
        if call is None:
            calls.pop(descriptor, None)
        else:
            calls[descriptor] = call
        mask = self._mask(descriptor)
        epoll = self._epoll or self._open()
        if mask == before:
            return
        if not before:
            epoll.register(descriptor, mask)
        elif mask:
            epoll.modify(descriptor, mask)
        else:
            # A mask of 0 would still report hang-ups.
            epoll.unregister(descriptor)

    def _mask(self, descriptor: int) -> int:
        reads = select.EPOLLIN if descriptor in self._readers else 0
        return reads | (select.EPOLLOUT if descriptor in self._writers else 0)

    def _open(self) -> select.epoll:
        epoll = self._epoll = select.epoll()
        self._loop.add_reader(epoll.fileno(), self._serve)
        return epoll

    def _serve(self) -> None:
        if self._epoll is None:
            return
        for descriptor, mask in self._epoll.poll(0, _AT_ONCE):
            # Looked up each time: a callback may end a watch that was reported too.
            if mask & ~select.EPOLLOUT and (call := self._readers.get(descriptor)):
                call()
            if mask & ~select.EPOLLIN and (call := self._writers.get(descriptor)):
                call()
