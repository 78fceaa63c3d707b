"""Peers that leave while nothing is read from them: an epoll of ours beside the loop's.

A loop that has been told to pause reading sees neither a FIN nor a reset. The kernel tells both to
an epoll that asks for EPOLLRDHUP, whatever is still unread.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from gateway.relay.ending.kernel import descriptor_of

_AT_ONCE: Final = 256
"""Peers told of before the loop turns."""


class Hangups:
    """Calls back, once, when the peer of a watched transport has ended or reset its side.

    Args:
        loop: Calls back from here.
    """

    __slots__ = ("_closed", "_descriptors", "_epoll", "_loop", "_watched")

    possible: Final = hasattr(select, "EPOLLRDHUP")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll: select.epoll | None = None
        self._watched: dict[int, tuple[asyncio.Transport, Callable[[], object]]] = {}
        self._descriptors: dict[asyncio.Transport, int] = {}
        self._closed = False

    def __len__(self) -> int:
        """Return how many transports are watched."""
        return len(self._watched)

    def watch(self, transport: asyncio.Transport | None, left: Callable[[], object]) -> None:
        """Call *left* when the peer of *transport* leaves, or has left already.

        Whoever watches a transport forgets it in ``connection_lost`` at the latest, while its
        descriptor is still open. Watching it twice replaces what is called.
        """
        if transport is None or self._closed or not self.possible:
            return
        descriptor = descriptor_of(transport)
        if descriptor < 0:
            return
        epoll = self._epoll or self._open()
        # One-shot: a FIN stays, and would wake the loop without end.
        mask = select.EPOLLRDHUP | select.EPOLLONESHOT
        if transport in self._descriptors:
            epoll.modify(descriptor, mask)
        else:
            epoll.register(descriptor, mask)
            self._descriptors[transport] = descriptor
        self._watched[descriptor] = (transport, left)

    def forget(self, transport: asyncio.Transport | None) -> None:
        """Watch *transport* no more."""
        descriptor = self._descriptors.pop(transport, -1) if transport is not None else -1
        if descriptor < 0:
            return
        self._watched.pop(descriptor, None)
        if self._epoll is not None:
            with suppress(OSError):  # closed by now, which takes it out as well
                self._epoll.unregister(descriptor)

    def close(self) -> None:
        """Watch nothing any more."""
        self._closed = True
        self._watched.clear()
        self._descriptors.clear()
        if self._epoll is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None

    def _open(self) -> select.epoll:
        epoll = self._epoll = select.epoll()
        self._loop.add_reader(epoll.fileno(), self._tell)
        return epoll

    def _tell(self) -> None:
        if self._epoll is None:
            return
        for descriptor, _ in self._epoll.poll(0, _AT_ONCE):
            # Looked up each time: one call may end what another was to be called for.
            watched = self._watched.get(descriptor)
            if watched is not None:
                watched[1]()
