"""Upstream connections: the protocol of one, and the pool of idle ones.

They are pooled per session and user and never wider: a request that poisons a connection affects
only its own user.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import IntEnum
from typing import Final

from gateway.core.access.access_right import AccessRight, check_access
from gateway.core.downstream.connection import Connection
from gateway.core.http.response_heads import ResponseHead
from gateway.core.limits.values import Limits
from gateway.relay.ending.closer import Closer, DeferredAborts
from gateway.relay.transports import (
    LARGE_BYTES,
    is_tls,
    owns_transport,
    pause_reading,
    resume_reading,
    write_large,
)
from gateway.relay.turns import SMALL_READ, Turns
from gateway.wheel import TimerWheel
from shared.routes.route import Target
from shared.routes.table import RouteTable

_PIECE: Final = 65536


class UpstreamState(IntEnum):
    """The state of an upstream connection."""

    IDLE = 0
    """In the pool: any bytes now are unsolicited."""
    BUSY = 1
    """Carries one request and its response."""
    TUNNELLED = 2
    """Carries a tunnel."""
    CLOSED = 3


class UpstreamEvent(IntEnum):
    """What happened to it, in the past tense."""

    TAKEN = 0
    """A request took the connection out of the pool."""
    RETURNED = 1
    """Its response was complete, and it can be reused."""
    SWITCHED = 2
    """A tunnel took the transport."""
    LOST = 3
    """The transport was closed by either side."""


S, E = UpstreamState, UpstreamEvent

NEXT: Final[Mapping[tuple[UpstreamState, UpstreamEvent], UpstreamState]] = {
    (S.IDLE, E.TAKEN): S.BUSY,
    (S.IDLE, E.LOST): S.CLOSED,  # closed by the app, unsolicited bytes, age, another target
    (S.BUSY, E.RETURNED): S.IDLE,
    (S.BUSY, E.SWITCHED): S.TUNNELLED,
    (S.BUSY, E.LOST): S.CLOSED,
    (S.TUNNELLED, E.LOST): S.CLOSED,
}
"""The only source of state changes; an event that a state does not list is a bug of the gateway and
raises KeyError."""
_TAKEN, _RETURNED, _SWITCHED = E.TAKEN, E.RETURNED, E.SWITCHED
_BUSY = S.BUSY
"""Looking up an enumeration member costs more than the rest of a transition."""


@dataclass(slots=True, eq=False, repr=False)
class UpstreamConnection(asyncio.Protocol):
    """A connection to *target*, used by one user of one session.

    A busy connection passes bytes to its exchange. An idle one belongs to the pool and is closed if
    any bytes arrive. It starts busy: a connection is dialled for a request.
    """

    pool: Pool
    _: KW_ONLY
    sid: str
    user: str
    target: Target
    state: UpstreamState = _BUSY
    exchange: Connection | None = None
    on_connected: Callable[[UpstreamConnection], None] | None = None
    """Called with the connection once it is established."""
    transport: asyncio.Transport | None = None
    writable: bool = True
    reading: bool = True
    """False while the browser's write buffer is full."""
    tick: int = 0
    deadline: float = 0.0
    idle_since: float = 0.0
    is_probed: bool = False
    access_right: AccessRight | None = None
    """The right by which it was last used."""
    head: ResponseHead | None = None
    """The last response's head; often equal to the next one's."""

    # uvloop's transports have the interface but not the base class.
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the transport."""
        self.transport = transport
        transport.set_write_buffer_limits(high=self.pool.limits.write_high_bytes)
        on_connected, self.on_connected = self.on_connected, None
        if on_connected is not None:
            on_connected(self)

    # Calls of an exchange

    def write(self, data: bytes) -> None:
        """Send *data*."""
        if self.transport is None:
            return
        if len(data) > LARGE_BYTES:
            write_large(self.transport, data)
        else:
            self.transport.write(data)

    def pause_reading(self) -> None:
        """Stop reading responses."""
        self.reading = False
        pause_reading(self.transport)

    def resume_reading(self) -> None:
        """Read responses again."""
        self.reading = True
        resume_reading(self.transport)

    # Events of the transport

    def data_received(self, data: bytes) -> None:
        """Pass *data* to the exchange; close if the bytes are unsolicited."""
        turns = self.pool.turns
        if turns.crowded:
            turns.count_read(self)
        if len(data) >= SMALL_READ:
            turns.run(self, data)
        elif self.exchange is not None:
            self.exchange.response_received(data)
        else:
            self.close()

    def receive(self, data: bytes) -> None:
        """Pass *data* to the exchange; close if the bytes are unsolicited."""
        if self.exchange is not None:
            self.exchange.response_received(data)
        else:
            self.close()

    def yield_turn(self) -> None:
        """Stop reading for a turn."""
        pause_reading(self.transport)

    def resume_turn(self) -> None:
        """Read again, unless the exchange has paused it or a tunnel has the transport."""
        if self.reading and owns_transport(self, self.transport):
            resume_reading(self.transport)

    def eof_received(self) -> bool:
        """Tell the exchange; the transport then closes by itself."""
        if self.exchange is not None:
            self.exchange.upstream_ended()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the exchange, after the response bytes that the kernel still holds.

        TLS announces its end first (close_notify, :meth:`eof_received`). If only the TCP connection
        ends, an attacker may have ended it (RFC 8446, section 6.1).
        """
        self.pool.closer.forget(self.transport)
        if exc is not None and self.exchange is not None:
            self._read_last_response()
        elif self.transport is not None and is_tls(self.transport):
            exc = ConnectionResetError("TLS was cut off")
        self._gone()
        exchange, self.exchange = self.exchange, None
        self.transport = None
        if exchange is not None:
            exchange.upstream_lost(exc)

    def pause_writing(self) -> None:
        """Stop reading the request; an app that reads nothing for long is given up."""
        self.writable = False
        self.pool.closer.watch_writes(self.transport, self.stalled, app=True)
        if self.exchange is not None:
            self.exchange.sync_reading()

    def resume_writing(self) -> None:
        """Read the request again."""
        self.writable = True
        if self.exchange is not None:
            self.exchange.sync_reading()

    def stalled(self) -> None:
        """Give the app up: it has read nothing until its deadline."""
        if self.exchange is not None:
            self.exchange.upstream_stalled()
        else:
            self.close()

    def check_stalls(self) -> None:
        """Enable keep-alive, and watch the app if the kernel holds unacknowledged bytes for it.

        An idle connection in the pool is closed before a vanished host would matter.
        """
        if not self.is_probed:
            self.is_probed = True
            self.pool.closer.enable_keepalive(self.transport)
        self.pool.closer.watch_if_unacknowledged(self.transport, self.stalled, app=True)

    def due(self, now: float) -> float:
        """Close after the idle timeout; called by the wheel."""
        if self.state is not UpstreamState.IDLE:
            return 0.0
        if now < self.deadline:
            return self.deadline
        self.close()
        return 0.0

    def detach(self) -> None:
        """Release the transport to a tunnel, which has its own stall watch."""
        self.state = NEXT[self.state, _SWITCHED]
        self.pool.closer.forget(self.transport)
        self.transport = None

    def fail(self, error: OSError) -> None:
        """Treat it as lost: the kernel could not write to its socket."""
        transport = self.transport
        self.connection_lost(error)
        if transport is not None:
            transport.abort()

    def close(self) -> None:
        """Close at once: unsent bytes are of no use."""
        self.exchange = None
        self._gone()
        if self.transport is not None:
            self.pool.closer.forget(self.transport)
            self.transport.abort()
            self.transport = None

    def close_deferred(self, deferred: DeferredAborts) -> None:
        """Have *deferred* abort it; it leaves the pool at once."""
        self._gone()
        transport, self.transport = self.transport, None
        if transport is not None:
            deferred.add(transport)

    def _gone(self) -> None:
        if self.state is UpstreamState.CLOSED:
            return
        self.pool.forget(self)
        self.state = NEXT[self.state, UpstreamEvent.LOST]

    def _read_last_response(self) -> None:
        # A failed write closes the transport although the app's response may wait to be read, for
        # instance to an upload that it refused.
        exchange = self.exchange
        sock = self.transport.get_extra_info("socket") if self.transport is not None else None
        if exchange is None or sock is None or exchange.download is not None:
            return  # these bytes would overtake those in the pipe
        for data in read_remaining(sock.fileno(), self.pool.limits.last_words_bytes):
            if self.exchange is exchange:
                exchange.response_received(data)


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Pool:
    """Keeps idle connections for further requests."""

    loop: asyncio.AbstractEventLoop
    wheel: TimerWheel
    closer: Closer
    turns: Turns
    limits: Limits
    _idle: dict[str, dict[str, list[UpstreamConnection]]] = field(init=False, default_factory=dict)

    def __len__(self) -> int:
        """Return how many connections are idle."""
        return sum(len(kept) for users in self._idle.values() for kept in users.values())

    def take(self, *, sid: str, user: str, target: Target, safe: bool) -> UpstreamConnection | None:
        """Return the idle connection to *target* that *user* of *sid* used last.

        Args:
            sid: The session.
            user: The user who may share it.
            target: The required target.
            safe: Whether the request may be sent a second time if the connection is stale. A
                request that may not gets only a connection that was used just now.
        """
        users = self._idle.get(sid)
        kept = users.get(user) if users is not None else None
        if not kept:
            return None
        upstream = kept[-1]
        while upstream.target is not target and upstream.target != target:
            upstream.close()  # which removes it from this list
            if not kept:
                return None
            upstream = kept[-1]
        if not safe and self.loop.time() - upstream.idle_since > self.limits.unsafe_idle_seconds:
            return None
        # An empty list stays for the connection's return, the usual case.
        kept.pop()
        upstream.state = NEXT[upstream.state, _TAKEN]
        return upstream

    def put(self, upstream: UpstreamConnection) -> None:
        """Keep *upstream*, whose last response is complete; only briefly if there are many.

        Without that, a program with many parallel requests would dial for most of them.
        """
        upstream.state = NEXT[upstream.state, _RETURNED]
        upstream.exchange = None
        users = self._idle.get(upstream.sid)
        if users is None:
            users = self._idle[upstream.sid] = {}
        kept = users.get(upstream.user)
        if kept is None:
            kept = users[upstream.user] = []
        kept.append(upstream)
        upstream.idle_since = self.loop.time()
        limits = self.limits
        is_spare = len(kept) > limits.upstream_idle_per_user
        seconds = limits.upstream_spare_seconds if is_spare else limits.upstream_idle_seconds
        upstream.deadline = upstream.idle_since + seconds
        if is_spare or not upstream.tick:
            self.wheel.arm(upstream, upstream.deadline)

    def forget(self, upstream: UpstreamConnection) -> None:
        """Remove a closed connection, and its empty entry."""
        self.wheel.disarm(upstream)
        kept = self._idle.get(upstream.sid, {}).get(upstream.user)
        if kept is None:
            return
        if upstream in kept:
            kept.remove(upstream)
        if not kept:
            self._drop_empty(upstream.sid, upstream.user)

    def review(self, sids: Iterable[str] | None, table: RouteTable, now: float) -> None:
        """Close the connections whose right has ended or whose target has changed.

        They close after the downstream connections that the same change ends.
        """
        for sid in tuple(self._idle) if sids is None else sids:
            users = self._idle.get(sid, {})
            route = table.route(sid)
            target = route.target if route is not None else None
            unfit = [
                up
                for kept in users.values()
                for up in kept
                if up.target != target or _is_over(up, table, now)
            ]
            for upstream in unfit:
                upstream.close_deferred(self.closer.deferred)

    def close(self) -> None:
        """Close all."""
        every = [up for users in self._idle.values() for kept in users.values() for up in kept]
        for upstream in every:
            upstream.close()

    def _drop_empty(self, sid: str, user: str) -> None:
        users = self._idle[sid]
        del users[user]
        if not users:
            del self._idle[sid]


def _is_over(upstream: UpstreamConnection, table: RouteTable, now: float) -> bool:
    access_right = upstream.access_right
    return access_right is None or check_access(access_right, table, now) is not None


def read_remaining(descriptor: int, most: int) -> Iterator[bytes]:
    """Yield what a non-blocking *descriptor* can deliver without waiting, up to *most* bytes."""
    while most > 0 and descriptor >= 0:
        try:
            data = os.read(descriptor, min(_PIECE, most))
        except OSError:
            return
        if not data:
            return
        most -= len(data)
        yield data
