"""What the gateway's parts are given to end connections with."""

from __future__ import annotations

import asyncio
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Final

from gateway.relay.ending.hangups import Hangups
from gateway.relay.ending.kernel import bound_orphan, is_secured, keep_alive, unacknowledged
from gateway.relay.ending.stalls import StallWatch
from gateway.relay.transports import pause_reading, reset

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.core.limits.values import Limits


ABORTED_AT_ONCE: Final = 50
"""Connections aborted before the loop turns: half a millisecond."""
ABORT_STEP_SECONDS: Final = 0.005
"""From there to the next ones: a tenth of the loop, and 10,000 connections a second."""


class DeferredAborts:
    """Aborts transports of apps that nothing passes any more, in the order in which they came.

    Who is shut out by the thousand is out with the last byte that a browser gets. Closing the apps'
    connections in between takes as long again, wakes an app for each, and nobody waits for it. So
    each is aborted *seconds* later; more when many came before it.
    """

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
"""What a loop is told of closing under TLS: for readers that take this long for what a transport
holds. See :class:`SilentClose`."""
_TOLD_SECONDS: Final = 0.1
"""In which a loop reads what came before a FIN, and tells of it where it does."""
_LOOK_SECONDS: Final = 0.25
_LITTLE_BYTES: Final = 1024
"""No socket's buffer is full with this, so that its transport holds nothing: it is at most our
last word, whose way is the kernel's concern."""


class Ends:
    """Ends connections, and finds those whose peer left or takes nothing."""

    def __init__(self, loop: asyncio.AbstractEventLoop, limits: Limits) -> None:
        self.loop = loop
        self.limits = limits
        self.stalls = StallWatch(loop)
        self.hangups = Hangups(loop)
        self.deferred = DeferredAborts(loop=loop, seconds=limits.app_abort_seconds)

    def seen_by_loop(self, transport: asyncio.Transport | None, left: Callable[[], None]) -> None:
        """Leave it to the loop to tell when the browser leaves, whose *transport* is read.

        Under TLS a loop tells of a FIN only once everything was sent, and not at all while reading
        is paused for a turn: there *left* is called a moment later, in case that it said nothing.
        """
        if transport is None or not self.begin(transport, left):
            self.hangups.forget(transport)

    def begin(self, transport: asyncio.Transport, left: Callable[[], None]) -> bool:
        """Do the same for a *transport* that nobody watches yet; say whether it is watched now."""
        if not is_secured(transport):
            return False
        self.hangups.watch(transport, partial(self.loop.call_later, _TOLD_SECONDS, left))
        return True

    def close(self, transport: asyncio.Transport | None) -> None:
        """Close *transport* after what was written; closing it twice changes nothing.

        A peer that takes nothing of it for the stall deadline is reset, over TLS and plain TCP
        alike. A peer that has everything and does not answer our close_notify is not waited for.
        """
        if transport is None or transport.is_closing():
            return
        waits = transport.get_write_buffer_size() > 0
        bound_orphan(transport, stall_seconds=self.limits.write_stall_seconds)
        transport.close()
        if is_secured(transport):
            SilentClose(transport, self.loop).look_later()
            self.watch(transport)
        elif waits:
            self.watch(transport)

    def close_within(self, transport: asyncio.Transport, seconds: float) -> None:
        """Close an app's *transport*, and reset it if what was written is not taken in time."""
        if transport.is_closing():
            return
        waits = transport.get_write_buffer_size() > 0
        bound_orphan(transport, stall_seconds=seconds)
        transport.close()
        if waits or is_secured(transport):
            self.loop.call_later(seconds, reset, transport)

    def watch(
        self,
        transport: asyncio.Transport | None,
        stalled: Callable[[], None] | None = None,
        *,
        app: bool = False,
        passing: bool = False,
    ) -> None:
        """Reset a connection (or call *stalled*) once it stalls with bytes unsent.

        A browser has its time for that, an *app* another; *passing* as for :class:`StallWatch`.
        """
        limits = self.limits
        if transport is not None:
            self.stalls.watch(
                transport,
                seconds=limits.app_write_stall_seconds if app else limits.write_stall_seconds,
                stalled=stalled or partial(reset, transport),
                passing=passing,
            )

    def writes_wait(
        self,
        transport: asyncio.Transport | None,
        stalled: Callable[[], None] | None = None,
        *,
        app: bool = False,
    ) -> None:
        """Watch *transport* until nothing waits any more; for each ``pause_writing``.

        It is not forgotten with ``resume_writing``: both come thousands of times a second.
        """
        if transport is not None and not self.stalls.watches(transport):
            self.watch(transport, stalled, app=app, passing=True)

    def look_at(
        self,
        transport: asyncio.Transport | None,
        stalled: Callable[[], None] | None = None,
        *,
        app: bool = False,
    ) -> None:
        """Watch *transport* while the kernel holds something for its peer."""
        watched = transport is None or self.stalls.watches(transport)
        if transport is not None and not watched and unacknowledged(transport) > 0:
            self.watch(transport, stalled, app=app, passing=True)

    def keep_app_alive(self, transport: asyncio.Transport | None) -> None:
        """Have the kernel find out when an app's host vanishes."""
        if transport is not None:
            keep_alive(transport, stall_seconds=self.limits.app_write_stall_seconds)

    def watches(self, transport: asyncio.Transport) -> bool:
        """Say whether *transport* is watched for a stall."""
        return self.stalls.watches(transport)

    def forget(self, transport: asyncio.Transport | None) -> None:
        """Watch *transport* no more, for whatever it was watched: most never were."""
        if transport in self.stalls.watched:
            self.stalls.forget(transport)
        if transport in self.hangups.left:
            self.hangups.forget(transport)

    def shut_down(self) -> None:
        """Abort what was to be aborted later, and watch nothing any more."""
        self.deferred.close()
        self.stalls.close()
        self.hangups.close()


class SilentClose:
    """Aborts a TLS connection that is being closed, once its peer has all but our last word.

    Both sides say that they have ended, and whoever said so first need not wait for the other (RFC
    8446, section 6.1). Loops do wait, and a peer that is still reading when their time is over
    loses the rest. Here their time is long, and looks at the kernel say which of the two it is.
    A peer that takes nothing is found by :class:`.stalls.StallWatch`.
    """

    __slots__ = ("_left", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._left = -1

    def look_later(self) -> None:
        """Look after a moment: most peers have closed by then."""
        self._loop.call_later(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        left = unacknowledged(self._transport)
        if left < 0:
            return
        before, self._left = self._left, left
        if is_last_word(before, left) and not self._transport.get_write_buffer_size():
            # Twice, since a transport may have been about to write.
            self._transport.abort()
        else:
            self.look_later()


def is_last_word(*held: int) -> bool:
    """Say whether the kernel held no more than our last word at each of these looks."""
    return all(0 <= one <= _LITTLE_BYTES for one in held)
