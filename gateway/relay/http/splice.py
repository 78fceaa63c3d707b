"""The rest of a large body, moved from socket to socket by the kernel (``splice(2)``).

Its bytes are not seen by Python. The transports keep their sockets: the source's is held back,
and the sink's has nothing of its own to write. A body that is handed back goes on as any other.
"""

from __future__ import annotations

import asyncio
import os
from abc import abstractmethod
from collections.abc import Mapping
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from gateway.relay.ending.kernel import descriptor_of
from gateway.relay.transports import pause_reading

if TYPE_CHECKING:
    from gateway.core.http.framing import LengthBody
    from gateway.relay.context import Context
    from gateway.relay.http.pipes import Pipe, Pipes
    from gateway.relay.http.readiness import Readiness

_ROUNDS: Final = 4
"""Full pipes moved before the loop turns: about a quarter of a millisecond."""


class SpliceState(IntEnum):
    """How far a body is."""

    EMPTYING = 0
    """What was read of the body before is still being written."""
    FLOWING = 1
    """Its source is waited for; the pipe is empty, or there is none."""
    BLOCKED = 2
    """Its sink is waited for; the pipe holds bytes."""
    OVER = 3
    """Nothing is moved any more."""


class SpliceEvent(IntEnum):
    """What happens to it, past tense."""

    EMPTIED = 0
    """The sink's transport has nothing more to write."""
    BLOCKED = 1
    """The sink did not take all."""
    FREED = 2
    """It has taken the rest."""
    PASSED = 3
    """The sink has taken the body's last byte."""
    HANDED_BACK = 4
    """There is no pipe, or the source has ended: the transports go on."""
    LOST = 5
    """A connection is closed, or the right to it has ended."""


S, E = SpliceState, SpliceEvent

NEXT: Final[Mapping[tuple[SpliceState, SpliceEvent], SpliceState]] = MappingProxyType(
    {
        (S.EMPTYING, E.EMPTIED): S.FLOWING,
        (S.EMPTYING, E.LOST): S.OVER,
        (S.FLOWING, E.BLOCKED): S.BLOCKED,
        (S.FLOWING, E.PASSED): S.OVER,
        (S.FLOWING, E.HANDED_BACK): S.OVER,
        (S.FLOWING, E.LOST): S.OVER,
        (S.BLOCKED, E.FREED): S.FLOWING,
        (S.BLOCKED, E.PASSED): S.OVER,
        (S.BLOCKED, E.LOST): S.OVER,
    }
)
"""A state changes by this only; an event that a state does not list is a bug of ours, and raises
KeyError."""


class Splice:
    """Moves *body* from *source* to *sink*; a subclass says what that means.

    Args:
        context: Whose pipes, readiness and limits are used.
        body: What is left of it is moved, and counted off as the sink takes it.
        source: A plain TCP transport that has given away all that it has read.
        sink: Another one; what it still has to write goes first.
    """

    __slots__ = ("_context", "_from", "_pipe", "_sink", "_to", "body", "held", "state")

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
        self.held = 0
        """Bytes in the pipe."""
        self.state = SpliceState.EMPTYING
        pause_reading(source)

    # What a subclass provides

    @abstractmethod
    def came(self, size: int) -> None:
        """So many bytes came from the source."""

    @abstractmethod
    def went(self, size: int) -> None:
        """So many bytes were taken by the sink."""

    @abstractmethod
    def waits(self) -> None:
        """The sink is waited for, and watched until this ends: it may wait a thousand times."""

    @abstractmethod
    def over(self) -> None:
        """The body is complete, or its rest is to be read and written as any other body."""

    @abstractmethod
    def sink_lost(self, error: OSError) -> None:
        """The sink takes no more."""

    # What the owner calls

    def begin(self) -> None:
        """Have what the sink's transport still holds written first."""
        # With 0 it tells when it is empty; and at once, by pausing, when it is not.
        self._sink.set_write_buffer_limits(high=0)
        if not self._sink.get_write_buffer_size():
            self.emptied()

    def emptied(self) -> None:
        """The sink's transport has written everything."""
        if self.state is not SpliceState.EMPTYING:
            return
        self._sink.set_write_buffer_limits(high=self._context.parts.limits.write_high_bytes)
        self.state = NEXT[self.state, SpliceEvent.EMPTIED]
        self._readiness.readable(self._from, self._flow)

    @property
    def blocked(self) -> bool:
        """Whether it is the sink that is waited for."""
        return self.state is not SpliceState.FLOWING

    def stop(self) -> None:
        """Move nothing any more; what the pipe holds is lost."""
        if self.state is not SpliceState.OVER:
            self._end(SpliceEvent.LOST)

    # Moving

    @property
    def _readiness(self) -> Readiness:
        return self._context.readiness

    @property
    def _pipes(self) -> Pipes:
        return self._context.pipes

    def _flow(self) -> None:
        """Move what the source has, through a pipe that is empty before and after."""
        pipe = self._pipes.take()
        if pipe is None:
            self._hand_back()
            return
        self._pipe = pipe
        for _ in range(_ROUNDS):
            if not self._fill(pipe) or not self._empty(pipe):
                break
        if self._pipe is not None and not self.held:
            self._pipe = None
            self._pipes.give(pipe)

    def _fill(self, pipe: Pipe) -> bool:
        """Fill *pipe* from the source; False when nothing came."""
        wanted = min(self.body.remaining, pipe.size)
        try:
            size = os.splice(self._from, pipe.write_end, wanted, flags=_FLAGS)
        except BlockingIOError:
            return False
        except OSError:
            size = 0
        if not size:
            # Its transport learns the same when it reads: the end, a reset, or no splice(2).
            self._hand_back()
            return False
        self.held = size
        self.came(size)
        return True

    def _empty(self, pipe: Pipe) -> bool:
        """Empty *pipe* into the sink; True when the source may have more."""
        if not self._pour(pipe):
            return False
        if self.held:
            self.state = NEXT[self.state, SpliceEvent.BLOCKED]
            self.waits()
            self._readiness.readable(self._from, None)
            self._readiness.writable(self._to, self._go_on)
            return False
        if self.body.done:
            self._end(SpliceEvent.PASSED)
            self.over()
            return False
        return True

    def _go_on(self) -> None:
        """The sink takes again what the pipe holds."""
        pipe = self._pipe
        if pipe is None or not self._pour(pipe) or self.held:
            return
        if self.body.done:
            self._end(SpliceEvent.PASSED)
            self.over()
            return
        self.state = NEXT[self.state, SpliceEvent.FREED]
        self._readiness.writable(self._to, None)
        self._pipe = None
        self._pipes.give(pipe)
        self._readiness.readable(self._from, self._flow)

    def _pour(self, pipe: Pipe) -> bool:
        """Give the sink what it takes; False when it is lost."""
        try:
            size = os.splice(pipe.read_end, self._to, self.held, flags=_FLAGS)
        except BlockingIOError:
            return True
        except OSError as error:
            self._end(SpliceEvent.LOST)
            self.sink_lost(error)
            return False
        self.held -= size
        self.body.advance(size)
        self.went(size)
        return True

    # Ending

    def _hand_back(self) -> None:
        self._end(SpliceEvent.HANDED_BACK)
        self.over()

    def _end(self, event: SpliceEvent) -> None:
        before, self.state = self.state, NEXT[self.state, event]
        if before is SpliceState.FLOWING:
            self._readiness.readable(self._from, None)
        elif before is SpliceState.BLOCKED:
            self._readiness.writable(self._to, None)
        if before in (SpliceState.FLOWING, SpliceState.BLOCKED):
            self._context.ends.stalls.forget(self._sink)
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            (self._pipes.drop if self.held else self._pipes.give)(pipe)


_FLAGS: Final = os.SPLICE_F_NONBLOCK | os.SPLICE_F_MOVE if hasattr(os, "splice") else 0
