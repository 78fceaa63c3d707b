"""The route table that a gateway serves from: routes by session and host, and revocations.

The table is level-triggered state. It changes in two ways only: it is loaded from a snapshot, or
the next event in order is applied to it (see :mod:`shared.events`). Any other event changes nothing
and requires a repair. The contract is docs/proxy-events.md.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from types import MappingProxyType
from typing import assert_never

import msgspec

from shared.bounded import BoundedDict
from shared.errors import SnapshotRefused, UnreadableRoute
from shared.events import (
    Event,
    GrantRevoked,
    Head,
    Heartbeat,
    RouteRemoved,
    RouteUpserted,
    UnknownEvent,
    revoked_at,
)
from shared.routes.route import Route, RouteReader, State, digest
from shared.routes.signed_table import TableDigest
from shared.routes.statuses import MOST_ENDED, Ended, Status, read_status


class Entry(msgspec.Struct, frozen=True, gc=False):
    """The entry of one session: its route, or why the route cannot be served."""

    route: Route | None
    digest: int
    problem: str | None = None


class Outcome(enum.Enum):
    """The result of applying an event."""

    APPLIED = enum.auto()
    CURRENT = enum.auto()
    """The event is a heartbeat that confirms the table, or a revocation that it already holds."""
    UNKNOWN = enum.auto()
    """The event is of an unknown version or type: it is skipped, and a snapshot is required."""
    REPAIR = enum.auto()
    """The event is not the next one of this epoch: nothing changed, and a repair is required."""


class Standing(enum.Enum):
    """The result of looking up a host."""

    SERVED = enum.auto()
    AMBIGUOUS = enum.auto()
    """More than one route names the host, so none is served there."""
    UNREADABLE = enum.auto()
    ABSENT = enum.auto()


class Found(msgspec.Struct, frozen=True, gc=False):
    """The result of looking up a host; ``private`` is true for a session's own host."""

    standing: Standing
    route: Route | None = None
    private: bool = False


_ABSENT = Found(Standing.ABSENT)
_AMBIGUOUS = Found(Standing.AMBIGUOUS)
_UNREADABLE = Found(Standing.UNREADABLE, private=True)


class RouteTable:
    """Routes by session and host, revocations, and the position in the stream of events.

    Fill a new table with :meth:`load_route` and :meth:`load_revocation`, in pieces if need be,
    and use it only after :meth:`complete` has accepted it.
    """

    def __init__(self, head: Head, reader: RouteReader) -> None:
        self.epoch = head.epoch
        self.seq = head.seq
        self.hash = 0
        self.since = head.since
        self.version = object()
        """Another object after every change, so that decisions can be cached until the next one."""
        self.states: Counter[State] = Counter()
        """The number of readable routes by state."""
        self.proof: TableDigest | None = None
        """The digest of the published table, if a signed head covers it."""
        self._head = head
        self._reader = reader
        self.ended: BoundedDict[str, Ended] = BoundedDict(MOST_ENDED)
        """The sessions that ended last, by id."""
        self._entries: dict[str, Entry] = {}
        self._hosts: dict[str, str | tuple[str, ...]] = {}
        self._ambiguous: set[str] = set()
        self._revoked: dict[str, float] = {}
        self.unreadable = 0

    @property
    def head(self) -> Head:
        """The head that corresponds to the table."""
        return msgspec.structs.replace(self._head, seq=self.seq)

    # Loading

    def load_route(self, sid: str, raw: bytes) -> None:
        """Load one field of the ``routes`` hash."""
        self._put(sid, raw)

    def load_revocation(self, member: str, score: float) -> None:
        """Load one member of the ``revoked`` sorted set."""
        self._revoked[member] = max(score, self._revoked.get(member, 0.0))
        self.version = object()

    def complete(self) -> None:
        """Check the loaded table against the counts in its head.

        Raises:
            SnapshotRefused: If they differ.
        """
        counts = (len(self._entries), len(self._revoked))
        if counts != (self._head.routes, self._head.revoked):
            raise SnapshotRefused(
                f"the head counts {self._head.routes} routes and {self._head.revoked} revocations, "
                f"the snapshot holds {counts[0]} and {counts[1]}"
            )

    # Following

    def apply(self, event: Event) -> Outcome:
        """Apply *event* if it is the next one; otherwise change nothing and return REPAIR."""
        if event.epoch != self.epoch:
            return Outcome.REPAIR
        if isinstance(event, Heartbeat):
            return Outcome.CURRENT if event.seq == self.seq else Outcome.REPAIR
        if isinstance(event, GrantRevoked) and event.seq == self.seq and self.knows(event):
            # A revocation published out of order, or a repetition of the last event.
            return Outcome.CURRENT
        if event.seq != self.seq + 1:
            return Outcome.REPAIR
        self.seq = event.seq
        match event:
            case RouteUpserted(sid=sid, route=route):
                self._put(sid, route)
            case RouteRemoved(sid=sid):
                self._remove(sid, event.status)
            case GrantRevoked():
                self.revoke(event)
            case UnknownEvent():
                return Outcome.UNKNOWN
            case _:
                assert_never(event)
        return Outcome.APPLIED

    def _put(self, sid: str, raw: bytes | msgspec.Raw) -> None:
        share = digest(sid, raw)
        try:
            entry = Entry(self._reader.read(sid, raw, epoch=self.epoch), share)
        except UnreadableRoute as error:
            entry = Entry(None, share, str(error))
        before = self._entries.get(sid)
        if before is not None and self._revise(sid, before, entry):
            return
        self._drop(sid)
        # Share one string object between the key, the route and the hosts.
        sid = sid if entry.route is None else entry.route.sid
        self._entries[sid] = entry
        self.hash ^= entry.digest
        self.version = object()
        if entry.route is None:
            self.unreadable += 1
            return
        self.states[entry.route.state] += 1
        for host in entry.route.hosts:
            self._name(host, sid)

    def _revise(self, sid: str, before: Entry, entry: Entry) -> bool:
        """Replace *before* by *entry* without touching the hosts, if they are the same.

        Most events are of this kind. In a large table each access to a host costs a cache line.
        """
        route, known = entry.route, before.route
        if route is None or known is None or route.hosts != known.hosts:
            return False
        # Keep the string objects that are keys, and drop their equals.
        msgspec.structs.force_setattr(route, "sid", known.sid)
        msgspec.structs.force_setattr(route, "hosts", known.hosts)
        self._entries[sid] = entry
        self.hash ^= before.digest ^ entry.digest
        self.version = object()
        self.states[known.state] -= 1
        self.states[route.state] += 1
        return True

    def _remove(self, sid: str, status: msgspec.Raw | msgspec.UnsetType) -> None:
        """Remove *sid*, which has ended, and remember the *status* in the event."""
        route = self.route(sid)
        self._drop(sid)
        if route is None:
            return
        # The signed head does not cover the event's status. In a signed table, the status of the
        # route is used instead.
        raw_status = (
            None if self.proof is not None or isinstance(status, msgspec.UnsetType) else status
        )
        end = read_status(raw_status) if raw_status is not None else None
        if end is None and route.status is not None:
            end = Status(phase="ended", app=route.status.app)
        self.ended[sid] = Ended(route.job, end)

    def _drop(self, sid: str) -> None:
        entry = self._entries.pop(sid, None)
        if entry is None:
            return
        self.hash ^= entry.digest
        self.version = object()
        if entry.route is None:
            self.unreadable -= 1
            return
        self.states[entry.route.state] -= 1
        for host in entry.route.hosts:
            self._unname(host, sid)

    def _name(self, host: str, sid: str) -> None:
        held = self._hosts.get(host)
        others = held if isinstance(held, tuple) else (held,) if held else ()
        if sid in others:
            return
        self._hosts[host] = (*others, sid) if others else sid
        if others:
            self._ambiguous.add(host)

    def _unname(self, host: str, sid: str) -> None:
        held = self._hosts.get(host)
        left = tuple(s for s in held if s != sid) if isinstance(held, tuple) else ()
        if len(left) > 1:
            self._hosts[host] = left
        elif left:
            self._hosts[host] = left[0]
            self._ambiguous.discard(host)
        else:
            self._hosts.pop(host, None)

    # Looking up

    def __len__(self) -> int:
        return len(self._entries)

    def __contains__(self, sid: object) -> bool:
        return sid in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def route(self, sid: str) -> Route | None:
        """Return the readable route of *sid*."""
        entry = self._entries.get(sid)
        return entry.route if entry else None

    def name_of(self, sid: str) -> str:
        """Return the string object that the table holds for *sid*, to save memory."""
        route = self.route(sid)
        return sid if route is None else route.sid

    def entry(self, sid: str) -> Entry | None:
        """Return the entry of *sid*, readable or not."""
        return self._entries.get(sid)

    def find(self, host: str) -> Found:
        """Look up *host* (lower case, without port).

        If the route of a session cannot be read, its own host is found by the first label.
        """
        sid = self._hosts.get(host)
        if sid is None:
            label = host.partition(".")[0]
            entry = self._entries.get(label)
            return _UNREADABLE if entry is not None and entry.route is None else _ABSENT
        if isinstance(sid, tuple):
            return _AMBIGUOUS
        route = self._entries[sid].route
        return Found(Standing.SERVED, route, private=route is not None and route.hosts[0] == host)

    def ambiguous_hosts(self) -> Collection[str]:
        """Return the hosts that more than one route names; none of them is served."""
        return self._ambiguous

    # Revocations

    @property
    def revocations(self) -> Mapping[str, float]:
        """The members of the revoked set with their scores."""
        return MappingProxyType(self._revoked)

    def revoke(self, event: GrantRevoked) -> bool:
        """Add the revocation in *event*, also out of order; return False if it was known.

        A revocation only removes access and is never undone, so it need not wait for missing events
        before it.
        """
        if self.knows(event):
            return False
        revocation = event.revocation()
        self.load_revocation(revocation.member, revocation.score)
        return True

    def knows(self, event: GrantRevoked) -> bool:
        """Return whether the table already holds the revocation in *event*."""
        revocation = event.revocation()
        return self._revoked.get(revocation.member, 0.0) >= revocation.score

    def inherit(self, older: RouteTable) -> None:
        """Add the revocations of *older*, so that a new table never restores a revoked grant.

        Also add its ended sessions, which a snapshot does not hold.
        """
        for member, score in older.revocations.items():
            if self._revoked.get(member, 0.0) < score:
                self.load_revocation(member, score)
        ended = older.ended | self.ended
        self.ended.clear()
        for sid, end in ended.items():
            if sid not in self._entries:
                self.ended[sid] = end

    def free(self, most: int) -> bool:
        """Drop up to *most* routes of a table that is not in use; return whether it has more.

        Freeing 100,000 routes at once blocks the loop for more than 20 ms.
        """
        for held in (self._entries, self._hosts):
            for _ in range(min(most, len(held))):
                held.popitem()
        return bool(self._entries or self._hosts)

    def is_revoked(self, *, sid: str, jti: str, sub: str, kid: str, issued_at: float) -> bool:
        """Return whether a grant with these properties has been revoked.

        Revocations of ``jti`` and ``kid`` end all their grants. Those of ``sub`` and ``all`` end
        the grants whose token was issued up to the revocation, so that a later token opens again.
        """
        revoked = self._revoked
        if not revoked:
            return False
        if f"jti:{jti}" in revoked or f"kid:{kid}" in revoked:
            return True
        latest = max(revoked.get(f"sub:{sid}:{sub}", 0.0), revoked.get(f"all:{sid}", 0.0))
        return latest > 0 and issued_at <= revoked_at(latest)

    def prune(self, now: float) -> None:
        """Forget revocations of which no grant can be valid at *now*."""
        for member in [m for m, score in self._revoked.items() if score < now]:
            del self._revoked[member]
