"""The registry of open connections by session, and the one place that ends them.

Level-triggered: a caller passes the sessions that changed, and the registry checks the access right
of each of their connections against the current table. A repeated check changes nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from gateway.core.access.access_right import AccessRight, EndReason, check_access
from gateway.core.limits.addresses import client_of_key, is_within, limit_key
from gateway.core.limits.buffer_shares import BufferOwner
from gateway.wheel import TimerWheel
from shared.bounded import BoundedDict
from shared.networks import Network
from shared.routes.table import RouteTable

_BATCH: Final = 500
"""Connections ended between two yields to the loop: about 10 ms."""
_LONGEST_SECONDS: Final = 3600.0
"""The longest timer."""
_MOST_VISITORS: Final = 16_384
"""Addresses whose clients are remembered: more than a worker has connections."""
_CLOCK_SECONDS: Final = 1.0
"""How often the system clock is compared with the loop's, and by how much it must be ahead."""


class Member(BufferOwner, Protocol):
    """A connection that can be ended."""

    @property
    def kind(self) -> str:
        """The protocol of the connection: the value of a metric's label."""

    @property
    def access_right(self) -> AccessRight:
        """The access right that the connection depends on."""

    def end(self, ending: EndReason) -> None:
        """End the connection; see :meth:`gateway.relay.tunnel.Tunnel.end`."""

    def check_stalls(self) -> None:
        """Watch each side for which the kernel holds unacknowledged bytes."""


class Observer(Protocol):
    """Is notified of opened and closed connections; must be cheap and must not raise."""

    def attached(self, kind: str, access_right: AccessRight) -> None:
        """Handle an opened connection that carries *kind*."""

    def detached(self, kind: str, access_right: AccessRight, reason: str | None) -> None:
        """Handle a connection that closed by itself (*reason* is None) or was ended."""


class _Session:
    """The open connections of one session; a timer of the wheel."""

    __slots__ = ("live", "members", "sid", "tick")

    def __init__(self, live: ConnectionRegistry, sid: str) -> None:
        self.live = live
        self.sid = sid
        self.members: set[Member] = set()
        self.tick = 0

    def due(self, now: float) -> float:
        """Check all members; return the time of the next check. Called by the wheel."""
        self.live.review((self.sid,))
        return self.live.next_look(self, now) if self.members else 0.0


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class ConnectionRegistry:
    """The registry of open connections.

    Args:
        table: Returns the table in use; None before there is one.
        max_per_session: Limit of connections for one session; 0 for no limit.
        max_per_user: Limit of connections for one user, over all sessions.
        max_per_address: Limit of connections by public links for one address (IPv6: one /64).
        trusted: Proxies, which forward many users' connections: not limited by address.
    """

    table: Callable[[], RouteTable | None]
    wall: Callable[[], float]
    loop: asyncio.AbstractEventLoop
    max_per_session: int = 0
    max_per_user: int = 0
    max_per_address: int = 0
    trusted: Sequence[Network] = ()
    observers: Sequence[Observer] = ()
    closing: set[Member] = field(init=False, default_factory=set)
    """Connections that were ended and have not closed yet."""
    kinds: Counter[str] = field(init=False, default_factory=Counter)
    """The number of open connections by what they carry."""
    review_pool: Callable[[Iterable[str] | None, RouteTable, float], None] | None = field(
        init=False, default=None
    )
    """Closes the idle upstream connections of sessions (None: of all) that have no right any more;
    called with each review, before connections are ended."""
    _wheel: TimerWheel = field(init=False)
    _sessions: dict[str, _Session] = field(init=False, default_factory=dict)
    _count: int = 0
    _of_user: dict[str, int] = field(init=False, default_factory=dict)
    """By user, and by address for connections without a user."""
    _visitors: BoundedDict[str, str] = field(
        init=False, default_factory=lambda: BoundedDict(_MOST_VISITORS)
    )
    """The clients at addresses: an IPv6 address takes 30 µs to read, and while memory is short, all
    connections are counted by client."""

    def __post_init__(self) -> None:
        self._wheel = TimerWheel(self.loop)

    def __len__(self) -> int:
        """Return the number of open connections."""
        return self._count

    def has_room(self, access_right: AccessRight) -> bool:
        """Return whether the limits allow one more connection by *access_right*."""
        session = self._sessions.get(access_right.sid)
        if session is not None and 0 < self.max_per_session <= len(session.members):
            return False
        user = self.client_of(access_right)
        most = self.max_per_address if access_right.user is None else self.max_per_user
        return not user or not 0 < most <= self._of_user.get(user, 0)

    def client_of(self, access_right: AccessRight) -> str:
        """Return the key that a connection by *access_right* counts for; "" if it is not limited.

        That is the user, or the address of a client without one.
        """
        address = access_right.address
        if access_right.user or not address:
            return access_right.user or ""
        client = self._visitors.get(address)
        if client is None:
            is_proxy = bool(self.trusted) and is_within(address, self.trusted)
            client = "" if is_proxy else client_of_key(limit_key(address))
            self._visitors[address] = client
        return client

    def add(self, member: Member) -> None:
        """Register an open connection; registering it twice changes nothing."""
        access_right, kind = member.access_right, member.kind
        user = self.client_of(access_right)
        sid = access_right.sid
        session = self._sessions.get(sid)
        if session is None:
            session = self._sessions[sid] = _Session(self, sid)
        elif member in session.members:
            return
        session.members.add(member)
        self._count += 1
        if user:
            self._of_user[user] = self._of_user.get(user, 0) + 1
        self.kinds[kind] += 1
        self._arm(session, access_right.ends_at)
        for observer in self.observers:
            observer.attached(kind, access_right)

    def replace(self, member: Member, successor: Member) -> None:
        """Register *successor* in place of *member*; both have the same access right.

        Observers are not notified, since the same client stays connected.
        """
        session = self._sessions[member.access_right.sid]
        session.members.remove(member)
        session.members.add(successor)
        self.kinds[member.kind] -= 1
        self.kinds[successor.kind] += 1

    def discard(self, member: Member) -> None:
        """Remove a connection that has closed."""
        if self.closing:
            self.closing.discard(member)
        self._discard(member, None)

    def _discard(self, member: Member, reason: str | None) -> None:
        access_right, kind = member.access_right, member.kind
        user = self.client_of(access_right)
        sid = access_right.sid
        session = self._sessions.get(sid)
        if session is None or member not in session.members:
            return
        session.members.discard(member)
        self._count -= 1
        if user:
            left = self._of_user.pop(user) - 1
            if left:
                self._of_user[user] = left
        self.kinds[kind] -= 1
        if not session.members:
            self._wheel.disarm(session)
            del self._sessions[sid]
        for observer in self.observers:
            observer.detached(kind, access_right, reason)

    def review(self, sids: Iterable[str] | None = None) -> None:
        """Check the connections of *sids* (None: of all sessions), and end those without a right.

        Call it after each change of the table with the sessions that changed, or with None for a
        change that is not limited to sessions, such as a new table or a revoked ``kid``.
        """
        table = self.table()
        if table is None:
            return
        wanted = set(self._sessions) if sids is None else set(sids)
        now = self.wall()
        ended: list[tuple[Member, EndReason]] = []
        for sid in wanted:
            session = self._sessions.get(sid)
            for member in tuple(session.members) if session else ():
                ending = check_access(member.access_right, table, now)
                if ending is not None:
                    ended.append((member, ending))
                elif session is not None:
                    # The route's expiry may have moved.
                    self._arm(session, member.access_right.ends_at)
        if self.review_pool is not None:
            self.review_pool(None if sids is None else wanted, table, now)
        self._end_each(ended)

    async def watch_clock(self) -> None:
        """Check all connections after each forward step of the system clock, until cancelled.

        Rights end by the system clock, but timers use the loop's. The loop's clock does not move
        when the system clock is set, nor while the machine is suspended. Timers that a backward
        step makes too early need no check: they are armed again.
        """
        known = self.wall() - self.loop.time()
        while True:
            await asyncio.sleep(_CLOCK_SECONDS)
            ahead = self.wall() - self.loop.time()
            if ahead - known > _CLOCK_SECONDS:
                self.review()
                known = ahead
            known = min(known, ahead)

    def end_all(self, ending: EndReason) -> None:
        """End every connection, for example with ``DRAINING`` or ``BUS_LOST``."""
        self.end(self.members(), ending)

    def end(self, members: Iterable[Member], ending: EndReason) -> None:
        """End *members*."""
        self._end_each([(member, ending) for member in members])

    def members(self) -> list[Member]:
        """Return all open connections."""
        return [m for session in self._sessions.values() for m in session.members]

    def close(self) -> None:
        """Stop the timer. The caller closes the connections."""
        self._wheel.close()

    def next_look(self, session: _Session, now: float) -> float:
        """Return when (on the loop's clock) the next right in *session* ends; 0 for never."""
        ends_at = min((m.access_right.ends_at for m in session.members), default=float("inf"))
        return now + self._until(ends_at) if ends_at != float("inf") else 0.0

    def _arm(self, session: _Session, ends_at: float) -> None:
        if ends_at != float("inf"):
            self._wheel.arm(session, self.loop.time() + self._until(ends_at))

    def _until(self, ends_at: float) -> float:
        seconds = ends_at - self.wall()
        if seconds >= _LONGEST_SECONDS:
            return _LONGEST_SECONDS
        return seconds if seconds > 0.0 else 0.0

    def _end_each(self, ended: list[tuple[Member, EndReason]]) -> None:
        """Remove connections from the registry, then end them."""
        for member, ending in ended:
            self._discard(member, ending.close_reason)
            self.closing.add(member)
        self._end_batch(ended)

    def _end_batch(self, ended: list[tuple[Member, EndReason]]) -> None:
        for member, ending in ended[:_BATCH]:
            # A member may have closed by itself since the batch was scheduled.
            if member in self.closing:
                member.end(ending)
        if len(ended) > _BATCH:
            self.loop.call_soon(self._end_batch, ended[_BATCH:])
