"""One connection to an app: the protocol object that its transport calls."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, cast

from gateway.relay.last_words import read_left
from gateway.relay.states import Event, State, step

if TYPE_CHECKING:
    from gateway.core.app_heads import AnswerHead
    from gateway.core.passage import Passage
    from gateway.relay.ending.deferred_aborts import DeferredAborts
    from gateway.relay.exchange import Exchange
    from gateway.relay.pool import Pool
    from shared.routes import Target


class Upstream(asyncio.Protocol):
    """A connection to *target*, used by one session's one user.

    Busy, it passes what comes to its exchange; idle, it belongs to the pool, and anything that
    comes makes it unfit. It starts busy: connections are made for a request.
    """

    __slots__ = (
        "deadline",
        "exchange",
        "head",
        "idle_since",
        "passage",
        "pool",
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
        self.exchange: Exchange | None = None
        self.transport: asyncio.Transport | None = None
        self.writable = True
        self.tick = 0
        self.deadline = 0.0
        self.idle_since = 0.0
        self.passage: Passage | None = None
        """By which right it was last used."""
        self.head: AnswerHead | None = None
        """The last answer's: often the next one's too."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport."""
        # uvloop's transports have the interface but not the base class.
        transport = cast(asyncio.Transport, transport)
        self.transport = transport
        transport.set_write_buffer_limits(high=self.pool.limits.write_high_bytes)

    def data_received(self, data: bytes) -> None:
        """Pass *data* on to the exchange; close when nobody asked for it."""
        if self.exchange is not None:
            self.exchange.from_app(data)
        else:
            self.close()

    def eof_received(self) -> bool:
        """Tell the exchange; the transport then closes by itself."""
        if self.exchange is not None:
            self.exchange.app_ended()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the exchange, after what the kernel still holds of an answer."""
        if exc is not None and self.exchange is not None:
            self._last_words()
        self._gone()
        exchange, self.exchange = self.exchange, None
        self.transport = None
        if exchange is not None:
            exchange.app_lost(exc)

    def pause_writing(self) -> None:
        """Hold the browser back."""
        self.writable = False
        if self.exchange is not None:
            self.exchange.regulate()

    def resume_writing(self) -> None:
        """Let the browser go on."""
        self.writable = True
        if self.exchange is not None:
            self.exchange.regulate()

    def due(self, now: float) -> float:
        """Close after having been idle for too long; called by the wheel."""
        if self.state is not State.IDLE:
            return 0.0
        if now < self.deadline:
            return self.deadline
        self.close()
        return 0.0

    def spliced(self) -> None:
        """A tunnel has taken the transport."""
        self.state = step(self.state, Event.SWITCHED)
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
        # A failed write closes the transport, although the app's answer (to an upload that it
        # did not want, say) may be waiting to be read.
        exchange = self.exchange
        sock = self.transport.get_extra_info("socket") if self.transport is not None else None
        if exchange is None or sock is None or exchange.download is not None:
            return  # what is left would come before what is in the pipe
        for data in read_left(sock.fileno(), self.pool.limits.last_words_bytes):
            if self.exchange is exchange:
                exchange.from_app(data)
