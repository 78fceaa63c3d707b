"""Closes connections, for all parts of the gateway."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Final

from gateway.core.limits.values import Limits
from gateway.relay.ending.stalls import StallWatch
from gateway.relay.epolls import Hangups
from gateway.relay.transports import (
    has_unsent,
    is_tls,
    keep_alive,
    limit_orphan,
    pause_reading,
    reset,
    resume_reading,
    shutdown_write,
    unacknowledged,
)

ABORTED_AT_ONCE: Final = 50
"""Connections aborted in one turn of the loop: they take half a millisecond."""
ABORT_STEP_SECONDS: Final = 0.005
"""The pause before the next ones: a tenth of the loop's time, and 10,000 connections a second."""


class DeferredAborts:
    """Aborts upstream transports that no byte passes any more, in the order in which they came.

    When thousands of connections are revoked, revocation is complete with the last byte to a
    browser. Closing the upstream connections in between would take as long again and would wake an
    app each time, although nothing waits for it. Each is therefore aborted *seconds* later, or
    later still if many came before it.
    """

    def __init__(self, *, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._loop = loop
        self._seconds = seconds
        self._waiting: deque[tuple[float, asyncio.Transport]] = deque()
        self._timer: asyncio.TimerHandle | None = None
        self._closed = False

    def __len__(self) -> int:
        """Return how many transports are waiting."""
        return len(self._waiting)

    def add(self, transport: asyncio.Transport) -> None:
        """Stop reading from *transport* and abort it later.

        If it has unsent bytes, it is aborted now, since they could be sent meanwhile. The caller
        must not write to it any more and must discard what was read before.
        """
        if self._closed or transport.get_write_buffer_size():
            transport.abort()
            return
        pause_reading(transport)
        self._waiting.append((self._loop.time() + self._seconds, transport))
        if self._timer is None:
            self._timer = self._loop.call_later(self._seconds, self._turn)

    def close(self) -> None:
        """Abort all waiting transports, and from now on every added one at once."""
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        while self._waiting:
            self._abort_next()

    def _turn(self) -> None:
        self._timer = None
        now = self._loop.time()
        for _ in range(ABORTED_AT_ONCE):
            if not self._waiting or self._waiting[0][0] > now:
                break
            self._abort_next()
        if self._waiting:
            pause = max(ABORT_STEP_SECONDS, self._waiting[0][0] - now)
            self._timer = self._loop.call_later(pause, self._turn)

    def _abort_next(self) -> None:
        self._waiting.popleft()[1].abort()


SHUTDOWN_SECONDS: Final = 120.0
"""The loop's own timeout for closing TLS: long enough for a slow reader of what a transport holds.
See :class:`SilentClose`."""
_FIN_REPORT_SECONDS: Final = 0.1
"""The time in which a loop reads the bytes before a FIN, and reports the FIN if it does."""
_CHECK_SECONDS: Final = 0.25
_SMALL_BYTES: Final = 1024
"""With so little unacknowledged no socket buffer is full, so the transport holds nothing. What
remains is at most our close_notify, which the kernel delivers."""


class Closer:
    """Closes connections, and finds those whose peer has left or stalls."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: Limits) -> None:
        self.loop = loop
        self.limits = limits
        self.stalls = StallWatch(loop)
        self.hangups = Hangups(loop)
        self.deferred = DeferredAborts(loop=loop, seconds=limits.app_abort_seconds)

    def rely_on_loop(
        self, transport: asyncio.Transport | None, on_hangup: Callable[[], None]
    ) -> None:
        """Let the loop report when the browser leaves, since *transport* is read again.

        With TLS a loop reports a FIN only after everything was sent, and not at all while reading
        is paused for a turn. In that case *on_hangup* is called a moment after the FIN.
        """
        if transport is None or not self.watch_tls_fin(transport, on_hangup):
            self.hangups.forget(transport)

    def watch_tls_fin(self, transport: asyncio.Transport, on_hangup: Callable[[], None]) -> bool:
        """Watch an unwatched TLS *transport* for a FIN; return whether it is watched."""
        if not is_tls(transport):
            return False
        self.hangups.watch(transport, partial(self.loop.call_later, _FIN_REPORT_SECONDS, on_hangup))
        return True

    def close(self, transport: asyncio.Transport | None) -> None:
        """Close *transport* after what was written; a second call changes nothing.

        A peer that reads nothing of it until the stall deadline is reset, with and without TLS. A
        peer that has everything and does not answer our close_notify is not waited for.
        """
        if transport is None or transport.is_closing():
            return
        waits = transport.get_write_buffer_size() > 0
        limit_orphan(transport, stall_seconds=self.limits.write_stall_seconds)
        transport.close()
        if is_tls(transport):
            SilentClose(transport, self.loop).check_later()
            self.watch(transport)
        elif waits:
            self.watch(transport)

    def close_within(self, transport: asyncio.Transport, seconds: float) -> None:
        """Close an app's *transport*; reset it if what was written is not sent in time."""
        if transport.is_closing():
            return
        waits = transport.get_write_buffer_size() > 0
        limit_orphan(transport, stall_seconds=seconds)
        transport.close()
        if waits or is_tls(transport):
            self.loop.call_later(seconds, reset, transport)

    def watch(
        self,
        transport: asyncio.Transport | None,
        stalled: Callable[[], None] | None = None,
        *,
        app: bool = False,
        transient: bool = False,
    ) -> None:
        """Reset a connection, or call *stalled*, once it stalls with unsent bytes.

        Browsers and *app* connections have different deadlines. *transient* is as in
        :class:`StallWatch`.
        """
        limits = self.limits
        if transport is not None:
            self.stalls.watch(
                transport,
                seconds=limits.app_write_stall_seconds if app else limits.write_stall_seconds,
                stalled=stalled or partial(reset, transport),
                transient=transient,
            )

    def watch_writes(
        self,
        transport: asyncio.Transport | None,
        stalled: Callable[[], None] | None = None,
        *,
        app: bool = False,
    ) -> None:
        """Watch *transport* until nothing is unsent; called on each ``pause_writing``.

        ``resume_writing`` does not end the watch: both are called thousands of times a second.
        """
        if transport is not None and transport not in self.stalls.watched:
            self.watch(transport, stalled, app=app, transient=True)

    def watch_if_unacknowledged(
        self,
        transport: asyncio.Transport | None,
        stalled: Callable[[], None] | None = None,
        *,
        app: bool = False,
    ) -> None:
        """Watch *transport* if the kernel holds unacknowledged bytes for its peer."""
        if transport is not None and unacknowledged(transport) > 0:
            self.watch_writes(transport, stalled, app=app)

    def enable_keepalive(self, transport: asyncio.Transport | None) -> None:
        """Have the kernel detect that an app's host has vanished."""
        if transport is not None:
            keep_alive(transport, stall_seconds=self.limits.app_write_stall_seconds)

    def forget(self, transport: asyncio.Transport | None) -> None:
        """Stop all watches of *transport*; most transports have none."""
        if transport in self.stalls.watched:
            self.stalls.forget(transport)
        if transport in self.hangups.callbacks:
            self.hangups.forget(transport)

    def close_all(self) -> None:
        """Abort the transports with deferred aborts, and stop all watches."""
        self.deferred.close()
        self.stalls.close()
        self.hangups.close()


class SilentClose:
    """Aborts a closing TLS connection once its peer has everything but our close_notify.

    Both sides send close_notify, and the first one need not wait for the other's (RFC 8446, section
    6.1). Loops wait, and drop the rest when their timeout passes while the peer still reads. Here
    the loops' timeout is long, and the kernel's queue tells the two cases apart.
    :class:`.stalls.StallWatch` finds a peer that reads nothing.
    """

    __slots__ = ("_left", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._left = -1

    def check_later(self) -> None:
        """Check after a moment: most peers have closed by then."""
        self._loop.call_later(_CHECK_SECONDS, self._check)

    def _check(self) -> None:
        left = unacknowledged(self._transport)
        if left < 0:
            return
        before, self._left = self._left, left
        if is_last_word(before, left) and not self._transport.get_write_buffer_size():
            # Two checks, since a transport may have been about to write.
            self._transport.abort()
        else:
            self.check_later()


def is_last_word(*held: int) -> bool:
    """Return whether the kernel held no more than our close_notify in each check."""
    return all(0 <= one <= _SMALL_BYTES for one in held)


class Lingering(asyncio.Protocol):
    """The last protocol of *transport*, a lingering close; it takes the transport over at once.

    Our side is shut down. Input is read and discarded: left unread, it would turn our close into a
    reset, and the peer might not receive the last bytes (RFC 9112, section 9.6). The connection
    closes when the peer closes it, or after *seconds*. A peer that still reads then has the stall
    deadline for each further byte.

    Args:
        transport: Nothing more may be written to it.
        seconds: How long the peer may take to close once it has everything.
        flush_seconds: When the kernel must have accepted all bytes, or the connection is reset:
            bytes written before a right ended must not arrive later. None for no limit.
        on_data: Called with the discarded input. With TLS our side cannot be shut down and the peer
            of a WebSocket waits for us to close: a caller that sees its Close closes the transport.
    """

    __slots__ = ("_closer", "_on_closed", "_on_data", "_seconds", "_timer", "_transport")

    def __init__(
        self,
        closer: Closer,
        transport: asyncio.Transport,
        *,
        seconds: float,
        on_closed: Callable[[], None],
        flush_seconds: float | None = None,
        on_data: Callable[[bytes], None] | None = None,
    ) -> None:
        self._closer = closer
        self._transport = transport
        self._seconds = seconds
        self._on_closed = on_closed
        self._on_data = on_data
        transport.set_protocol(self)
        resume_reading(transport)
        shutdown_write(transport)
        loop = closer.loop
        if flush_seconds is None:
            self._timer = loop.call_later(seconds, self._close)
        else:
            self._timer = loop.call_later(flush_seconds, self._check_written, flush_seconds)

    def data_received(self, data: bytes) -> None:
        """Discard it."""
        if self._on_data is not None:
            self._on_data(data)

    def eof_received(self) -> bool:
        """Let the transport close by itself: the peer has closed too."""
        self._closer.watch(self._transport)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end, and release the transport.

        With TLS the transport refers to its last protocol: both would stay, with a buffer of 256
        KiB, until the garbage collector runs.
        """
        self._timer.cancel()
        self._closer.forget(self._transport)
        on_closed = self._on_closed
        del self._transport, self._on_closed, self._on_data
        on_closed()

    def _check_written(self, after: float) -> None:
        if self._transport.get_write_buffer_size():
            reset(self._transport)
        else:
            self._timer = self._closer.loop.call_later(self._seconds - after, self._close)

    def _close(self) -> None:
        if not self._transport.get_write_buffer_size():
            self._closer.close(self._transport)
            return
        # A slow peer still reads; if it stalls, it is reset.
        if self._transport not in self._closer.stalls.watched:
            self._closer.watch(self._transport)
        self._timer = self._closer.loop.call_later(self._seconds, self._close)


_FLUSH_CHECK_SECONDS: Final = 0.05
_LONGEST_FLUSH_CHECK_SECONDS: Final = 1.0
"""Between two checks, doubled from one to the other: an app that ends can break off the responses
of thousands of slow readers at once."""


class CutOff(asyncio.Protocol):
    """The last protocol of *transport*: it is reset once its peer has received what was written.

    A peer that still reads has the stall deadline for each further byte. Input is discarded; a peer
    that closes is reset at once.
    """

    __slots__ = ("_checks", "_closer", "_on_closed", "_pause", "_timer", "_transport")

    def __init__(
        self, closer: Closer, transport: asyncio.Transport, *, on_closed: Callable[[], None]
    ) -> None:
        self._closer = closer
        self._transport = transport
        self._on_closed = on_closed
        self._pause = _FLUSH_CHECK_SECONDS
        # With TLS, bytes that are encrypted and not yet given to the kernel are counted nowhere.
        # The loop writes them before the second check.
        self._checks = 2 if is_tls(transport) else 1
        self._timer: asyncio.Handle | None = None
        transport.set_protocol(self)
        resume_reading(transport)
        closer.watch(transport)
        self._check()

    def eof_received(self) -> bool:
        """Reset: the peer has left."""
        reset(self._transport)
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Report the end, and release the transport, as :class:`Lingering` does."""
        if self._timer is not None:
            self._timer.cancel()
        self._closer.forget(self._transport)
        on_closed = self._on_closed
        del self._transport, self._on_closed
        on_closed()

    def _check(self, received: int = 0) -> None:
        """Check again later, unless the last *received* checks and this one found no bytes left."""
        received, pause = received + 1, _FLUSH_CHECK_SECONDS
        if has_unsent(self._transport):
            received, pause = 0, self._pause
            self._pause = min(2 * pause, _LONGEST_FLUSH_CHECK_SECONDS)
        if received == self._checks:
            reset(self._transport)
        else:
            self._timer = self._closer.loop.call_later(pause, self._check, received)
