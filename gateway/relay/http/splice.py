"""The rest of a large body, moved from socket to socket by the kernel (``splice(2)``).

Python does not see its bytes. The transports keep their sockets: the source's is paused, and the
sink's has an empty write buffer. A body that is handed back continues as any other.
"""

from __future__ import annotations

import asyncio
import os
from abc import abstractmethod
from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from gateway.core.http.framing import LengthBody
from gateway.relay.context import Context
from gateway.relay.ending.kernel import descriptor_of
from gateway.relay.http.pipes import Pipe
from gateway.relay.transports import pause_reading

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


class Splice:
    """Moves *body* from *source* to *sink*; subclasses connect it to an exchange.

    Args:
        context: Provides pipes, readiness and limits.
        body: The remaining bytes are moved, and counted as the sink accepts them.
        source: A plain TCP transport that has delivered everything it read.
        sink: Another one; its write buffer is sent first.
    """

    __slots__ = ("_context", "_from", "_pipe", "_sink", "_to", "body", "in_pipe", "state")

    def __init__(
        self,
        context: Context,
        body: LengthBody,
        source: asyncio.Transport,
        sink: asyncio.Transport,
    ) -> None:
        self._context = context
        self.body = body
        self._sink = sink
        self._from = descriptor_of(source)
        self._to = descriptor_of(sink)
        self._pipe: Pipe | None = None
        self.in_pipe = 0
        """Bytes in the pipe."""
        self.state = SpliceState.DRAINING
        pause_reading(source)

    # Provided by a subclass

    @abstractmethod
    def bytes_read(self, size: int) -> None:
        """*size* bytes were read from the source."""

    @abstractmethod
    def bytes_written(self, size: int) -> None:
        """The sink has accepted *size* bytes."""

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
        self._sink.set_write_buffer_limits(high=0)
        if not self._sink.get_write_buffer_size():
            self.sink_drained()

    def sink_drained(self) -> None:
        """Start moving: the sink's transport has written everything."""
        if self.state is not SpliceState.DRAINING:
            return
        self._sink.set_write_buffer_limits(high=self._context.parts.limits.write_high_bytes)
        self.state = NEXT[self.state, SpliceEvent.DRAINED]
        self._context.readiness.readable(self._from, self._flow)

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
        pipe = self._context.pipes.take()
        if pipe is None:
            self._hand_back()
            return
        self._pipe = pipe
        for _ in range(_ROUNDS):
            if not self._fill(pipe) or not self._empty(pipe):
                break
        if self._pipe is not None and not self.in_pipe:
            self._pipe = None
            self._context.pipes.give(pipe)

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
        self.bytes_read(size)
        return True

    def _empty(self, pipe: Pipe) -> bool:
        """Empty *pipe* into the sink; return True if the source may have more."""
        if not self._drain(pipe):
            return False
        if self.in_pipe:
            self.state = NEXT[self.state, SpliceEvent.BLOCKED]
            self.sink_blocked()
            self._context.readiness.readable(self._from, None)
            self._context.readiness.writable(self._to, self._go_on)
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
        self._context.readiness.writable(self._to, None)
        self._pipe = None
        self._context.pipes.give(pipe)
        self._context.readiness.readable(self._from, self._flow)

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
        self.bytes_written(size)
        return True

    # Ending

    def _hand_back(self) -> None:
        self._end(SpliceEvent.HANDED_BACK)
        self.finished()

    def _end(self, event: SpliceEvent) -> None:
        before, self.state = self.state, NEXT[self.state, event]
        if before is SpliceState.FLOWING:
            self._context.readiness.readable(self._from, None)
        elif before is SpliceState.BLOCKED:
            self._context.readiness.writable(self._to, None)
        if before in (SpliceState.FLOWING, SpliceState.BLOCKED):
            self._context.closer.stalls.forget(self._sink)
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            pipes = self._context.pipes
            (pipes.drop if self.in_pipe else pipes.give)(pipe)


_FLAGS: Final = os.SPLICE_F_NONBLOCK | os.SPLICE_F_MOVE if hasattr(os, "splice") else 0
