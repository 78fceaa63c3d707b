"""A WebSocket between a browser and an app: two transports spliced, and how it is ended.

Bytes are passed on as they come. Towards the browser the frame boundaries are followed, so that a
Close of ours can stand between two frames when the session or the grant ends.
"""

from __future__ import annotations

import asyncio
from enum import IntEnum
from functools import partial
from typing import TYPE_CHECKING

from gateway.core.frames import PING_FRAME, FrameTracker, close_frame
from gateway.relay.ending.closing import close
from gateway.relay.transports import pause_reading, reset, resume_reading, shut

if TYPE_CHECKING:
    from gateway.core.passage import Ending, Passage
    from gateway.relay.gateway import DataPath


class Phase(IntEnum):
    """How far the end of a tunnel has come; each phase leads to later ones only."""

    OPEN = 0
    """Bytes pass both ways."""
    FINISHING = 1
    """To be ended, within a frame: the app may finish it. What the browser sends is discarded."""
    CLOSING = 2
    """Our Close is written, or the other side has gone: nothing is written any more."""
    GONE = 3


class Tunnel(asyncio.Protocol):
    """The browser's side, and the owner of both."""

    kind = "websocket"

    __slots__ = (
        "app",
        "browser",
        "ending",
        "half_closed",
        "passage",
        "path",
        "phase",
        "tick",
        "timer",
        "tracker",
        "traffic",
    )

    def __init__(
        self,
        *,
        path: DataPath,
        passage: Passage,
        browser: asyncio.Transport,
        app: asyncio.Transport,
    ) -> None:
        self.path = path
        self.passage = passage
        self.browser = browser
        self.app = app
        self.tracker = FrameTracker()
        self.traffic = path.meters.websocket
        self.phase = Phase.OPEN
        self.half_closed = False
        self.ending: Ending | None = None
        self.timer: asyncio.TimerHandle | None = None
        self.tick = 0

    @classmethod
    def splice(
        cls,
        *,
        path: DataPath,
        passage: Passage,
        browser: asyncio.Transport,
        app: asyncio.Transport,
        from_browser: bytes,
        from_app: bytes,
    ) -> None:
        """Make a tunnel of two transports; the bytes came before it, and go first."""
        tunnel = cls(path=path, passage=passage, browser=browser, app=app)
        browser.set_protocol(tunnel)
        app.set_protocol(AppSide(tunnel))
        path.meters.tunnels += 1
        path.parts.live.add(tunnel)
        tunnel.arm_ping(path.parts.limits.web_ping_seconds)
        resume_reading(browser)
        resume_reading(app)
        if from_app:
            tunnel.traffic.down += len(from_app)
            tunnel.tracker.feed(from_app)
            browser.write(from_app)
        if from_browser:
            app.write(from_browser)

    # Keeping alive, where the settings ask for it

    def arm_ping(self, seconds: float) -> None:
        """Have the wheel ask in so many seconds; 0 for never."""
        if seconds:
            self.path.wheel.arm(self, self.path.parts.loop.time() + seconds)

    def due(self, now: float) -> float:
        """Ping the browser, if the app is not within a frame; called by the wheel.

        Its Pong goes to the app, which has not asked for it and ignores it (RFC 6455, section
        5.5.3). Who does not read is not sent more.
        """
        if self.phase:
            return 0.0
        idle = not self.browser.get_write_buffer_size()
        if idle and self.tracker.at_boundary and not self.half_closed:
            self.browser.write(PING_FRAME)
        return now + self.path.parts.limits.web_ping_seconds

    # What the browser's transport calls

    def data_received(self, data: bytes) -> None:
        """Pass *data* on to the app, or discard it once the tunnel ends."""
        if not self.phase:
            self.traffic.up += len(data)
            self.app.write(data)

    def eof_received(self) -> bool:
        """Shut our side towards the app; what it still sends goes on."""
        return self._ended(self.app)

    def pause_writing(self) -> None:
        """Hold the app back."""
        pause_reading(self.app)

    def resume_writing(self) -> None:
        """Let the app go on."""
        if self.phase <= Phase.FINISHING:
            resume_reading(self.app)

    def connection_lost(self, exc: Exception | None) -> None:
        """Close the app's side."""
        self._over(self.app)

    # What the app's side calls

    def from_app(self, data: bytes) -> None:
        """Pass *data* on to the browser, as far as it may still go."""
        if not self.phase:
            self.traffic.down += len(data)
            self.tracker.feed(data)
            self.browser.write(data)
        elif self.phase is Phase.FINISHING:
            self._finish(data)

    def app_ended(self) -> bool:
        """Shut our side towards the browser; what it still sends goes on."""
        return self._ended(self.browser)

    def app_lost(self) -> None:
        """Close the browser's side after what was written; within a frame it is reset."""
        if self.phase is Phase.FINISHING:
            self.reset()
        elif self.phase is Phase.OPEN:
            self._over(self.browser)

    def _ended(self, other: asyncio.Transport) -> bool:
        """One side has ended; say whether it stays open for what the *other* still sends."""
        if self.phase:
            return False
        if self.browser.can_write_eof() and self.app.can_write_eof():
            self._half_close(other)
            return True
        # TLS closes with the first that ends, after what it holds: nothing is added to that.
        self._over(other)
        return False

    def _half_close(self, other: asyncio.Transport) -> None:
        if self.half_closed:
            # Both have ended: what was written goes out, and that is all.
            self.phase = Phase.CLOSING
            close(self.browser)
            close(self.app)
            return
        self.half_closed = True
        shut(other)
        # A WebSocket is of no use with one direction: whoever does not notice is not waited for.
        self._set_timer(self.path.parts.limits.idle_seconds, self.reset)

    def _over(self, other: asyncio.Transport) -> None:
        """One side is gone: flush and close the *other*, and leave the registry."""
        if self.phase is Phase.GONE:
            return
        phase, self.phase = self.phase, Phase.GONE
        self.path.parts.live.discard(self)
        self.path.wheel.disarm(self)
        self._set_timer(None)
        if phase is Phase.FINISHING:
            # It was to be ended: what waits for the app is not sent any more.
            other.abort()
        if phase or other.is_closing():
            return
        if other.get_write_buffer_size():
            loop = self.path.parts.loop
            self.timer = loop.call_later(self.path.parts.limits.idle_seconds, reset, other)
        close(other)

    # Ending

    def end(self, ending: Ending) -> None:
        """End the tunnel: from now on nothing passes but the frame that is under way.

        The browser sees *ending*'s code when the app is, or soon gets, at the end of a frame;
        otherwise the connection is reset, which it sees as 1006.
        """
        if self.phase:
            return
        self.path.meters.ends[ending.close_code] += 1
        self.ending = ending
        resume_reading(self.browser)
        if self.tracker.at_boundary:
            self._say_close()
            return
        self.phase = Phase.FINISHING
        self._set_timer(self.path.parts.limits.frame_seconds, self.reset)
        self._check_length()

    def _finish(self, data: bytes) -> None:
        taken = self.tracker.feed_to_boundary(data)
        self.traffic.down += taken
        self.browser.write(data[:taken])
        if self.tracker.at_boundary:
            self._say_close()
        else:
            self._check_length()

    def _check_length(self) -> None:
        if self.tracker.left > self.path.parts.limits.frame_bytes:
            self.reset()

    def _say_close(self) -> None:
        self.phase = Phase.CLOSING
        self._set_timer(None)
        ending = self.ending
        if ending is None or self.half_closed or self.browser.is_closing():
            self.reset()
            return
        self.path.deferred.add(self.app)
        self.browser.write(close_frame(ending.close_code, ending.close_reason))
        shut(self.browser)
        self._set_timer(self.path.parts.limits.end_seconds, self._unwritten)

    def _unwritten(self) -> None:
        # Whoever has not taken our Close by now must not get what is buffered before it either.
        if self.browser.get_write_buffer_size():
            self.reset()
            return
        limits = self.path.parts.limits
        self._set_timer(limits.linger_seconds - limits.end_seconds, partial(close, self.browser))

    def reset(self) -> None:
        """Reset both connections, whatever is still buffered."""
        self.phase = max(self.phase, Phase.CLOSING)
        self._set_timer(None)
        self.app.abort()
        reset(self.browser)

    def _set_timer(self, seconds: float | None, then: object = None) -> None:
        if self.timer is not None:
            self.timer.cancel()
            self.timer = None
        if seconds is not None and callable(then):
            self.timer = self.path.parts.loop.call_later(seconds, then)


class AppSide(asyncio.Protocol):
    """The app's side: passes everything to the tunnel."""

    __slots__ = ("tunnel",)

    def __init__(self, tunnel: Tunnel) -> None:
        self.tunnel = tunnel

    def data_received(self, data: bytes) -> None:
        """Pass *data* on."""
        self.tunnel.from_app(data)

    def eof_received(self) -> bool:
        """Pass it on."""
        return self.tunnel.app_ended()

    def pause_writing(self) -> None:
        """Hold the browser back, unless what it sends is discarded anyway."""
        if not self.tunnel.phase:
            pause_reading(self.tunnel.browser)

    def resume_writing(self) -> None:
        """Let the browser go on."""
        resume_reading(self.tunnel.browser)

    def connection_lost(self, exc: Exception | None) -> None:
        """Pass it on."""
        self.tunnel.app_lost()
