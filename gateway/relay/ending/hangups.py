"""Peers that leave while they are not read: an epoll beside the loop's.

A loop whose transport has paused reading sees neither a FIN nor a reset. The kernel reports both to
an epoll with EPOLLRDHUP, whatever is unread.
"""

from __future__ import annotations

import asyncio
import select
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from gateway.relay.ending.kernel import descriptor_of

_SOON_SECONDS: Final = 0.1
"""The delay before the kernel is asked: reading pauses and resumes thousands of times a second."""
_AT_ONCE: Final = 256
"""Peers registered, or reported, in one turn of the loop."""
_PAUSE_SECONDS: Final = 0.01


class Hangups:
    """Calls back, once, when the peer of a watched transport has ended or reset its side.

    The kernel is asked a moment after :meth:`watch`, unless the transport is forgotten by then.
    """

    possible: Final = hasattr(select, "EPOLLRDHUP")

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll: select.epoll | None = None
        self.callbacks: dict[asyncio.Transport, Callable[[], object]] = {}
        """The callbacks, by transport."""
        self._new: set[asyncio.Transport] = set()
        """Transports not yet registered with the kernel."""
        self._watched: dict[int, asyncio.Transport] = {}
        self._descriptors: dict[asyncio.Transport, int] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def __len__(self) -> int:
        """Return how many transports are watched."""
        return len(self.callbacks)

    def watch(self, transport: asyncio.Transport | None, on_hangup: Callable[[], object]) -> None:
        """Call *on_hangup* when the peer of *transport* leaves or has left.

        The caller must :meth:`forget` the transport in ``connection_lost`` at the latest, while its
        descriptor is open. A second call replaces the callback.
        """
        if transport is None or self._closed or not self.possible or transport.is_closing():
            return
        self.callbacks[transport] = on_hangup
        self._new.add(transport)
        if self._timer is None:
            self._timer = self._loop.call_later(_SOON_SECONDS, self._register_new)

    def forget(self, transport: asyncio.Transport | None) -> None:
        """Stop watching *transport*."""
        if transport is None or self.callbacks.pop(transport, None) is None:
            return
        self._new.discard(transport)
        descriptor = self._descriptors.pop(transport, -1)
        if descriptor < 0:
            return
        self._watched.pop(descriptor, None)
        if self._epoll is not None:
            with suppress(OSError):  # already closed, which unregisters it too
                self._epoll.unregister(descriptor)

    def close(self) -> None:
        """Stop all watches."""
        self._closed = True
        for held in (self.callbacks, self._new, self._watched, self._descriptors):
            held.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._epoll is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None

    def _register_new(self) -> None:
        self._timer = None
        pause = _PAUSE_SECONDS
        for _ in range(min(len(self._new), _AT_ONCE)):
            transport = self._new.pop()
            try:
                self._register(transport)
            except OSError:  # the kernel lacks descriptors or memory
                self._new.add(transport)
                pause = _SOON_SECONDS
                break
        if self._new:
            self._timer = self._loop.call_later(pause, self._register_new)

    def _register(self, transport: asyncio.Transport) -> None:
        descriptor = descriptor_of(transport)
        if descriptor < 0:
            return
        epoll = self._epoll or self._open()
        # One-shot: a FIN persists and would wake the loop endlessly.
        mask = select.EPOLLRDHUP | select.EPOLLONESHOT
        if transport in self._descriptors:
            epoll.modify(descriptor, mask)
        else:
            epoll.register(descriptor, mask)
            self._descriptors[transport] = descriptor
            self._watched[descriptor] = transport

    def _open(self) -> select.epoll:
        epoll = self._epoll = select.epoll()
        self._loop.add_reader(epoll.fileno(), self._report)
        return epoll

    def _report(self) -> None:
        if self._epoll is None:
            return
        for descriptor, _ in self._epoll.poll(0, _AT_ONCE):
            # Looked up each time: a callback may end a watch that was reported too.
            transport = self._watched.get(descriptor)
            if transport is not None:
                self._new.discard(transport)
                self.callbacks[transport]()
