"""The downstream side of desktops and terminals: a WebSocket whose frames we parse.

This module moves bytes and controls the flow; :mod:`.downstream_frames` parses them and pings. The
upstream side is in :mod:`gateway.relay.bridge.upstream_connections`.

States of a bridge::

    DIALLING ──opened──▶ OPEN ──end, close, lost──▶ CLOSING ──▶ gone
        └──refused, end: an HTTP response, or a Close──▶┘

A browser opens only one WebSocket to an address at a time, and all sessions have the same address
(RFC 6455, section 4.1, requirement 2). A slow upstream would therefore delay the browser's other
sessions. So the pages request that the upgrade is accepted after ``ANSWER_SECONDS``, even if the
upstream is not connected. Other clients are answered when it is connected, or get an error status.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from enum import Enum
from functools import partial
from typing import ClassVar, Final, cast

from websockets.frames import Frame

from gateway.core.access.access_right import OVERLOADED, AccessRight, EndReason
from gateway.core.access.refusals import CLOSE_SERVICE_RESTART, REFUSALS, write_response
from gateway.core.frames import take_messages
from gateway.relay.background_tasks import Cancellable
from gateway.relay.bridge.buffers import InputBuffer
from gateway.relay.bridge.downstream_frames import DownstreamFrames, Keepalive, binary_header
from gateway.relay.bridge.upstream_connections import BridgeUpstream
from gateway.relay.context import UpgradeRequest
from gateway.relay.dial import DialFailed
from gateway.relay.ending.closer import Lingering
from gateway.relay.transports import pause_reading, reset, resume_reading, waiting_bytes

ANSWER_SECONDS: Final = 1.0
"""The time for the upstream to connect or refuse; a later refusal is sent as a Close."""
ANSWER_SOON: Final = b"answer=soon"
"""The query parameter of ``/.fumarole/connect`` that requests this; it is not sent to the hub."""


class BridgeState(Enum):
    """The state of a bridge."""

    DIALLING = "dialling"
    OPEN = "open"
    CLOSING = "closing"


# Looking up an enumeration member takes time on each read.
_DIALLING: Final = BridgeState.DIALLING
_OPEN: Final = BridgeState.OPEN


class WebSocketBridge(asyncio.Protocol):
    """The downstream side; a subclass connects it to an upstream connection.

    A subclass implements :meth:`connect`, which sets :attr:`upstream`, :meth:`received_text` and
    :meth:`received_bytes`. It calls :meth:`send`, :meth:`close` and :meth:`upstream_lost`. The
    bridge is registered as long as it has the transport.
    """

    subprotocol: ClassVar[str]

    def __init__(self, request: UpgradeRequest) -> None:
        self.request = request
        self.context = request.context
        self.kind = str(request.access_right.route.kind)
        self.access_right: AccessRight = request.access_right
        """The right by which this connection exists."""
        self.transport: asyncio.Transport | None = None
        self.traffic = (
            self.context.meters.vnc if self.kind == "vnc" else self.context.meters.terminal
        )
        self._activity = self.access_right.activity
        self.state = BridgeState.DIALLING
        self.upstream: BridgeUpstream | None = None
        """The upstream connection, once there is one."""
        self.writable = True
        self._frames = DownstreamFrames(self, subprotocol=self.subprotocol)
        self._input = InputBuffer(self, request.context.turns)
        self._keepalive = Keepalive(self._ping)
        self._answered = False
        """Whether the upgrade was accepted or refused."""
        self._early = b""
        self._closed_early: tuple[int, str] | None = None
        self._task: Cancellable | None = None
        self._timer: asyncio.TimerHandle | None = None
        """Accepts the upgrade early; once the bridge is open, a deadline of the subclass."""
        self._upstream_full = False
        self.has_more = False
        """Whether :meth:`received_bytes`, called without bytes, would continue."""
        self._yields_turn = False
        self._watches = False
        """Whether a hang-up of the browser is watched for."""

    @property
    def is_open(self) -> bool:
        """Whether messages can be sent."""
        return self.state is BridgeState.OPEN

    # Provided by a subclass

    @abstractmethod
    async def connect(self) -> None:
        """Return once the upstream is connected, so that the upgrade may be accepted.

        Raises:
            DialFailed: If it cannot be connected.
        """

    @abstractmethod
    def received_text(self, frame: Frame) -> None:
        """Process a frame of a text message from the browser."""

    @abstractmethod
    def received_bytes(self, data: bytes) -> None:
        """Process the bytes of binary messages from the browser, several of them joined."""

    @property
    def upstream_has_pending(self) -> bool:
        """Whether bytes from the job's side are left for a later turn."""
        return False

    # Events of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Dial, unless a refusal is certain."""
        # uvloop's transports have the interface but not the base class.
        self.transport = cast(asyncio.Transport, transport)
        self.context.live.add(self)
        self._activity = self.access_right.activity  # which the registry has given it
        self.transport.set_write_buffer_limits(high=self.context.limits.write_high_bytes)
        self.context.closer.rely_on_loop(self.transport, self._browser_left)
        if self.subprotocol not in self.request.protocols:
            self.refuse("bad_upgrade")
        elif not self.context.holder.dialling:
            self.refuse("controller_silent")
        else:
            self._task = self.context.background_tasks.spawn_logged(
                self._dial(), failed=lambda: reset(self.transport)
            )
            if _wants_answer_soon(self.request.head):
                loop = asyncio.get_running_loop()
                self._timer = loop.call_later(ANSWER_SECONDS, self._answer)

    def data_received(self, data: bytes) -> None:
        """Process received bytes."""
        self.context.turns.read(self, data)

    def receive(self, data: bytes) -> None:
        """Process received bytes in this connection's turn."""
        self.traffic.up += len(data)
        self._activity.up += len(data)
        self._keepalive.has_heard = True
        if self.state is _DIALLING:
            self._buffer_early(data)
        else:
            self._input.feed(data)

    def step(self, data: bytes) -> int:
        """Process as much of *data* as one step allows; see :class:`InputBuffer`."""
        if self.state is not _OPEN:
            return self._discard(data)
        if self.has_more:
            self.received_bytes(b"")
            return 0
        if self._frames.between_messages:
            # User input (keys, pointers, update requests) consists of small messages, many at once:
            # they are passed on with one call and one write.
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
        """Close once the browser's Close was received: with TLS it waits for us to close."""
        if self._frames.close_has_come:
            self.context.closer.close(self.transport)

    # Reading from the browser. While it is paused for longer than a turn, hang-ups are watched for.

    @property
    def _early_full(self) -> bool:
        return len(self._early) > self.context.limits.early_bytes

    def sync_reading(self) -> None:
        """Read from the browser unless something prevents it."""
        if self._upstream_full or self._input.has_pending or self._early_full:
            pause_reading(self.transport)
            self._watch_hangups()
            return
        if self._watches:
            self._watches = False
            self.context.closer.rely_on_loop(self.transport, self._browser_left)
        if self._yields_turn:
            pause_reading(self.transport)
        else:
            resume_reading(self.transport)

    def _watch_hangups(self) -> None:
        if not self._watches and self.state is not BridgeState.CLOSING:
            self._watches = True
            self.context.closer.hangups.watch(self.transport, self._browser_left)

    def yield_turn(self) -> None:
        """Stop reading from the browser for a turn."""
        self._yields_turn = True
        self.sync_reading()

    def resume_turn(self) -> None:
        """Read from the browser again."""
        self._yields_turn = False
        self.sync_reading()

    def upstream_filled(self) -> None:
        """Stop reading from the browser: the upstream write buffer is full."""
        self._upstream_full = True
        if self.state is BridgeState.OPEN:
            self.sync_reading()

    def upstream_drained(self) -> None:
        """Read from the browser again."""
        self._upstream_full = False
        self.sync_reading()

    def check_stalls(self) -> None:
        """Watch each side for which the kernel holds unacknowledged bytes."""
        self.context.closer.watch_if_unacknowledged(self.transport)
        if self.upstream is not None:
            self.upstream.check_stalls()

    # Short of memory

    @property
    def client(self) -> str:
        """The user, or the key of the address without one."""
        return self.context.live.client_of(self.access_right)

    def buffered_bytes(self) -> int:
        """Return how many bytes wait for either side, or for the rest of a message."""
        waiting = len(self._early) + self._input.pending_bytes + self._frames.incomplete_bytes
        upstream = 0 if self.upstream is None else self.upstream.buffered_bytes()
        return waiting + waiting_bytes(self.transport) + upstream

    def shed(self) -> None:
        """End the connection to free memory."""
        if self.state is BridgeState.CLOSING:
            reset(self.transport)
        else:
            self.context.live.end((self,), OVERLOADED)

    def pause_writing(self) -> None:
        """Stop reading from the job's side; a browser that reads nothing for long is reset."""
        self.writable = False
        self._frames.output.held = True
        if self.state is BridgeState.OPEN:
            self.context.closer.watch_writes(self.transport)
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
        """Reset the connection: without a Close, the browser expects no more bytes."""
        self._browser_left()
        return False

    def _browser_left(self) -> None:
        if self.state is not BridgeState.CLOSING:
            reset(self.transport)

    def connection_lost(self, exc: Exception | None) -> None:
        """Release everything."""
        self.context.closer.forget(self.transport)
        self.transport = None
        self.context.live.discard(self)
        self._release()

    def _buffer_early(self, data: bytes) -> None:
        self._early += data
        if not self._early_full or self.transport is None:
            return
        if self._answered:
            self.sync_reading()
        else:
            # A client must not send before the upgrade is accepted.
            self.transport.abort()

    # Opening

    async def _dial(self) -> None:
        try:
            await self.connect()
        except DialFailed as failed:
            self.context.meters.upstream_failures[failed.code] += 1
            self.context.failures.note(self.access_right.sid, failed.code)
            self._task = None
            self.refuse(failed.code)
            return
        self._task = None
        if self.state is BridgeState.DIALLING:
            self._open()

    def _answer(self) -> None:
        """Accept the upgrade, once."""
        if self._answered or self.state is not BridgeState.DIALLING:
            return
        if self._frames.accept(self.request.head):
            self._answered = True
        else:
            # Admission has checked the head; if the library disagrees, the upgrade is refused.
            self.refuse("bad_upgrade")

    def _open(self) -> None:
        self._answer()
        if self.state is not BridgeState.DIALLING or self.transport is None:
            return
        self.state = BridgeState.OPEN
        self._stop_timers()
        self._keepalive.begin(self.transport)
        early, self._early = self._early, b""
        self.on_open()
        if self._closed_early is not None:
            self.close(*self._closed_early)
        if self.upstream is not None:
            self.upstream.sync_reading()
        if early:
            self._input.feed(early)
        self.sync_reading()

    def on_open(self) -> None:
        """Hook for subclasses: called first when the bridge opens."""

    def refuse(self, code: str) -> None:
        """Respond to the upgrade with a refusal, or send a Close if it was accepted."""
        if self.state is not BridgeState.DIALLING or self.transport is None:
            return
        refusal = REFUSALS[code]
        self.context.meters.refusals[refusal.code] += 1
        if self._answered:
            self._close(CLOSE_SERVICE_RESTART, refusal.message)
            return
        self.context.meters.own_answers[refusal.status // 100] += 1
        page = self.context.errors.render(refusal, b"")
        date = self.context.date.field()
        self.transport.write(write_response(refusal, page, close=True, date=date))
        self._linger()

    # Sending

    def send(self, data: bytes) -> None:
        """Send *data* as a binary message; no effect once the end has started."""
        if self.state is _OPEN and self.transport is not None:
            # Without the library, which would copy the data twice.
            size = len(data)
            self.traffic.down += size
            self._activity.down += size
            self.transport.writelines((binary_header(size), data))

    def note_input(self) -> None:
        """Record user input; for display only."""
        self._activity.input = True

    def send_frame(self, frame: Frame) -> None:
        """Forward a data frame of any kind."""
        if self.state is BridgeState.OPEN and self.transport is not None:
            size = len(frame.data)
            self.traffic.down += size
            self._activity.down += size
            self.transport.write(frame.serialize(mask=False))

    # Ending

    def end(self, ending: EndReason) -> None:
        """End the connection with a Close of *ending*'s code and reason; called at most once.

        From this call on no byte is relayed in either direction: input from the browser is
        discarded, and the upstream connection is aborted. A Close is written, and our side is shut
        down. The transport is aborted if the browser has not closed within 2 s, or if the Close is
        unsent after 250 ms.
        """
        if self.state is BridgeState.CLOSING:
            # It closes already. Last bytes that still wait here would reach a browser that reads
            # slowly; without any, the Close that was sent says more than a reset.
            if waiting_bytes(self.transport):
                reset(self.transport)
        elif self.state is BridgeState.DIALLING and not self._answered:
            self.refuse(ending.refusal)
        else:
            self.context.meters.ends[ending.close_code] += 1
            if self.upstream is not None:
                # Bytes waiting for the job's side are dropped.
                self.upstream.abort()
            self._close(ending.close_code, ending.close_reason, at_once=True)

    def close(self, code: int, reason: str) -> None:
        """Send a Close and nothing after it; a second call changes nothing.

        The upstream may accept and close before the browser's upgrade was accepted.
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

    def upstream_lost(self) -> None:
        """Close: the upstream connection was lost without a Close; reconnecting may help."""
        if self.state is BridgeState.DIALLING:
            self.refuse("app_unreachable")
        else:
            self.close(CLOSE_SERVICE_RESTART, "connection to the job lost")

    def _linger(self, *, at_once: bool = False) -> None:
        """Relay nothing more; close when the browser does, or soon (:class:`Lingering`).

        *at_once* is set if the right has ended: a browser that has not read our Close in time must
        not get the bytes before it either.
        """
        self.state = BridgeState.CLOSING
        self._detach_upstream()
        self._stop_timers()
        self._upstream_full = self._watches = self.has_more = False
        self._early = b""
        if self.transport is not None:
            self.context.closer.forget(self.transport)
            limits = self.context.limits
            Lingering(
                self.context.closer,
                self.transport,
                seconds=limits.linger_seconds,
                flush_seconds=limits.end_seconds if at_once else None,
                on_data=self._input.feed,
                on_closed=partial(self.connection_lost, None),
            )
            self.sync_reading()
            self._close_if_answered()

    def _detach_upstream(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
        if self.upstream is not None:
            self.upstream.close_gracefully()

    def _release(self) -> None:
        self.state = BridgeState.CLOSING
        self.has_more = False
        self._stop_timers()
        self._detach_upstream()

    # Keeping alive

    def _stop_timers(self) -> None:
        self._keepalive.stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _ping(self) -> None:
        if self.writable:
            self._frames.send_ping()
        if self.upstream is not None:
            self.upstream.ping()


def query_parts(head: bytes) -> list[bytes]:
    """Return the query parameters of an upgrade's *head*, at most the first sixteen."""
    target = head.split(b" ", 2)[1]
    return target.partition(b"?")[2].split(b"&", 16)[:16]


def _wants_answer_soon(head: bytes) -> bool:
    """Return whether the query of an upgrade's *head* requests acceptance without delay."""
    return ANSWER_SOON in query_parts(head)
