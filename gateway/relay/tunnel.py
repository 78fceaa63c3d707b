"""A WebSocket tunnel between a browser and an app: two spliced transports, and how it ends.

Bytes are relayed as received. Towards the browser the frame boundaries are followed, so that the
gateway can send a Close between two frames when the session or the grant ends.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from gateway.core.access.access_right import OVERLOADED, AccessRight, ActivityCounter, EndReason
from gateway.core.frames import PING_FRAME, FrameTracker, close_frame
from gateway.relay.context import Context
from gateway.relay.ending.closer import Lingering
from gateway.relay.meters import Traffic
from gateway.relay.transports import (
    LARGE_BYTES,
    pause_reading,
    reset,
    resume_reading,
    waiting_bytes,
    write_large,
)
from gateway.relay.turns import FULL_READ, Backlog, Turns

_FIRST_CONTROL: Final = 0x8
"""Lower opcodes are those of data frames (RFC 6455, section 5.2); a read usually starts with a
frame."""


class TunnelPhase(IntEnum):
    """How far the end of a tunnel has come; phases only advance."""

    OPEN = 0
    """Bytes are relayed both ways."""
    FINISHING = 1
    """The tunnel ends within a frame: the app may complete it; bytes from the browser are
    discarded."""
    CLOSING = 2
    """Our Close is written, or one side has closed: nothing more is written."""

    CLOSED = 3
    """The downstream connection is closed."""


_OPEN, _FINISHING, _CLOSING = TunnelPhase.OPEN, TunnelPhase.FINISHING, TunnelPhase.CLOSING
"""Looking up an enumeration member costs more than the rest of an end."""


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Tunnel(asyncio.Protocol):
    """The downstream side of a tunnel, and the owner of both sides.

    It is registered until the downstream connection is closed.
    """

    kind = "websocket"

    context: Context
    access_right: AccessRight
    browser: asyncio.Transport
    app: asyncio.Transport
    turns: Turns = field(init=False)
    traffic: Traffic = field(init=False)
    activity: ActivityCounter = field(init=False)
    """The byte counters of the session."""
    tracker: FrameTracker = field(init=False, default_factory=FrameTracker)
    phase: TunnelPhase = _OPEN
    browser_full: bool = False
    app_full: bool = False
    """Whether that side's write buffer is above its high-water mark: then the other side is not
    read."""
    unsent: Backlog | None = None
    """The rest of a full read from the browser, until it was written: the browser is not read."""
    backlog: Backlog | None = None
    """The rest of a read from the app with more frames than one turn can follow."""
    is_probed: bool = False
    """Whether keep-alive is enabled towards the app: most tunnels that were just opened soon
    close."""
    ending: EndReason | None = None
    timer: asyncio.TimerHandle | None = None
    tick: int = 0

    def __post_init__(self) -> None:
        self.turns = self.context.turns
        self.traffic = self.context.meters.websocket
        self.activity = self.access_right.activity

    def start(self, *, browser_data: bytes, app_data: bytes) -> None:
        """Take both transports; the given bytes were received earlier and are relayed first."""
        self.browser.set_protocol(self)
        self.app.set_protocol(TunnelUpstream(self))
        self.context.meters.tunnels += 1
        if seconds := self.context.limits.web_ping_seconds:
            self.context.wheel.arm(self, self.context.loop.time() + seconds)
        self.context.closer.watch_tls_fin(self.browser, self._hung_up)
        for transport in (self.browser, self.app):
            if not transport.is_reading():
                resume_reading(transport)
        if app_data:
            self.app_data_received(app_data)
        if browser_data:
            self.app.write(browser_data)

    def due(self, now: float) -> float:
        """Ping the browser, unless the app is within a frame; called by the wheel if enabled.

        The Pong reaches the app, which did not ask for it and ignores it (RFC 6455, section 5.5.3).
        A browser that does not read gets no ping.
        """
        if self.phase:
            return 0.0
        if not self.browser.get_write_buffer_size() and self.tracker.at_boundary:
            self.browser.write(PING_FRAME)
        return now + self.context.limits.web_ping_seconds

    def check_stalls(self) -> None:
        """Watch each side for which the kernel holds unacknowledged bytes."""
        if self.phase <= _FINISHING:
            if not self.is_probed:
                self.is_probed = True
                self.context.closer.enable_keepalive(self.app)
            self.context.closer.watch_if_unacknowledged(self.browser)
            self.context.closer.watch_if_unacknowledged(self.app, self._app_stalled, app=True)

    # Short of memory

    @property
    def client(self) -> str:
        """The user, or the key of the address without one."""
        return self.context.live.client_of(self.access_right)

    def buffered_bytes(self) -> int:
        """Return how many bytes wait for either side."""
        waiting = sum(one.left for one in (self.backlog, self.unsent) if one is not None)
        return waiting + waiting_bytes(self.browser) + waiting_bytes(self.app)

    def shed(self) -> None:
        """End the tunnel to free memory."""
        if self.phase:
            self.reset()
        else:
            self.context.live.end((self,), OVERLOADED)

    # Events of the downstream transport

    def data_received(self, data: bytes) -> None:
        """Relay *data* to the app, or discard it once the tunnel ends."""
        turns = self.turns
        if turns.crowded:
            turns.count_read(self)
        size = len(data)
        if size >= FULL_READ or self.unsent is not None:
            # The content is not parsed, so that a smaller read takes little time.
            turns.run(self, data)
        elif not self.phase:
            # The same as receive(), without the call: most messages are small.
            activity = self.activity
            self.traffic.up += size
            activity.up += size
            if not activity.input and data[0] & 0x0F < _FIRST_CONTROL:
                activity.input = True
            if size > LARGE_BYTES:
                write_large(self.app, data)
            else:
                self.app.write(data)

    def receive(self, data: bytes) -> None:
        """Relay *data*, a full read, to the app in several turns; discard it once the tunnel ends.

        A loop may read once more after a pause.
        """
        if self.phase:
            return
        if self.unsent is not None:
            self.unsent.add(data)
            return
        if data[0] & 0x0F < _FIRST_CONTROL:
            self.activity.input = True
        self.unsent = Backlog(data)
        pause_reading(self.browser)
        self._send_unsent()

    def _send_unsent(self) -> None:
        """Write a portion of what the browser has sent, and read again after the last one."""
        if self.phase or self.unsent is None:
            return
        portion = self.unsent.portion()
        self._write_to_app(portion)
        if self.unsent.advance(len(portion)):
            self.turns.defer(self._send_unsent)
        else:
            self.unsent = None
            self.resume_turn()

    def _write_to_app(self, data: bytes) -> None:
        size = len(data)
        self.traffic.up += size
        self.activity.up += size
        if size > LARGE_BYTES:
            write_large(self.app, data)
        else:
            self.app.write(data)

    def yield_turn(self) -> None:
        """Stop reading from the browser for a turn."""
        pause_reading(self.browser)

    def resume_turn(self) -> None:
        """Read from the browser again, unless the app's write buffer is full or bytes wait."""
        if not self.app_full and self.unsent is None:
            resume_reading(self.browser)

    def eof_received(self) -> bool:
        """Close both sides: the browser has left, and a WebSocket needs both directions.

        What was written to the browser has two seconds to be sent.
        """
        self._browser_left()
        self.context.closer.close_within(self.browser, self.context.limits.linger_seconds)
        return False

    def pause_writing(self) -> None:
        """Stop reading from the app; a browser that reads nothing for long is reset."""
        self.browser_full = True
        pause_reading(self.app)
        self.context.closer.watch_writes(self.browser, self.reset)

    def resume_writing(self) -> None:
        """Read from the app again."""
        self.browser_full = False
        if self.phase <= _FINISHING and self.backlog is None:
            resume_reading(self.app)

    def connection_lost(self, exc: Exception | None) -> None:
        """Unregister the tunnel and close the upstream side."""
        self.context.closer.forget(self.browser)
        if self.phase <= _FINISHING:
            self._browser_left()
        self._cancel_timers()
        self._gone()

    # Events of the upstream side

    def app_data_received(self, data: bytes) -> None:
        """Relay *data* to the browser, as far as that is still allowed."""
        if self.backlog is not None:
            self.backlog.add(data)
        elif self.phase is _FINISHING:
            self._finish(data)
        elif not self.phase:
            followed = self._follow(data)
            if followed < len(data):
                self.backlog = Backlog(data, followed)
                pause_reading(self.app)
                self.turns.defer(self._follow_on)

    def _follow(self, data: bytes) -> int:
        """Write to the browser as many of *data*'s frames as one turn can follow."""
        followed = self.tracker.feed(data)
        self._write_to_browser(data if followed == len(data) else data[:followed])
        return followed

    def _write_to_browser(self, data: bytes) -> None:
        size = len(data)
        self.traffic.down += size
        self.activity.down += size
        if size > LARGE_BYTES:
            write_large(self.browser, data)
        else:
            self.browser.write(data)

    def app_closed(self) -> None:
        """Close the downstream side after what was written; within a frame it is reset."""
        self.context.closer.forget(self.app)
        if self.phase is _FINISHING:
            self.reset()
        elif self.phase is _OPEN:
            self.phase = _CLOSING
            backlog, self.backlog, self.unsent = self.backlog, None, None
            if backlog is not None:
                self._write_to_browser(backlog.rest())
            self.context.closer.close(self.browser)

    def set_app_full(self, full: bool) -> None:
        """Stop reading from the browser while the app's write buffer is full, or read again."""
        self.app_full = full
        if self.phase:
            return
        closer = self.context.closer
        if full:
            pause_reading(self.browser)
            closer.watch_writes(self.app, self._app_stalled, app=True)
            # While it is not read, the loop would not report that it leaves.
            closer.hangups.watch(self.browser, self._hung_up)
        else:
            closer.rely_on_loop(self.browser, self._hung_up)
            self.resume_turn()

    def _follow_on(self) -> None:
        """Pass on a portion of what the app has sent, and read again after the last one."""
        backlog = self.backlog
        if backlog is None or self.phase > _FINISHING:
            return
        if self.phase is _FINISHING:
            self.backlog = None
            self._finish(backlog.rest())
        elif backlog.advance(self._follow(backlog.portion())):
            self.turns.defer(self._follow_on)
            return
        else:
            self.backlog = None
        if not self.browser_full and self.phase <= _FINISHING:
            resume_reading(self.app)

    # Ending

    def _hung_up(self) -> None:
        """Close both sides: the browser has left, and the loop did not report it."""
        if self.phase <= _FINISHING:
            self._browser_left()
            self.browser.abort()

    def _browser_left(self) -> None:
        """Close the upstream side; what was written to it has two seconds to be sent."""
        phase, self.phase = self.phase, max(self.phase, _CLOSING)
        unsent, self.unsent = self.unsent, None
        self._cancel_timers()
        if phase is _FINISHING:
            # The tunnel is ending: bytes waiting for the app are dropped.
            self.app.abort()
        elif phase is _OPEN:
            if unsent is not None:
                self._write_to_app(unsent.rest())
            self.context.closer.close_within(self.app, self.context.limits.linger_seconds)

    def _app_stalled(self) -> None:
        """Close the tunnel: the app reads nothing of what the browser has sent."""
        self.context.meters.upstream_failures["app_timeout"] += 1
        self.app_closed()
        reset(self.app)

    def _gone(self) -> None:
        self.phase = TunnelPhase.CLOSED
        self.context.live.discard(self)

    def end(self, ending: EndReason) -> None:
        """End the tunnel: from now on only the current frame is completed.

        The browser gets *ending*'s code if the app is, or soon arrives, at the end of a frame.
        Otherwise the connection is reset, which the browser reports as 1006.
        """
        if self.phase:
            # One side has closed, and bytes to the other are in transit.
            self.reset()
            return
        self.context.meters.ends[ending.close_code] += 1
        self.ending = ending
        self.unsent = None
        self.context.closer.hangups.forget(self.browser)
        resume_reading(self.browser)
        if self.tracker.at_boundary:
            self._send_close()
            return
        self.phase = _FINISHING
        self._set_timer(self.context.limits.frame_seconds)
        self._check_length()
        self._follow_on()

    def _finish(self, data: bytes) -> None:
        taken = self.tracker.feed_to_boundary(data)
        self.traffic.down += taken
        self.browser.write(data[:taken])
        if self.tracker.at_boundary:
            self._send_close()
        else:
            self._check_length()

    def _check_length(self) -> None:
        if self.tracker.remaining > self.context.limits.frame_bytes:
            self.reset()

    def _send_close(self) -> None:
        self.phase = _CLOSING
        self._cancel_timers()
        ending = self.ending
        if ending is None or self.browser.is_closing():
            self.reset()
            return
        closer, limits = self.context.closer, self.context.limits
        closer.stalls.forget(self.app)
        closer.deferred.add(self.app)
        closer.stalls.forget(self.browser)
        self.browser.write(close_frame(ending.close_code, ending.close_reason))
        # A browser that has not read our Close by then must not get the bytes before it either.
        Lingering(
            closer,
            self.browser,
            seconds=limits.linger_seconds,
            flush_seconds=limits.end_seconds,
            on_closed=self._gone,
        )

    def reset(self) -> None:
        """Reset both connections and drop what is buffered."""
        self.phase = max(self.phase, _CLOSING)
        self._set_timer(None)
        self.app.abort()
        reset(self.browser)

    def _cancel_timers(self) -> None:
        if self.timer is not None:
            self._set_timer(None)
        if self.tick:
            self.context.wheel.disarm(self)

    def _set_timer(self, seconds: float | None) -> None:
        """Reset both sides in that many seconds; None for never."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if seconds is not None:
            self.timer = self.context.loop.call_later(seconds, self.reset)


class TunnelUpstream(asyncio.Protocol):
    """The upstream side: passes all events to the tunnel."""

    __slots__ = ("tunnel",)

    def __init__(self, tunnel: Tunnel) -> None:
        self.tunnel = tunnel

    def data_received(self, data: bytes) -> None:
        """Relay *data* to the browser."""
        tunnel = self.tunnel
        turns = tunnel.turns
        if turns.crowded:
            turns.count_read(self)
        size = len(data)
        if size >= FULL_READ:
            turns.run(self, data)
        elif (
            2 <= size == data[1] + 2 < 128
            and not (tunnel.tracker.remaining or tunnel.tracker.header or tunnel.backlog)
            and not tunnel.phase
        ):
            # One small unmasked frame at a boundary, the usual message of an app: the same as
            # app_data_received(), without the calls. The boundary stays a boundary.
            tunnel.traffic.down += size
            tunnel.activity.down += size
            tunnel.browser.write(data)
        else:  # a limited number of its frames is followed now
            tunnel.app_data_received(data)

    def receive(self, data: bytes) -> None:
        """Relay *data* to the browser."""
        self.tunnel.app_data_received(data)

    def yield_turn(self) -> None:
        """Stop reading from the app for a turn."""
        pause_reading(self.tunnel.app)

    def resume_turn(self) -> None:
        """Read from the app again, unless the browser's write buffer is full or a backlog waits."""
        tunnel = self.tunnel
        if tunnel.phase <= _FINISHING and not tunnel.browser_full and tunnel.backlog is None:
            resume_reading(tunnel.app)

    def eof_received(self) -> bool:
        """Close the tunnel: the app has closed; bytes received before are still sent."""
        self.tunnel.app_closed()
        return False

    def pause_writing(self) -> None:
        """Stop reading from the browser."""
        self.tunnel.set_app_full(True)

    def resume_writing(self) -> None:
        """Read from the browser again."""
        self.tunnel.set_app_full(False)

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the tunnel."""
        self.tunnel.app_closed()
