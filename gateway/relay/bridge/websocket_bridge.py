"""The browser's side of desktops and terminals: a WebSocket whose frames are ours.

What is here moves bytes, and knows when: :mod:`.downstream_frames` parses them, :mod:`.keepalive`
pings. The job's side stands in :mod:`gateway.relay.bridge.upstream_connections`.

States of a bridge::

    DIALLING ──opened──▶ OPEN ──end, close, lost──▶ CLOSING ──▶ gone
        └──refused, end: an HTTP answer, or a Close──▶┘

A browser opens one WebSocket to an address at a time, and all sessions are at one address
(RFC 6455, section 4.1, requirement 2). So the pages ask for an answer after ``ANSWER_SECONDS``,
whether or not what is behind is there: it would hold up the browser's other sessions. Whoever does
not ask is answered when it is there, or told by a status why it is not.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from enum import Enum
from functools import partial
from typing import ClassVar, Final, cast

from websockets.frames import Frame

from gateway.core.access.access_right import AccessRight, EndReason
from gateway.core.access.refusals import CLOSE_SERVICE_RESTART, REFUSALS, write_response
from gateway.core.frames import take_messages
from gateway.relay.background_tasks import Cancellable
from gateway.relay.bridge.downstream_frames import DownstreamFrames, binary_header
from gateway.relay.bridge.intake import Intake
from gateway.relay.bridge.keepalive import Keepalive
from gateway.relay.bridge.upstream_connections import BridgeUpstream
from gateway.relay.context import UpgradeRequest
from gateway.relay.dial import DialFailed
from gateway.relay.ending.lingering import Lingering
from gateway.relay.transports import pause_reading, reset, resume_reading
from gateway.relay.turns import SMALL_READ

ANSWER_SECONDS: Final = 1.0
"""For what is behind to be there, or to refuse: what comes later is told by a Close."""
ANSWER_SOON: Final = b"answer=soon"
"""By which a client of ``/.fumarole/connect`` asks for that; the hub is not told."""


class BridgeState(Enum):
    """Where a bridge stands."""

    DIALLING = "dialling"
    OPEN = "open"
    CLOSING = "closing"


# A member is looked up in its class each time: so much for each read is seen.
_DIALLING: Final = BridgeState.DIALLING
_OPEN: Final = BridgeState.OPEN


class WebSocketBridge(asyncio.Protocol):
    """The browser's side; a subclass connects it with something.

    It implements :meth:`connect`, which sets :attr:`upstream`, :meth:`received_text` and
    :meth:`received_bytes`, and calls :meth:`send`, :meth:`close` and :meth:`lost`. It is in the
    registry of open connections for as long as it has the transport.
    """

    subprotocol: ClassVar[str]

    def __init__(self, request: UpgradeRequest) -> None:
        self.request = request
        self.context = request.context
        self.parts = request.context.parts
        self.kind = str(request.access_right.route.kind)
        self.access_right: AccessRight = request.access_right
        """By which right this connection exists."""
        self.transport: asyncio.Transport | None = None
        self.traffic = self.parts.meters.traffic_of(self.kind)
        self._activity = self.access_right.activity
        self.state = BridgeState.DIALLING
        self.upstream: BridgeUpstream | None = None
        """What is behind, once there is something."""
        self.writable = True
        self._frames = DownstreamFrames(self, subprotocol=self.subprotocol)
        self._intake = Intake(self, request.context.turns)
        self._keepalive = Keepalive(self._ping)
        self._answered = False
        """Whether the upgrade was."""
        self._early = b""
        self._closed_early: tuple[int, str] | None = None
        self._task: Cancellable | None = None
        self._answer_timer: asyncio.TimerHandle | None = None
        self._upstream_full = False
        self.has_more = False
        """Whether :meth:`received_bytes`, called without bytes, would lead further."""
        self._yields = False
        self._watches = False
        """Whether it is watched for leaving."""

    @property
    def is_open(self) -> bool:
        """Whether messages can be sent."""
        return self.state is BridgeState.OPEN

    # What a subclass provides

    @abstractmethod
    async def connect(self) -> None:
        """Return once what is behind is there, so that the upgrade may be answered.

        Raises:
            DialFailed: If it cannot be.
        """

    @abstractmethod
    def received_text(self, frame: Frame) -> None:
        """Take a frame of a text message from the browser."""

    @abstractmethod
    def received_bytes(self, data: bytes) -> None:
        """Take the bytes of binary messages from the browser, several put together."""

    @property
    def upstream_waits(self) -> bool:
        """Whether what the job's side sent is left for a later turn."""
        return False

    # What the transport calls

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Dial, unless it is clear that nothing can come of it."""
        # uvloop's transports have the interface but not the base class.
        self.transport = cast(asyncio.Transport, transport)
        self.parts.live.add(self)
        self._activity = self.access_right.activity  # which the registry has given it
        self.transport.set_write_buffer_limits(high=self.parts.limits.write_high_bytes)
        self.context.ends.seen_by_loop(self.transport, self._left)
        if self.subprotocol not in self.request.protocols:
            self.refuse("bad_upgrade")
        elif not self.parts.world.dialling:
            self.refuse("controller_silent")
        else:
            self._task = self.parts.background_tasks.run(
                self._dial(), failed=lambda: reset(self.transport)
            )
            if _wants_answer_soon(self.request.head):
                loop = asyncio.get_running_loop()
                self._answer_timer = loop.call_later(ANSWER_SECONDS, self._answer)

    def data_received(self, data: bytes) -> None:
        """Take what the browser sent."""
        turns = self.context.turns
        if turns.crowded:
            turns.count_read(self)
        if len(data) < SMALL_READ:
            self.receive(data)
        else:
            turns.take(self, data)

    def receive(self, data: bytes) -> None:
        """Take what the browser sent, in its turn."""
        self.traffic.up += len(data)
        self._activity.up += len(data)
        self._keepalive.heard = True
        if self.state is _DIALLING:
            self._keep(data)
        else:
            self._intake.take(data)

    def step(self, data: bytes) -> int:
        """Take as much of *data* as one step allows; see :class:`Intake`."""
        if self.state is not _OPEN:
            return self._discard(data)
        if self.has_more:
            self.received_bytes(b"")
            return 0
        if self._frames.between_messages:
            # What people do (keys, pointers, requests for updates) comes as small messages, many
            # at once: one call and one write for all of them.
            messages, end = take_messages(data)
            if messages:
                self.received_bytes(messages[0] if len(messages) == 1 else b"".join(messages))
                return end
        taken = self._frames.parse(data)
        if not self._frames.is_open and self.state is _OPEN:
            self._linger()
        return taken

    def _discard(self, data: bytes) -> int:
        if self.transport is None:
            return len(data)
        taken = self._frames.discard(data)
        self._close_if_answered()
        return taken

    def _close_if_answered(self) -> None:
        """Close once the browser's Close has come: under TLS it waits for us to do so."""
        if self._frames.close_has_come:
            self.context.ends.close(self.transport)

    # When the browser is read. While it is not for longer than a turn, it is watched for leaving.

    def sync_reading(self) -> None:
        """Read from the browser unless something speaks against it."""
        if self._upstream_full or self._intake.waits:
            pause_reading(self.transport)
            self._watch_hangups()
            return
        if self._watches:
            self._watches = False
            self.context.ends.seen_by_loop(self.transport, self._left)
        if self._yields:
            pause_reading(self.transport)
        else:
            resume_reading(self.transport)

    def _watch_hangups(self) -> None:
        if not self._watches and self.state is not BridgeState.CLOSING:
            self._watches = True
            self.context.ends.hangups.watch(self.transport, self._left)

    def pause_for_others(self) -> None:
        """Stop reading from the browser for a turn."""
        self._yields = True
        self.sync_reading()

    def resume_after_others(self) -> None:
        """Read from the browser again."""
        self._yields = False
        self.sync_reading()

    def upstream_filled(self) -> None:
        """More waits for the job's side than may: stop reading from the browser."""
        self._upstream_full = True
        if self.state is BridgeState.OPEN:
            self.sync_reading()

    def upstream_drained(self) -> None:
        """Read from the browser again."""
        self._upstream_full = False
        self.sync_reading()

    def look_for_stalls(self) -> None:
        """Have both sides watched where the kernel holds something for them."""
        self.context.ends.look_at(self.transport)
        if self.upstream is not None:
            self.upstream.look_for_stalls()

    def pause_writing(self) -> None:
        """Stop reading from the job's side; a browser that takes nothing for long is reset."""
        self.writable = False
        self._frames.output.held = True
        if self.state is BridgeState.OPEN:
            self.context.ends.writes_wait(self.transport)
        if self.upstream is not None:
            self.upstream.sync_reading()

    def resume_writing(self) -> None:
        """Read from the job's side again."""
        self.writable = True
        if self.state is BridgeState.OPEN:
            self._frames.output.release(self.transport)
        if self.upstream is not None:
            self.upstream.sync_reading()

    def eof_received(self) -> bool:
        """The browser has left: without its Close nothing more is to come, or to be sent."""
        self._left()
        return False

    def _left(self) -> None:
        if self.state is not BridgeState.CLOSING:
            reset(self.transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Let go of everything."""
        self.context.ends.forget(self.transport)
        self.transport = None
        self.parts.live.discard(self)
        self._leave()

    def _keep(self, data: bytes) -> None:
        self._early += data
        if len(self._early) <= self.parts.limits.early_bytes or self.transport is None:
            return
        if self._answered:
            pause_reading(self.transport)
            self._watch_hangups()
        else:
            # Nobody may send before the upgrade was answered.
            self.transport.abort()

    # Opening

    async def _dial(self) -> None:
        try:
            await self.connect()
        except DialFailed as failed:
            self.parts.meters.upstream_failures[failed.code] += 1
            if self.parts.failures is not None:
                self.parts.failures.note(self.access_right.sid, failed.code)
            self._task = None
            self.refuse(failed.code)
            return
        self._task = None
        if self.state is BridgeState.DIALLING:
            self._open()

    def _answer(self) -> None:
        """Answer the upgrade, once."""
        if self._answered or self.state is not BridgeState.DIALLING:
            return
        if self._frames.accept(self.request.head):
            self._answered = True
        else:
            # Admission has checked the head; if the library disagrees, nobody gets in.
            self.refuse("bad_upgrade")

    def _open(self) -> None:
        self._answer()
        if self.state is not BridgeState.DIALLING or self.transport is None:
            return
        self.state = BridgeState.OPEN
        self._stop_timers()
        self._keepalive.begin(self.transport)
        early, self._early = self._early, b""
        self.opened()
        if self._closed_early is not None:
            self.close(*self._closed_early)
        if self.upstream is not None:
            self.upstream.sync_reading()
        if early:
            self._intake.take(early)
        self.sync_reading()

    def opened(self) -> None:
        """Do what is to be done first; for subclasses."""

    def refuse(self, code: str) -> None:
        """Answer the upgrade with a refusal, or close after it; the connection is closed then."""
        if self.state is not BridgeState.DIALLING or self.transport is None:
            return
        refusal = REFUSALS[code]
        self.parts.meters.refusals[refusal.code] += 1
        if self._answered:
            self._close(CLOSE_SERVICE_RESTART, refusal.message)
            return
        self.parts.meters.own_answers[refusal.status // 100] += 1
        page = self.parts.errors.render(refusal, b"")
        date = self.parts.date.field()
        self.transport.write(write_response(refusal, page, close=True, date=date))
        self._linger()

    # Sending

    def send(self, data: bytes) -> None:
        """Send *data* as a binary message; nothing, once the end has begun."""
        if self.state is _OPEN and self.transport is not None:
            # Not through the library: it would copy the data twice.
            size = len(data)
            self.traffic.down += size
            self._activity.down += size
            self.transport.writelines((binary_header(size), data))

    def note_input(self) -> None:
        """A person has done something: for display only."""
        self._activity.input = True

    def send_frame(self, frame: Frame) -> None:
        """Pass a data frame of any kind on."""
        if self.state is BridgeState.OPEN and self.transport is not None:
            size = len(frame.data)
            self.traffic.down += size
            self._activity.down += size
            self.transport.write(frame.serialize(mask=False))

    # Ending

    def end(self, ending: EndReason) -> None:
        """End the connection with a Close of *ending*'s code and reason; called at most once.

        From this call on no byte passes between browser and job in either direction: what still
        comes from the browser is read and thrown away, the upstream connection is aborted, a
        Close is written, our side is shut down, and the transport is aborted when the browser has
        not closed within 2 s, or when 250 ms after this call the Close is still unwritten.
        """
        if self.state is BridgeState.DIALLING and not self._answered:
            self.refuse(ending.refusal)
        else:
            self.parts.meters.ends[ending.close_code] += 1
            if self.upstream is not None:
                # What waits for the job's side is not sent any more.
                self.upstream.abort()
            self._close(ending.close_code, ending.close_reason, at_once=True)

    def close(self, code: int, reason: str) -> None:
        """Send a Close and nothing after it; calling this twice changes nothing.

        What is behind may accept and close at once, before the browser's upgrade was answered.
        """
        if self.state is BridgeState.DIALLING:
            self._closed_early = (code, reason)
        else:
            self._close(code, reason)

    def _close(self, code: int, reason: str, *, at_once: bool = False) -> None:
        if self.state is BridgeState.CLOSING:
            return
        self._frames.send_close(code, reason)
        self._linger(at_once=at_once)

    def lost(self) -> None:
        """What is behind is gone without a word; coming back may help."""
        if self.state is BridgeState.DIALLING:
            self.refuse("app_unreachable")
        else:
            self.close(CLOSE_SERVICE_RESTART, "connection to the job lost")

    def _linger(self, *, at_once: bool = False) -> None:
        """Pass nothing on any more; close when the browser does, or soon (:class:`Lingering`).

        *at_once*, its right has ended: a browser that has not taken our Close in time must not get
        what stands before it either.
        """
        self.state = BridgeState.CLOSING
        self._drop_upstream()
        self._stop_timers()
        self._upstream_full = self._watches = self.has_more = False
        if self.transport is not None:
            self.context.ends.forget(self.transport)
            limits = self.parts.limits
            Lingering(
                self.context.ends,
                self.transport,
                seconds=limits.linger_seconds,
                written_seconds=limits.end_seconds if at_once else None,
                discard=self._intake.take,
                gone=partial(self.connection_lost, None),
            )
            self.sync_reading()
            self._close_if_answered()

    def _drop_upstream(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        if self.upstream is not None:
            self.upstream.leave()

    def _leave(self) -> None:
        self.state = BridgeState.CLOSING
        self.has_more = False
        self._stop_timers()
        self._drop_upstream()

    # Keeping alive

    def _stop_timers(self) -> None:
        self._keepalive.stop()
        if self._answer_timer is not None:
            self._answer_timer.cancel()
            self._answer_timer = None

    def _ping(self) -> None:
        if self.writable:
            self._frames.send_ping()
        if self.upstream is not None:
            self.upstream.ping()


def query_parts(head: bytes) -> list[bytes]:
    """Return the parameters in the query of an upgrade's *head*, of many the first sixteen."""
    target = head.split(b" ", 2)[1]
    return target.partition(b"?")[2].split(b"&", 16)[:16]


def _wants_answer_soon(head: bytes) -> bool:
    """Say whether the query of an upgrade's *head* asks for an answer that waits for nobody."""
    return ANSWER_SOON in query_parts(head)
