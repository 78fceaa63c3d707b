"""A WebSocket between a browser and an app: two transports spliced, and how it is ended.

Bytes are passed on as they come. Towards the browser the frame boundaries are followed, so that a
Close of ours can stand between two frames when the session or the grant ends.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Final

from gateway.core.frames import PING_FRAME, FrameTracker, close_frame
from gateway.relay.ending.lingering import Lingering
from gateway.relay.transports import pause_reading, reset, resume_reading
from gateway.relay.turns import FULL_READ

if TYPE_CHECKING:
    from gateway.core.access.access_right import AccessRight, ActivityCounter, EndReason
    from gateway.relay.context import Context
    from gateway.relay.meters import Traffic
    from gateway.relay.turns import Turns


_FIRST_CONTROL: Final = 0x8
"""Opcodes below are those of data (RFC 6455, section 5.2); reads begin with a frame, mostly."""


class TunnelPhase(IntEnum):
    """How far the end of a tunnel has come; each phase leads to later ones only."""

    OPEN = 0
    """Bytes pass both ways."""
    FINISHING = 1
    """To be ended, within a frame: the app may finish it. What the browser sends is discarded."""
    CLOSING = 2
    """Our Close is written, or one side has gone: nothing is written any more."""
    GONE = 3
    """The browser's connection is closed."""


_OPEN, _FINISHING, _CLOSING = TunnelPhase.OPEN, TunnelPhase.FINISHING, TunnelPhase.CLOSING
"""A member costs more to look up than all the rest of an end."""


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Tunnel(asyncio.Protocol):
    """The browser's side, and the owner of both.

    It is registered until the browser's connection is closed.
    """

    kind = "websocket"

    path: Context
    access_right: AccessRight
    browser: asyncio.Transport
    app: asyncio.Transport
    turns: Turns = field(init=False)
    traffic: Traffic = field(init=False)
    activity: ActivityCounter = field(init=False)
    """Where bytes are counted; its session's from :meth:`begin` on."""
    tracker: FrameTracker = field(init=False, default_factory=FrameTracker)
    phase: TunnelPhase = _OPEN
    browser_full: bool = False
    app_full: bool = False
    """Whether more waits to be sent to that side than may: then the other is not read."""
    backlog: bytes = b""
    """What came from the app in more frames than one turn can follow."""
    is_probed: bool = False
    """Whether the kernel looks for the app's host: most that were just opened soon close."""
    ending: EndReason | None = None
    timer: asyncio.TimerHandle | None = None
    tick: int = 0

    def __post_init__(self) -> None:
        self.turns = self.path.turns
        self.traffic = self.path.meters.websocket
        self.activity = self.access_right.activity

    def begin(self, *, from_browser: bytes, from_app: bytes) -> None:
        """Take both transports; the bytes came before it, and go first."""
        self.activity = self.access_right.activity
        self.browser.set_protocol(self)
        self.app.set_protocol(AppSide(self))
        self.path.meters.tunnels += 1
        if ping_seconds := self.path.parts.limits.web_ping_seconds:
            self.arm_ping(ping_seconds)
        self.path.ends.begin(self.browser, self._hung_up)
        for transport in (self.browser, self.app):
            if not transport.is_reading():
                resume_reading(transport)
        if from_app:
            self.from_app(from_app)
        if from_browser:
            self.app.write(from_browser)

    # Keeping alive, where the settings ask for it

    def arm_ping(self, seconds: float) -> None:
        """Have the wheel ask in so many seconds; 0 for never."""
        if seconds:
            self.path.wheel.arm(self, self.path.parts.loop.time() + seconds)

    def due(self, now: float) -> float:
        """Ping the browser, if the app is not within a frame; called by the wheel.

        Its Pong goes to the app, which has not asked for it and ignores it (RFC 6455, section
        5.5.3). A browser that does not read is not sent more.
        """
        if self.phase:
            return 0.0
        if not self.browser.get_write_buffer_size() and self.tracker.at_boundary:
            self.browser.write(PING_FRAME)
        return now + self.path.parts.limits.web_ping_seconds

    def look_for_stalls(self) -> None:
        """Have both sides watched where the kernel holds something for them."""
        if self.phase <= _FINISHING:
            if not self.is_probed:
                self.is_probed = True
                self.path.ends.keep_app_alive(self.app)
            self.path.ends.look_at(self.browser)
            self.path.ends.look_at(self.app, self._app_stalled, app=True)

    # What the browser's transport calls

    def data_received(self, data: bytes) -> None:
        """Pass *data* on to the app, or discard it once the tunnel ends."""
        turns = self.turns
        if turns.crowded:
            turns.count_read(self)
        size = len(data)
        if size >= FULL_READ:  # nobody looks into it: less of it cannot take long
            turns.take(self, data)
        elif not self.phase:
            # As receive() does it, without the call: most messages are small.
            activity = self.activity
            self.traffic.up += size
            activity.up += size
            if not activity.input and data[0] & 0x0F < _FIRST_CONTROL:
                activity.input = True
            self.app.write(data)

    def receive(self, data: bytes) -> None:
        """Pass *data* on to the app, or discard it once the tunnel ends."""
        if not self.phase:
            self.traffic.up += len(data)
            self.activity.up += len(data)
            if data[0] & 0x0F < _FIRST_CONTROL:
                self.activity.input = True
            self.app.write(data)

    def pause_for_others(self) -> None:
        """Stop reading from the browser for a turn."""
        pause_reading(self.browser)

    def resume_after_others(self) -> None:
        """Read from the browser again, unless the app is full."""
        if not self.app_full:
            resume_reading(self.browser)

    def eof_received(self) -> bool:
        """The browser has left: a WebSocket is of no use with one direction.

        What was written to it has two seconds to be taken.
        """
        self._browser_left()
        self.path.ends.close_within(self.browser, self.path.parts.limits.linger_seconds)
        return False

    def pause_writing(self) -> None:
        """Stop reading from the app; a browser that takes nothing for long is reset."""
        self.browser_full = True
        pause_reading(self.app)
        self.path.ends.writes_wait(self.browser, self.reset)

    def resume_writing(self) -> None:
        """Read from the app again."""
        self.browser_full = False
        if self.phase <= _FINISHING and not self.backlog:
            resume_reading(self.app)

    def connection_lost(self, exc: Exception | None) -> None:
        """Leave the registry, and close the app's side."""
        self.path.ends.forget(self.browser)
        if self.phase <= _FINISHING:
            self._browser_left()
        self._ask_no_more()
        self._gone()

    # What the app's side calls

    def from_app(self, data: bytes) -> None:
        """Pass *data* on to the browser, as far as it may still go."""
        if self.backlog:
            self.backlog += data
        elif not self.phase:
            followed = self.tracker.feed(data)
            self.traffic.down += followed
            self.activity.down += followed
            if followed == len(data):
                self.browser.write(data)
            else:
                self.browser.write(data[:followed])
                self._follow_later(data[followed:])
        elif self.phase is _FINISHING:
            self._finish(data)

    def app_left(self) -> None:
        """Close the browser's side after what was written; within a frame it is reset."""
        self.path.ends.forget(self.app)
        if self.phase is _FINISHING:
            self.reset()
        elif self.phase is _OPEN:
            self.phase = _CLOSING
            while self.backlog:
                backlog, self.backlog = self.backlog, b""
                self.traffic.down += len(backlog)
                self.browser.write(backlog)
            self.path.ends.close(self.browser)

    def set_app_full(self, full: bool) -> None:
        """Stop reading from the browser while the app takes nothing, or read again."""
        self.app_full = full
        if self.phase:
            return
        ends = self.path.ends
        if full:
            pause_reading(self.browser)
            ends.writes_wait(self.app, self._app_stalled, app=True)
            # Not read, it could leave unseen.
            ends.hangups.watch(self.browser, self._hung_up)
        else:
            ends.seen_by_loop(self.browser, self._hung_up)
            resume_reading(self.browser)

    def _follow_later(self, backlog: bytes) -> None:
        self.backlog = backlog
        pause_reading(self.app)
        self.turns.defer(self._follow_on)

    def _follow_on(self) -> None:
        backlog, self.backlog = self.backlog, b""
        if backlog and self.phase <= _FINISHING:
            self.from_app(backlog)
        if not self.backlog and not self.browser_full and self.phase <= _FINISHING:
            resume_reading(self.app)

    # Ending

    def _hung_up(self) -> None:
        """The browser has left, and the loop did not tell."""
        if self.phase <= _FINISHING:
            self._browser_left()
            self.browser.abort()

    def _browser_left(self) -> None:
        """Close the app's side; what was written to it has two seconds to go out."""
        phase, self.phase = self.phase, max(self.phase, _CLOSING)
        self._ask_no_more()
        if phase is _FINISHING:
            # It was to be ended: what waits for the app is not sent any more.
            self.app.abort()
        elif phase is _OPEN:
            self.path.ends.close_within(self.app, self.path.parts.limits.linger_seconds)

    def _app_stalled(self) -> None:
        """The app takes nothing of what the browser has sent."""
        self.path.meters.upstream_failures["app_timeout"] += 1
        self.app_left()
        reset(self.app)

    def _gone(self) -> None:
        self.phase = TunnelPhase.GONE
        self.path.parts.live.discard(self)

    def end(self, ending: EndReason) -> None:
        """End the tunnel: from now on nothing passes but the frame that is under way.

        The browser sees *ending*'s code when the app is, or soon gets, at the end of a frame;
        otherwise the connection is reset, which it sees as 1006.
        """
        if self.phase:
            # One side has gone, and what was written to the other is on its way.
            self.reset()
            return
        self.path.meters.ends[ending.close_code] += 1
        self.ending = ending
        self.path.ends.hangups.forget(self.browser)
        resume_reading(self.browser)
        if self.tracker.at_boundary:
            self._say_close()
            return
        self.phase = _FINISHING
        self._set_timer(self.path.parts.limits.frame_seconds)
        self._check_length()
        if self.backlog:
            self._follow_on()

    def _finish(self, data: bytes) -> None:
        taken = self.tracker.feed_to_boundary(data)
        self.traffic.down += taken
        self.browser.write(data[:taken])
        if self.tracker.at_boundary:
            self._say_close()
        else:
            self._check_length()

    def _check_length(self) -> None:
        if self.tracker.remaining > self.path.parts.limits.frame_bytes:
            self.reset()

    def _say_close(self) -> None:
        self.phase = _CLOSING
        self._ask_no_more()
        ending = self.ending
        if ending is None or self.browser.is_closing():
            self.reset()
            return
        ends, limits = self.path.ends, self.path.parts.limits
        ends.stalls.forget(self.app)
        ends.deferred.add(self.app)
        ends.stalls.forget(self.browser)
        self.browser.write(close_frame(ending.close_code, ending.close_reason))
        # A browser that has not taken our Close by now must not get what stands before it either.
        Lingering(
            ends,
            self.browser,
            seconds=limits.linger_seconds,
            written_seconds=limits.end_seconds,
            gone=self._gone,
        )

    def reset(self) -> None:
        """Reset both connections, whatever is still buffered."""
        self.phase = max(self.phase, _CLOSING)
        self._set_timer(None)
        self.app.abort()
        reset(self.browser)

    def _ask_no_more(self) -> None:
        if self.timer is not None:
            self._set_timer(None)
        if self.tick:
            self.path.wheel.disarm(self)

    def _set_timer(self, seconds: float | None) -> None:
        """Reset both sides in so many seconds; None for not at all."""
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if seconds is not None:
            self.timer = self.path.parts.loop.call_later(seconds, self.reset)


class AppSide(asyncio.Protocol):
    """The app's side: passes everything to the tunnel."""

    __slots__ = ("tunnel",)

    def __init__(self, tunnel: Tunnel) -> None:
        self.tunnel = tunnel

    def data_received(self, data: bytes) -> None:
        """Pass *data* on."""
        tunnel = self.tunnel
        turns = tunnel.turns
        if turns.crowded:
            turns.count_read(self)
        size = len(data)
        if size >= FULL_READ:
            turns.take(self, data)
        elif (
            2 <= size == data[1] + 2 < 128
            and not (tunnel.tracker.remaining or tunnel.tracker.header or tunnel.backlog)
            and not tunnel.phase
        ):
            # One small frame between others, without a mask, as most of an app's messages are:
            # as from_app() does it, without the calls. Where the frames end stays the same.
            tunnel.traffic.down += size
            tunnel.activity.down += size
            tunnel.browser.write(data)
        else:  # few of its frames are followed now
            tunnel.from_app(data)

    def receive(self, data: bytes) -> None:
        """Pass *data* on."""
        self.tunnel.from_app(data)

    def pause_for_others(self) -> None:
        """Stop reading from the app for a turn."""
        pause_reading(self.tunnel.app)

    def resume_after_others(self) -> None:
        """Read from the app again, unless the browser is full, or has enough of it to follow."""
        tunnel = self.tunnel
        if tunnel.phase <= _FINISHING and not tunnel.browser_full and not tunnel.backlog:
            resume_reading(tunnel.app)

    def eof_received(self) -> bool:
        """The app has left; what it has said goes out."""
        self.tunnel.app_left()
        return False

    def pause_writing(self) -> None:
        """Stop reading from the browser."""
        self.tunnel.set_app_full(True)

    def resume_writing(self) -> None:
        """Read from the browser again."""
        self.tunnel.set_app_full(False)

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass it on."""
        self.tunnel.app_left()
