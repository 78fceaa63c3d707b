"""Connections to apps: the protocol object of one, and the pool of those that are unused.

They are kept per session and user and never wider: one user's request can poison a connection for
the next, and it never reaches another user's.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import KW_ONLY, dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from gateway.core.access.access_right import check_access
from gateway.relay.ending.kernel import is_secured
from gateway.relay.transports import is_protocol_of, pause_reading, resume_reading
from gateway.relay.turns import SMALL_READ, Turns

if TYPE_CHECKING:
    from gateway.core.access.access_right import AccessRight
    from gateway.core.downstream.connection import Connection
    from gateway.core.http.response_heads import ResponseHead
    from gateway.core.limits.values import Limits
    from gateway.relay.ending.ends import DeferredAborts, Ends
    from gateway.relay.wheel import Wheel
    from shared.routes.route import Target
    from shared.routes.table import RouteTable

_PIECE: Final = 65536


class UpstreamState(IntEnum):
    """Where a connection to an app is."""

    IDLE = 0
    """In the pool: whatever comes now was not asked for."""
    BUSY = 1
    """Carries one request and its answer."""
    SPLICED = 2
    """Carries a tunnel."""
    CLOSED = 3


class UpstreamEvent(IntEnum):
    """What happens to it, past tense."""

    TAKEN = 0
    """A request took the connection out of the pool."""
    RETURNED = 1
    """Its answer was complete, and nothing speaks against another one."""
    SWITCHED = 2
    """The transport was given to a tunnel."""
    LOST = 3
    """The transport is closed, by whomever."""


S, E = UpstreamState, UpstreamEvent

NEXT: Final[Mapping[tuple[UpstreamState, UpstreamEvent], UpstreamState]] = MappingProxyType(
    {
        (S.IDLE, E.TAKEN): S.BUSY,
        (S.IDLE, E.LOST): S.CLOSED,  # by the app, unasked bytes, age, another target
        (S.BUSY, E.RETURNED): S.IDLE,
        (S.BUSY, E.SWITCHED): S.SPLICED,
        (S.BUSY, E.LOST): S.CLOSED,
        (S.SPLICED, E.LOST): S.CLOSED,
    }
)
"""A state changes by this only; an event that a state does not list is a bug of ours, and raises
KeyError."""
_TAKEN, _RETURNED, _SWITCHED = E.TAKEN, E.RETURNED, E.SWITCHED
_BUSY = S.BUSY
"""With every request: a member costs more to look up than all the rest of a transition."""


@dataclass(slots=True, eq=False, repr=False)
class UpstreamConnection(asyncio.Protocol):
    """A connection to *target*, used by one session's one user.

    Busy, it passes what comes to its exchange; idle, it belongs to the pool, and anything that
    comes makes it unfit. It starts busy: connections are made for a request.
    """

    pool: Pool
    _: KW_ONLY
    sid: str
    user: str
    target: Target
    state: UpstreamState = _BUSY
    exchange: Connection | None = None
    dialled: Callable[[UpstreamConnection], None] | None = None
    """Called with the connection once it is there."""
    transport: asyncio.Transport | None = None
    writable: bool = True
    reading: bool = True
    """False while the browser does not take the response."""
    tick: int = 0
    deadline: float = 0.0
    idle_since: float = 0.0
    is_probed: bool = False
    access_right: AccessRight | None = None
    """By which right it was last used."""
    head: ResponseHead | None = None
    """The last response's: often the next one's too."""

    # uvloop's transports have the interface but not the base class.
    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Take the transport."""
        self.transport = transport
        transport.set_write_buffer_limits(high=self.pool.limits.write_high_bytes)
        dialled, self.dialled = self.dialled, None
        if dialled is not None:
            dialled(self)

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
        """Read again, unless the exchange has has_more it, or it is a tunnel's."""
        if self.reading and is_protocol_of(self, self.transport):
            resume_reading(self.transport)

    def eof_received(self) -> bool:
        """Tell the exchange; the transport then closes by itself."""
        if self.exchange is not None:
            self.exchange.upstream_ended()
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the exchange, after what the kernel still holds of a response.

        TLS tells of its end first (close_notify, :meth:`eof_received`): where only the connection
        below it ends, anybody on the way may have ended it (RFC 8446, section 6.1).
        """
        self.pool.ends.forget(self.transport)
        if exc is not None and self.exchange is not None:
            self._last_words()
        elif self.transport is not None and is_secured(self.transport):
            exc = ConnectionResetError("TLS was cut off")
        self._gone()
        exchange, self.exchange = self.exchange, None
        self.transport = None
        if exchange is not None:
            exchange.upstream_lost(exc)

    def pause_writing(self) -> None:
        """Stop reading the request; an app that takes nothing for long is given up."""
        self.writable = False
        self.pool.ends.writes_wait(self.transport, self.stalled, app=True)
        if self.exchange is not None:
            self.exchange.sync_reading()

    def resume_writing(self) -> None:
        """Read the request again."""
        self.writable = True
        if self.exchange is not None:
            self.exchange.sync_reading()

    def stalled(self) -> None:
        """The app has taken nothing of what waits for it as long as it may."""
        if self.exchange is not None:
            self.exchange.upstream_stalled()
        else:
            self.close()

    def look_for_stalls(self) -> None:
        """Have the kernel find a host that vanishes, and be watched where it holds something.

        Idle, in its pool, a connection is closed before anybody would notice.
        """
        if not self.is_probed:
            self.is_probed = True
            self.pool.ends.keep_app_alive(self.transport)
        self.pool.ends.look_at(self.transport, self.stalled, app=True)

    def due(self, now: float) -> float:
        """Close after having been idle for too long; called by the wheel."""
        if self.state is not UpstreamState.IDLE:
            return 0.0
        if now < self.deadline:
            return self.deadline
        self.close()
        return 0.0

    def spliced(self) -> None:
        """A tunnel has taken the transport, and is told itself when the app stalls."""
        self.state = NEXT[self.state, _SWITCHED]
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
        if self.state is UpstreamState.CLOSED:
            return
        self.pool.forget(self)
        self.state = NEXT[self.state, UpstreamEvent.LOST]

    def _last_words(self) -> None:
        # A failed write closes the transport, although the app's response (to an upload that it
        # did not want, say) may be waiting to be read.
        exchange = self.exchange
        sock = self.transport.get_extra_info("socket") if self.transport is not None else None
        if exchange is None or sock is None or exchange.is_splicing_response():
            return  # what is left would come before what is in the pipe
        for data in read_left(sock.fileno(), self.pool.limits.last_words_bytes):
            if self.exchange is exchange:
                exchange.response_received(data)


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Pool:
    """Keeps connections that can take another request."""

    loop: asyncio.AbstractEventLoop
    wheel: Wheel
    ends: Ends
    turns: Turns
    limits: Limits
    _idle: dict[str, dict[str, list[UpstreamConnection]]] = field(init=False, default_factory=dict)

    def __len__(self) -> int:
        """Return how many connections are kept."""
        return sum(len(kept) for users in self._idle.values() for kept in users.values())

    def take(self, *, sid: str, user: str, target: Target, safe: bool) -> UpstreamConnection | None:
        """Return the connection last used by *user* of *sid* that leads to *target*.

        Args:
            sid: The session.
            user: Who may share it.
            target: Where it has to lead.
            safe: Whether the request could be sent once more if the connection turns out stale;
                one that could not gets only a connection that was used just now.
        """
        users = self._idle.get(sid)
        kept = users.get(user) if users is not None else None
        if not kept:
            return None
        upstream = kept[-1]
        if upstream.target is not target and upstream.target != target:
            upstream.close()
            return self.take(sid=sid, user=user, target=target, safe=safe)
        if not safe and self.loop.time() - upstream.idle_since > self.limits.unsafe_idle_seconds:
            return None
        # An empty list stays for the connection that comes back, which is what most do.
        kept.pop()
        upstream.state = NEXT[upstream.state, _TAKEN]
        return upstream

    def put(self, upstream: UpstreamConnection) -> None:
        """Keep *upstream*, whose last response is complete; for a moment when there are many.

        A program that asks with many at once would dial for most of its requests otherwise.
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
        """Take out a connection that has closed, and the place where it would have come back to."""
        self.wheel.disarm(upstream)
        kept = self._idle.get(upstream.sid, {}).get(upstream.user)
        if kept is None:
            return
        if upstream in kept:
            kept.remove(upstream)
        if not kept:
            self._drop_empty(upstream.sid, upstream.user)

    def review(self, sids: Iterable[str] | None, table: RouteTable, now: float) -> None:
        """Give up the connections that nobody may use, or that lead elsewhere by now.

        They close after the browsers' that are ended by the same change.
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
                upstream.give_up(self.ends.deferred)

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


def read_left(descriptor: int, most: int) -> Iterator[bytes]:
    """Yield what can be read from a non-blocking *descriptor* without waiting, up to *most*."""
    while most > 0 and descriptor >= 0:
        try:
            data = os.read(descriptor, min(_PIECE, most))
        except OSError:
            return
        if not data:
            return
        most -= len(data)
        yield data
