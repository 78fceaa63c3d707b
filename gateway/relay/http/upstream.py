"""One connection to an app: the protocol object that its transport calls."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Protocol, cast

from gateway.relay.http.last_words import read_left
from gateway.relay.states import Event, State, step
from gateway.relay.transports import is_protocol_of, pause_reading, resume_reading
from gateway.relay.turns import SMALL_READ, Turns

if TYPE_CHECKING:
    from gateway.core.access.access_right import AccessRight
    from gateway.core.downstream.connection import Connection
    from gateway.core.http.response_heads import ResponseHead
    from gateway.relay.ending.deferred_aborts import DeferredAborts
    from gateway.relay.ending.ends import Ends
    from gateway.relay.limits import Limits
    from shared.routes import Target


class Pool(Protocol):
    """Where a connection is kept while it is unused: :class:`gateway.relay.http.pool.Pool`."""

    limits: Limits
    ends: Ends
    turns: Turns

    def forget(self, upstream: UpstreamConnection) -> None:
        """Take out a connection that has closed."""
        ...


class UpstreamConnection(asyncio.Protocol):
    """A connection to *target*, used by one session's one user.

    Busy, it passes what comes to its exchange; idle, it belongs to the pool, and anything that
    comes makes it unfit. It starts busy: connections are made for a request.
    """

    __slots__ = (
        "access_right",
        "deadline",
        "exchange",
        "head",
        "idle_since",
        "is_probed",
        "pool",
        "reading",
        "sid",
        "state",
        "target",
        "tick",
        "transport",
        "user",
        "writable",
    )

    def __init__(self, pool: Pool, *, sid: str, user: str, target: Target) -> None:
        self.pool = pool
        self.sid = sid
        self.user = user
        self.target = target
        self.state = State.BUSY
        self.exchange: Connection | None = None
        self.transport: asyncio.Transport | None = None
        self.writable = True
        self.reading = True
        """False while the browser does not take the response."""
        self.tick = 0
        self.deadline = 0.0
        self.idle_since = 0.0
        self.is_probed = False
        self.access_right: AccessRight | None = None
        """By which right it was last used."""
        self.head: ResponseHead | None = None
        """The last response's: often the next one's too."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        # uvloop's transports have the interface but not the base class.
        transport = cast(asyncio.Transport, transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=self.pool.limits.write_high_bytes)

    # What an exchange calls

    def write(self, data: bytes) -> None:
        """Send *data*."""
        if self.transport is not None:
            self.transport.write(data)

    def pause_reading(self) -> None:
        """Stop reading responses."""
        self.reading = False
        pause_reading(self.transport)

    def resume_reading(self) -> None:
        """Read responses again."""
        self.reading = True
        resume_reading(self.transport)

    # What the transport calls

    def data_received(self, data: bytes) -> None:
        """Pass *data* on to the exchange; close when nobody asked for it."""
        turns = self.pool.turns
        if turns.crowded:
            turns.count_read(self)
        if len(data) >= SMALL_READ:
            turns.take(self, data)
        elif self.exchange is not None:
            self.exchange.response_received(data)
        else:
            self.close()

    def receive(self, data: bytes) -> None:
        """Pass *data* on to the exchange; close when nobody asked for it."""
        if self.exchange is not None:
            self.exchange.response_received(data)
        else:
            self.close()

    def pause_for_others(self) -> None:
        """Stop reading for a turn."""
        pause_reading(self.transport)

    def resume_after_others(self) -> None:
        """Read again, unless the exchange has stopped it, or it is a tunnel's."""
        if self.reading and is_protocol_of(self, self.transport):
            resume_reading(self.transport)

    def eof_received(self) -> bool:
        """Tell the exchange; the transport then closes by itself."""
        if self.exchange is not None:
            self.exchange.upstream_ended()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the exchange, after what the kernel still holds of a response."""
        self.pool.ends.forget(self.transport)
        if exc is not None and self.exchange is not None:
            self._last_words()
        self._gone()
        exchange, self.exchange = self.exchange, None
        self.transport = None
        if exchange is not None:
            exchange.upstream_lost(exc)

    def pause_writing(self) -> None:
        """Stop reading the request; an app that takes nothing for long is given up."""
        self.writable = False
        self.pool.ends.app_writes_wait(self.transport, self.stalled)
        if self.exchange is not None:
            self.exchange.regulate()

    def resume_writing(self) -> None:
        """Read the request again."""
        self.writable = True
        if self.exchange is not None:
            self.exchange.regulate()

    def stalled(self) -> None:
        """The app has taken nothing of what waits for it as long as it may."""
        if self.exchange is not None:
            self.exchange.app_stalled()
        else:
            self.close()

    def look_for_stalls(self) -> None:
        """Have the kernel find a host that vanishes, and be watched where it holds something.

        Idle, in its pool, a connection is closed before anybody would notice.
        """
        if not self.is_probed:
            self.is_probed = True
            self.pool.ends.keep_app_alive(self.transport)
        self.pool.ends.look_at_app(self.transport, self.stalled)

    def due(self, now: float) -> float:
        """Close after having been idle for too long; called by the wheel."""
        if self.state is not State.IDLE:
            return 0.0
        if now < self.deadline:
            return self.deadline
        self.close()
        return 0.0

    def spliced(self) -> None:
        """A tunnel has taken the transport, and is told itself when the app stalls."""
        self.state = step(self.state, Event.SWITCHED)
        self.pool.ends.forget(self.transport)
        self.transport = None

    def fail(self, error: OSError) -> None:
        """Take it for lost: writing past its transport has failed."""
        transport = self.transport
        self.connection_lost(error)
        if transport is not None:
            transport.abort()

    def close(self) -> None:
        """Close at once: whatever was not sent is of no use to anybody."""
        self.exchange = None
        self._gone()
        if self.transport is not None:
            self.pool.ends.forget(self.transport)
            self.transport.abort()
            self.transport = None

    def give_up(self, deferred: DeferredAborts) -> None:
        """Have *deferred* close it; idle, it is out of the pool at once."""
        self._gone()
        transport, self.transport = self.transport, None
        if transport is not None:
            deferred.add(transport)

    def _gone(self) -> None:
        if self.state is State.CLOSED:
            return
        self.pool.forget(self)
        self.state = step(self.state, Event.LOST)

    def _last_words(self) -> None:
        # A failed write closes the transport, although the app's response (to an upload that it
        # did not want, say) may be waiting to be read.
        exchange = self.exchange
        sock = self.transport.get_extra_info("socket") if self.transport is not None else None
        if exchange is None or sock is None or exchange.is_moving():
            return  # what is left would come before what is in the pipe
        for data in read_left(sock.fileno(), self.pool.limits.last_words_bytes):
            if self.exchange is exchange:
                exchange.response_received(data)
