"""Epolls inside the loop's own, for descriptors that belong to transports.

A loop reports to nothing but the transport that a socket is readable or writable, and reports
neither a FIN nor a reset while reading is paused. The loop sees one more descriptor for each class
here, however many are watched.
"""

from __future__ import annotations

import asyncio
import select
from abc import abstractmethod
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from gateway.relay.transports import descriptor_of

_AT_ONCE: Final = 256
"""Descriptors reported, or registered, in one turn of the loop."""
_SOON_SECONDS: Final = 0.1
"""The delay before the kernel is asked: reading pauses and resumes thousands of times a second."""
_PAUSE_SECONDS: Final = 0.01


class _Epoll:
    """Reports what is ready to :meth:`_report`, from the first registration until it is closed."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._epoll: select.epoll | None = None
        self._closed = False

    @abstractmethod
    def _report(self, descriptor: int, mask: int) -> None:
        """Handle what was reported; an earlier report may have ended the watch."""

    def _open(self) -> select.epoll:
        if self._epoll is None:
            self._epoll = select.epoll()
            self._loop.add_reader(self._epoll.fileno(), self._poll)
        return self._epoll

    def _poll(self) -> None:
        if self._epoll is not None:
            for descriptor, mask in self._epoll.poll(0, _AT_ONCE):
                self._report(descriptor, mask)

    def close(self) -> None:
        """Stop all watches."""
        self._closed = True
        if self._epoll is not None:
            self._loop.remove_reader(self._epoll.fileno())
            self._epoll.close()
            self._epoll = None


class Readiness(_Epoll):
    """Calls back while a watched descriptor is ready (level-triggered).

    Errors and hang-ups count as ready: the following read or write tells which it is. The caller
    must stop the watch before the descriptor is closed.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self._readers: dict[int, Callable[[], None]] = {}
        self._writers: dict[int, Callable[[], None]] = {}

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
        self._readers.clear()
        self._writers.clear()
        super().close()

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
        mask, epoll = self._mask(descriptor), self._open()
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

    def _report(self, descriptor: int, mask: int) -> None:
        if mask & ~select.EPOLLOUT and (call := self._readers.get(descriptor)):
            call()
        if mask & ~select.EPOLLIN and (call := self._writers.get(descriptor)):
            call()


class Hangups(_Epoll):
    """Calls back, once, when the peer of a watched transport has ended or reset its side.

    The kernel reports both with EPOLLRDHUP, whatever is unread. It is asked a moment after
    :meth:`watch`, unless the transport is forgotten by then.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.callbacks: dict[asyncio.Transport, Callable[[], object]] = {}
        """The callbacks, by transport."""
        self._new: set[asyncio.Transport] = set()
        """Transports not yet registered with the kernel."""
        self._watched: dict[int, asyncio.Transport] = {}
        self._descriptors: dict[asyncio.Transport, int] = {}
        self._timer: asyncio.TimerHandle | None = None

    def watch(self, transport: asyncio.Transport | None, on_hangup: Callable[[], object]) -> None:
        """Call *on_hangup* when the peer of *transport* leaves or has left.

        The caller must :meth:`forget` the transport in ``connection_lost`` at the latest, while its
        descriptor is open. A second call replaces the callback.
        """
        if transport is None or self._closed or transport.is_closing():
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
        for held in (self.callbacks, self._new, self._watched, self._descriptors):
            held.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        super().close()

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
        epoll = self._open()
        # One-shot: a FIN persists and would wake the loop endlessly.
        mask = select.EPOLLRDHUP | select.EPOLLONESHOT
        if transport in self._descriptors:
            epoll.modify(descriptor, mask)
        else:
            epoll.register(descriptor, mask)
            self._descriptors[transport] = descriptor
            self._watched[descriptor] = transport

    def _report(self, descriptor: int, mask: int) -> None:
        transport = self._watched.get(descriptor)
        if transport is not None:
            self._new.discard(transport)
            self.callbacks[transport]()
