"""Large bodies, whose rest the kernel moves from socket to socket (``splice(2)``).

Python does not see these bytes. The transports keep their sockets: the source's is paused, and the
sink's has an empty write buffer. A body that is handed back continues as any other.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import termios
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final

from gateway.core.access.access_right import ActivityCounter
from gateway.core.downstream.connection import Connection
from gateway.core.http.framing import LengthBody
from gateway.relay.context import Context
from gateway.relay.http.pipes import Pipe
from gateway.relay.http.upstream import UpstreamConnection
from gateway.relay.transports import descriptor_of, is_tls, pause_reading

_FLAGS: Final = os.SPLICE_F_NONBLOCK | os.SPLICE_F_MOVE
_ROUNDS: Final = 4
"""Full pipes moved in one turn of the loop: about a quarter of a millisecond."""


class SpliceState(IntEnum):
    """The state of a spliced body."""

    DRAINING = 0
    """Bytes of the body that were read before are still being written."""
    FLOWING = 1
    """Waits for the source; the pipe is empty, or there is none."""
    BLOCKED = 2
    """Waits for the sink; the pipe holds bytes."""
    OVER = 3
    """Nothing is moved any more."""


class SpliceEvent(IntEnum):
    """What happened to it, in the past tense."""

    DRAINED = 0
    """The sink's write buffer is empty."""
    BLOCKED = 1
    """The sink did not accept all bytes."""
    UNBLOCKED = 2
    """The sink has accepted the rest."""
    PASSED = 3
    """The sink has accepted the body's last byte."""
    HANDED_BACK = 4
    """There is no pipe, or the source has ended: the transports continue."""
    LOST = 5
    """A connection is closed, or its access right has ended."""


S, E = SpliceState, SpliceEvent

NEXT: Final[Mapping[tuple[SpliceState, SpliceEvent], SpliceState]] = {
    (S.DRAINING, E.DRAINED): S.FLOWING,
    (S.DRAINING, E.LOST): S.OVER,
    (S.FLOWING, E.BLOCKED): S.BLOCKED,
    (S.FLOWING, E.PASSED): S.OVER,
    (S.FLOWING, E.HANDED_BACK): S.OVER,
    (S.FLOWING, E.LOST): S.OVER,
    (S.BLOCKED, E.UNBLOCKED): S.FLOWING,
    (S.BLOCKED, E.PASSED): S.OVER,
    (S.BLOCKED, E.LOST): S.OVER,
}
"""The only source of state changes; an event that a state does not list is a bug of the gateway and
raises KeyError."""


def can_splice(transport: asyncio.Transport) -> bool:
    """Return whether the kernel can move bytes from and to *transport*."""
    return not (transport.is_closing() or is_tls(transport)) and descriptor_of(transport) >= 0


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Splice(ABC):
    """Moves *body* from *source* to *sink* by itself, for the state machine *connection*."""

    connection: Connection
    context: Context
    activity: ActivityCounter
    """Counts the bytes for the session."""
    body: LengthBody
    """Its remaining bytes are moved, and counted as the sink accepts them."""
    source: asyncio.Transport
    """A plain TCP transport that has delivered everything it read."""
    sink: asyncio.Transport
    """Another one; its write buffer is sent first."""
    in_pipe: int = 0
    """Bytes in the pipe."""
    state: SpliceState = SpliceState.DRAINING
    _from: int = field(init=False)
    _to: int = field(init=False)
    _pipe: Pipe | None = None

    def __post_init__(self) -> None:
        self._from, self._to = descriptor_of(self.source), descriptor_of(self.sink)
        pause_reading(self.source)

    @abstractmethod
    def count(self, size: int) -> None:
        """Count *size* bytes that were read from the source."""

    @abstractmethod
    def sink_blocked(self) -> None:
        """Watch the sink until the splice ends; it may block a thousand times."""

    @abstractmethod
    def finished(self) -> None:
        """Continue: the body is complete, or its rest is relayed as any other body."""

    @abstractmethod
    def sink_lost(self, error: OSError) -> None:
        """The sink accepts no more bytes."""

    # Called by the owner

    def begin(self) -> None:
        """Have the sink's write buffer sent first."""
        # A high-water mark of 0 makes it report when the buffer is empty, and pause at once if it
        # is not.
        self.sink.set_write_buffer_limits(high=0)
        if not self.sink.get_write_buffer_size():
            self.sink_drained()

    def sink_drained(self) -> None:
        """Start moving: the sink's transport has written everything."""
        if self.state is not SpliceState.DRAINING:
            return
        self.sink.set_write_buffer_limits(high=self.context.limits.write_high_bytes)
        self.state = NEXT[self.state, SpliceEvent.DRAINED]
        self.context.readiness.readable(self._from, self._flow)

    @property
    def blocked(self) -> bool:
        """Whether the sink is waited for."""
        return self.state is not SpliceState.FLOWING

    def stop(self) -> None:
        """Stop moving; bytes in the pipe are lost."""
        if self.state is not SpliceState.OVER:
            self._end(SpliceEvent.LOST)

    # Moving

    def _flow(self) -> None:
        """Move the source's bytes through a pipe that is empty before and after."""
        pipe = self.context.pipes.take()
        if pipe is None:
            self._hand_back()
            return
        self._pipe = pipe
        for _ in range(_ROUNDS):
            if not self._fill(pipe) or not self._empty(pipe):
                break
        if self._pipe is not None and not self.in_pipe:
            self._pipe = None
            self.context.pipes.give(pipe)

    def _fill(self, pipe: Pipe) -> bool:
        """Fill *pipe* from the source; return False if no bytes were read."""
        wanted = min(self.body.remaining, pipe.size)
        try:
            size = os.splice(self._from, pipe.write_end, wanted, flags=_FLAGS)
        except BlockingIOError:
            return False
        except OSError:
            size = 0
        if not size:
            # The transport gets the same result when it reads: the end, a reset, or no splice(2).
            self._hand_back()
            return False
        self.in_pipe = size
        self.count(size)
        return True

    def _empty(self, pipe: Pipe) -> bool:
        """Empty *pipe* into the sink; return True if the source may have more."""
        if not self._drain(pipe):
            return False
        if self.in_pipe:
            self.state = NEXT[self.state, SpliceEvent.BLOCKED]
            self.sink_blocked()
            self.context.readiness.readable(self._from, None)
            self.context.readiness.writable(self._to, self._go_on)
            return False
        if self.body.done:
            self._end(SpliceEvent.PASSED)
            self.finished()
            return False
        return True

    def _go_on(self) -> None:
        """Continue: the sink accepts bytes again."""
        pipe = self._pipe
        if pipe is None or not self._drain(pipe) or self.in_pipe:
            return
        if self.body.done:
            self._end(SpliceEvent.PASSED)
            self.finished()
            return
        self.state = NEXT[self.state, SpliceEvent.UNBLOCKED]
        self.context.readiness.writable(self._to, None)
        self._pipe = None
        self.context.pipes.give(pipe)
        self.context.readiness.readable(self._from, self._flow)

    def _drain(self, pipe: Pipe) -> bool:
        """Give the sink what it accepts; return False if it is lost."""
        try:
            size = os.splice(pipe.read_end, self._to, self.in_pipe, flags=_FLAGS)
        except BlockingIOError:
            return True
        except OSError as error:
            self._end(SpliceEvent.LOST)
            self.sink_lost(error)
            return False
        self.in_pipe -= size
        self.body.advance(size)
        return True

    # Ending

    def _hand_back(self) -> None:
        self._end(SpliceEvent.HANDED_BACK)
        self.finished()

    def _end(self, event: SpliceEvent) -> None:
        before, self.state = self.state, NEXT[self.state, event]
        if before is SpliceState.FLOWING:
            self.context.readiness.readable(self._from, None)
        elif before is SpliceState.BLOCKED:
            self.context.readiness.writable(self._to, None)
        if before in (SpliceState.FLOWING, SpliceState.BLOCKED):
            self.context.closer.stalls.forget(self.sink)
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            pipes = self.context.pipes
            (pipes.drop if self.in_pipe else pipes.give)(pipe)


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Upload(Splice):
    """A request body, from the browser to the app."""

    app: UpstreamConnection

    def count(self, size: int) -> None:
        """Count the bytes, also for the speed of the upload."""
        self.connection.uploaded += size
        self.context.meters.http.up += size
        self.activity.up += size

    def sink_blocked(self) -> None:
        """Watch the app: one that reads nothing for long is given up."""
        self.context.closer.watch_writes(self.sink, self.connection.upstream_stalled, app=True)

    def finished(self) -> None:
        """Read from the browser again: the rest of the body, or its next request."""
        connection = self.connection
        connection.upload = None
        if self.body.done:
            connection.request_sent()
        else:
            connection.sync_reading()

    def sink_lost(self, error: OSError) -> None:
        """Relay the response that the kernel holds: the app may have sent it before it closed."""
        if self.connection.download is None:
            self.app.fail(error)


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Download(Splice):
    """A response body, from the app to the browser."""

    def count(self, size: int) -> None:
        """Count the bytes."""
        self.context.meters.http.down += size
        self.activity.down += size

    def sink_blocked(self) -> None:
        """Watch the browser: one that reads nothing for long is reset."""
        self.context.closer.watch_writes(self.sink)

    def finished(self) -> None:
        """Read from the app again, or complete; an app that has sent more is not reused."""
        connection = self.connection
        connection.download = None
        if self.body.done:
            if has_unread(self._from):
                connection.upstream_closes = True
            connection.finish_response()
        elif not connection.write_full:
            connection.resume_response()

    def sink_lost(self, error: OSError) -> None:
        """Abort the downstream connection: its transport notices nothing by itself."""
        self.sink.abort()


def has_unread(descriptor: int) -> bool:
    """Return whether a socket holds unread bytes."""
    (size,) = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4))
    return bool(size)
