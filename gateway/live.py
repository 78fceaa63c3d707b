"""Every connection that is open by some right, and the one place that ends them.

Level-triggered: whoever learns that something changed says which sessions to look at again, and
each of their connections is judged against the table as it is now. Looking twice changes nothing.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

from gateway.core.access.access_right import AccessRight, Ending, judge
from gateway.core.limits.addresses import is_within, limit_key
from gateway.relay.ending.stalls import Swept
from gateway.relay.wheel import Wheel
from shared.networks import Network
from shared.routes.table import RouteTable

_BATCH: Final = 500
"""Connections ended before the loop turns: about 10 ms."""
_LONGEST_SECONDS: Final = 3600.0
"""A timer is never set further ahead, so that a clock that was set is noticed within an hour."""


class Member(Swept, Protocol):
    """A connection that can be ended."""

    @property
    def kind(self) -> str:
        """What it carries: a metric's label."""

    @property
    def access_right(self) -> AccessRight:
        """By which right it exists."""

    def end(self, ending: Ending) -> None:
        """End it; see :meth:`gateway.relay.tunnel.Tunnel.end`."""


class Observer(Protocol):
    """Is told who comes and goes; must be cheap, and must not fail."""

    def attached(self, kind: str, access_right: AccessRight) -> None:
        """A connection that carries *kind* is open."""

    def detached(self, kind: str, access_right: AccessRight, reason: str | None) -> None:
        """It has closed (then *reason* is None), or was ended."""


class Reviewed(Protocol):
    """Something else that depends on routes: the pools of unused connections."""

    def review(self, sids: Iterable[str] | None, table: RouteTable, now: float) -> None:
        """Drop what does not fit *table* any more."""


class _Session:
    """The open connections of one session; the wheel asks it when the first of them ends."""

    __slots__ = ("live", "members", "sid", "tick")

    def __init__(self, live: Live, sid: str) -> None:
        self.live = live
        self.sid = sid
        self.members: set[Member] = set()
        self.tick = 0

    def due(self, now: float) -> float:
        """Judge all members; called by the wheel."""
        self.live.review((self.sid,))
        return self.live.next_look(self, now) if self.members else 0.0


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Live:
    """The registry of open connections.

    Args:
        table: Returns the table in use; None before there is one.
        most_of_session: Connections of one session; 0 for without limit.
        most_of_user: Connections of one user, over all sessions.
        most_of_address: Connections of one address (IPv6: one /64) by public links, of which nobody
            is known.
        trusted: Proxies, whose connections are many people's: they are not counted so.
    """

    table: Callable[[], RouteTable | None]
    wall: Callable[[], float]
    loop: asyncio.AbstractEventLoop
    most_of_session: int = 0
    most_of_user: int = 0
    most_of_address: int = 0
    trusted: Sequence[Network] = ()
    observers: Sequence[Observer] = ()
    leaving: set[Member] = field(init=False, default_factory=set)
    """Those that were ended and are not closed yet."""
    kinds: Counter[str] = field(init=False, default_factory=Counter)
    """How many are open, by what they carry."""
    _wheel: Wheel = field(init=False)
    _sessions: dict[str, _Session] = field(init=False, default_factory=dict)
    _reviewed: list[Reviewed] = field(init=False, default_factory=list)
    _count: int = 0
    _of_user: dict[str, int] = field(init=False, default_factory=dict)
    """By user, and by address where nobody is known."""

    def __post_init__(self) -> None:
        self._wheel = Wheel(self.loop)

    def __len__(self) -> int:
        """Return how many connections are open."""
        return self._count

    def watch(self, reviewed: Reviewed) -> None:
        """Have *reviewed* looked at with every review."""
        self._reviewed.append(reviewed)

    def has_room(self, access_right: AccessRight) -> bool:
        """Say whether one more connection by *access_right* may be added."""
        session = self._sessions.get(access_right.sid)
        if session is not None and 0 < self.most_of_session <= len(session.members):
            return False
        user = access_right.user or self._whose(access_right)
        most = self.most_of_address if access_right.user is None else self.most_of_user
        return user is None or not 0 < most <= self._of_user.get(user, 0)

    def _whose(self, access_right: AccessRight) -> str | None:
        """Return whose a connection is; None where it is nobody's, or many people's."""
        user, address = access_right.user, access_right.address
        if user is not None or not address:
            return user
        if self.trusted and is_within(address, self.trusted):
            return None
        return f"\0{limit_key(address)}"  # no user's name holds a control character

    def add(self, member: Member) -> None:
        """Enter an open connection; adding it twice changes nothing."""
        access_right, kind = member.access_right, member.kind
        sid, user = access_right.sid, access_right.user or self._whose(access_right)
        session = self._sessions.get(sid)
        if session is None:
            session = self._sessions[sid] = _Session(self, sid)
        elif member in session.members:
            return
        session.members.add(member)
        self._count += 1
        if user is not None:
            self._of_user[user] = self._of_user.get(user, 0) + 1
        self.kinds[kind] += 1
        self._arm(session, access_right.ends_at)
        for observer in self.observers:
            observer.attached(kind, access_right)

    def replace(self, member: Member, successor: Member) -> None:
        """Enter *successor* in the place of *member*, by whose right it goes on.

        Observers are not told: the same visitor stays.
        """
        session = self._sessions[member.access_right.sid]
        session.members.remove(member)
        session.members.add(successor)
        self.kinds[member.kind] -= 1
        self.kinds[successor.kind] += 1

    def discard(self, member: Member) -> None:
        """Forget a connection that has closed."""
        if self.leaving:
            self.leaving.discard(member)
        self._discard(member, None)

    def _discard(self, member: Member, reason: str | None) -> None:
        access_right, kind = member.access_right, member.kind
        sid, user = access_right.sid, access_right.user or self._whose(access_right)
        session = self._sessions.get(sid)
        if session is None or member not in session.members:
            return
        session.members.discard(member)
        self._count -= 1
        if user is not None:
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
        """Judge the connections of *sids* (None: of all sessions) now, and end those to end.

        Call it whenever the table changed, with the sessions that changed; with None for
        whatever is not about single sessions, such as another table or a withdrawn ``kid``.
        """
        table = self.table()
        if table is None:
            return
        wanted = set(self._sessions) if sids is None else set(sids)
        now = self.wall()
        ended: list[tuple[Member, Ending]] = []
        for sid in wanted:
            session = self._sessions.get(sid)
            for member in tuple(session.members) if session else ():
                ending = judge(member.access_right, table, now)
                if ending is not None:
                    ended.append((member, ending))
                elif session is not None:
                    # The route may have been given less time.
                    self._arm(session, member.access_right.ends_at)
        for reviewed in self._reviewed:
            reviewed.review(None if sids is None else wanted, table, now)
        self._leave(ended)

    def end_all(self, ending: Ending) -> None:
        """End every connection: ``DRAINING`` or ``BUS_LOST``, say."""
        self.end(self.members(), ending)

    def end(self, members: Iterable[Member], ending: Ending) -> None:
        """End *members*."""
        self._leave([(member, ending) for member in members])

    def members(self) -> list[Member]:
        """Return all open connections, for whoever ends them over some time."""
        return [m for session in self._sessions.values() for m in session.members]

    def close(self) -> None:
        """Stop the timer; the connections are their owners' to close."""
        self._wheel.close()

    def next_look(self, session: _Session, now: float) -> float:
        """Return when (on the loop's clock) the next connection of *session* ends; 0 for never."""
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

    def _leave(self, ended: list[tuple[Member, Ending]]) -> None:
        """End connections, each once: from here on they are none that is open."""
        for member, ending in ended:
            self._discard(member, ending.close_reason)
            self.leaving.add(member)
        self._end(ended)

    def _end(self, ended: list[tuple[Member, Ending]]) -> None:
        for member, ending in ended[:_BATCH]:
            # It may have closed by itself while others were ended.
            if member in self.leaving:
                member.end(ending)
        if len(ended) > _BATCH:
            self.loop.call_soon(self._end, ended[_BATCH:])
