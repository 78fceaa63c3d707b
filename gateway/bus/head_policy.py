"""Which heads, tables and events a gateway believes: docs/proxy-events.md, "Signed tables".

Without keys Redis is believed, but for one thing: a fresh gateway knows nothing, and what an old
backup holds would look to it as good as any other table.

With ``FUMAROLE_GATEWAY_ROUTE_KEYS`` Redis is no more than a courier. A head counts only with the
controller's signature, a table only if it has the root that such a head names, an event only if the
table that it leads to has. Nothing here asks Redis.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from typing import Final, assert_never

import msgspec

from shared.errors import SnapshotRefused, TokenRefused, UnreadableRoute, Unsigned
from shared.events import (
    REVOCATION_KEPT_SECONDS,
    Event,
    GrantRevoked,
    Head,
    Heartbeat,
    RouteRemoved,
    RouteUpserted,
    UnknownEvent,
)
from shared.routes.route import Route, RouteReader
from shared.routes.signed_table import SignedHead, TableDigest, TableVerifier
from shared.routes.table import RouteTable

ANOTHER_SERVER: Final = (
    "the route table was begun on another Redis process, and no controller has rebuilt it since"
)
NOT_SIGNED: Final = (
    "the route table is not signed, as FUMAROLE_GATEWAY_ROUTE_KEYS asks for: "
    "the controller needs FUMAROLE_CONTROLLER_BUS_SIGNING_KEY_FILE"
)
_DOUBT_SECONDS: Final = 0.02
"""For so long after a forged message none is checked that nobody asked for: so a flood of them gets
no more of the processor than 50 checks a second. The head and the log then say what was missed."""


def check_fresh(head: Head) -> None:
    """Return only if a gateway that has no table yet may take the one of *head*.

    A Redis that was restarted from a file, or failed over, may have forgotten what was withdrawn,
    and marks of used tokens. The leader finds out within a second and rebuilds; while no leader
    can reach it, nobody has said that what it holds is still right.

    Raises:
        SnapshotRefused: If another process answers than the one on which the epoch began.
    """
    if head.moved:
        raise SnapshotRefused(ANOTHER_SERVER)


@dataclass(eq=False, repr=False)
class HeadPolicy:
    """Decides what is believed, and remembers what must not come back."""

    verifier: TableVerifier | None
    """Holds the controller's public keys; None where Redis is believed."""
    _: KW_ONLY
    wall: Callable[[], float]
    monotonic: Callable[[], float]
    fresh_seconds: float
    """How old a head may be that a fresh gateway takes."""
    _doubt_until: float = float("-inf")
    _signs: bool = False
    _ended: dict[str, float] = field(init=False, default_factory=dict)
    """Sessions that have ended, and until when that matters."""
    _on_attested: Callable[[float], None] = lambda _age: None
    _table: Callable[[], RouteTable | None] = lambda: None

    def connect(
        self,
        *,
        table: Callable[[], RouteTable | None],
        on_attested: Callable[[float], None],
    ) -> None:
        """Judge by the table in use, and tell of signatures.

        Args:
            table: Returns the table in use.
            on_attested: Called with the age, in seconds, of each signature of a head that was
                verified.
        """
        self._table = table
        self._on_attested = on_attested

    @property
    def signed(self) -> bool:
        """Whether only what the controller has signed is believed."""
        return self.verifier is not None

    # Heads

    def believe(self, head: Head, table: RouteTable | None) -> SignedHead | None:
        """Return what the controller has signed of *head*; None where nothing has to be signed.

        Args:
            head: What stands in Redis.
            table: The one in use.

        Raises:
            SnapshotRefused: If a table of this head must not be taken.
        """
        verifier = self.verifier
        if verifier is None:
            if table is None:
                check_fresh(head)
            return None
        if head.signed is None:
            self._check_unsigned(head, fresh=table is None)
            return None
        said = self._verified(verifier, head)
        if not is_proven(table):
            check_fresh(head)
            self._check_age(said)
        self._signs = True
        self._attest(said)
        return said

    def _check_unsigned(self, head: Head, *, fresh: bool) -> None:
        # Routes that are signed one by one, as before there were signed heads, are still read,
        # for one minor version; no controller of this project writes them, and so names its server.
        if self._signs or head.server is not None:
            raise Unsigned(NOT_SIGNED)
        if fresh:
            check_fresh(head)

    def _verified(self, verifier: TableVerifier, head: Head) -> SignedHead:
        try:
            said = verifier.head(head.signed or "")
        except TokenRefused as error:
            raise Unsigned(f"the route table's signature does not hold: {error}") from None
        if not said.says(head):
            raise Unsigned("the head of the route table is not the one that was signed")
        return said

    def _check_age(self, said: SignedHead) -> None:
        age = self.wall() - said.at
        if abs(age) > self.fresh_seconds:
            when = f"{age:.0f} s old" if age > 0 else f"{-age:.0f} s ahead of this clock"
            raise SnapshotRefused(f"the signature of the route table is {when}")

    def _attest(self, said: SignedHead) -> None:
        # A clock that is ahead makes nothing younger than it is.
        self._on_attested(abs(self.wall() - said.at))

    # Tables

    def reader_of(self, said: SignedHead | None, routes: RouteReader) -> RouteReader:
        """Return what reads the routes of a table of the head *said*; *routes* where None is."""
        return routes if said is None else CoveredReader(self, term=said.term)

    @property
    def has_memory(self) -> bool:
        """Whether there is anything that could speak against a route."""
        return bool(self._ended) or self._table() is not None

    def has_ended(self, sid: str) -> bool:
        """Say whether the session *sid* has ended, and must not come back."""
        return self._ended.get(sid, 0.0) > self.wall()

    def check_route(self, route: Route, *, term: int) -> None:
        """Return only if *route*, of a leader of that *term*, may be served again.

        Raises:
            UnreadableRoute: If its session has ended, or there was a later one in the same term.
        """
        if self.has_ended(route.sid):
            raise UnreadableRoute("the session has ended before")
        table = self._table()
        if table is None or not is_proven(table) or table.head.term != term:
            return
        held = table.route(route.sid)
        if held is not None and held.rev > route.rev:
            raise UnreadableRoute("the route is older than one that was known")

    def is_proven_by(self, table: RouteTable, said: SignedHead) -> bool:
        """Say whether *table*, at the seq of *said*, is the one that was signed."""
        proof = table.proof
        if proof is None:
            return False
        if said.floor < proof.floor:
            return True  # said before the last of these revocations was dropped, and read later
        proof.drop_below(said.floor)
        return proof.root.hex() == said.root

    def forget_ended(self, now: float) -> None:
        """Forget sessions of which no grant can be left."""
        for sid in [sid for sid, until in self._ended.items() if until < now]:
            del self._ended[sid]

    def note_ended(self, sid: str) -> None:
        """Remember that *sid* has ended: it never comes back, whoever may say so."""
        if self.signed:
            self._ended[sid] = self.wall() + REVOCATION_KEPT_SECONDS

    # Events

    def admits(self, event: Event, table: RouteTable, *, asked: bool = False) -> bool:
        """Say whether *event* may be applied to *table*; its proof has then followed.

        What is not the next event is left to the table, which asks for a repair. *asked* says that
        the event was read, from the log, and not told by whoever can publish.
        """
        if table.proof is None or event.epoch != table.epoch:
            return True
        if isinstance(event, Heartbeat):
            return event.seq != table.seq or self._confirms(event, table)
        if event.seq != table.seq + 1:
            return True
        said = self._said(event, table, asked=asked)
        if said is None or not _follows(event, table.proof, said):
            self._doubt()
            return False
        if isinstance(event, RouteRemoved):
            self.note_ended(event.sid)
        self._attest(said)
        return True

    def _confirms(self, event: Heartbeat, table: RouteTable) -> bool:
        said = self._said(event, table)
        if said is None or not self.is_proven_by(table, said):
            self._doubt()
            return False
        self._attest(said)
        return True

    def _said(self, event: Event, table: RouteTable, *, asked: bool = False) -> SignedHead | None:
        """Return what was signed of the head that follows from *event*, if that was."""
        verifier = self.verifier
        # Of a version or type that is not known, nobody knows what it changes.
        if verifier is None or isinstance(event, UnknownEvent) or not isinstance(event.head, str):
            return None
        if not (asked or verifier.is_known(event.head)) and self._doubts:
            return None
        try:
            said = verifier.head(event.head)
        except TokenRefused:
            return None
        held = table.head
        ours = (event.epoch, event.seq, held.term, held.build)
        return said if (said.epoch, said.seq, said.term, said.build) == ours else None

    def admits_early(self, event: GrantRevoked) -> bool:
        """Say whether a revocation counts before its place in the order."""
        if self.verifier is None:
            return True
        if event.proof is None or self._doubts:
            return False
        try:
            proven = self.verifier.revocation(event.proof)
        except TokenRefused:
            self._doubt()
            return False
        return proven == event.revocation() and proven.score > self.wall()

    @property
    def _doubts(self) -> bool:
        return self.monotonic() < self._doubt_until

    def _doubt(self) -> None:
        self._doubt_until = self.monotonic() + _DOUBT_SECONDS


def trusting() -> HeadPolicy:
    """Return the policy that believes Redis."""
    return HeadPolicy(None, wall=time.time, monotonic=time.monotonic, fresh_seconds=0.0)


def _follows(event: Event, proof: TableDigest, said: SignedHead) -> bool:
    """Say whether *event* leads to what was signed; *proof* has then followed, else it has not."""
    floor, dropped = proof.floor, proof.drop_below(said.floor)
    take_back = _change(event, proof)
    if proof.root.hex() == said.root:
        return True
    take_back()
    for member, score in dropped.items():
        proof.set_revocation(member, score)
    proof.floor = floor
    return False


def _change(event: Event, proof: TableDigest) -> Callable[[], object]:
    """Make the change of *event*; return what takes it back."""
    match event:
        case RouteUpserted(sid=sid, route=route):
            return partial(proof.set_route, sid, proof.put_route(sid, route))
        case RouteRemoved(sid=sid):
            return partial(proof.set_route, sid, proof.set_route(sid, None))
        case GrantRevoked():
            one = event.revocation()
            before = proof.put_revocation(one.member, one.score)
            return partial(proof.set_revocation, one.member, before)
        case Heartbeat() | UnknownEvent():
            return lambda: None
        case _:
            assert_never(event)


def is_proven(table: RouteTable | None) -> bool:
    """Say whether *table* is covered by a signed head."""
    return table is not None and table.proof is not None


class CoveredReader(RouteReader):
    """Reads routes that a signed head covers, unless they are what must not come back."""

    __slots__ = ("_policy", "_term")

    def __init__(self, policy: HeadPolicy, *, term: int) -> None:
        super().__init__()
        self._policy = policy
        self._term = term

    def read(self, sid: str, raw: bytes | msgspec.Raw, *, epoch: str) -> Route:
        """Return the route *raw* of *sid*.

        Raises:
            UnreadableRoute: Also if the session has ended, or its route was a later one.
        """
        route = super().read(sid, raw, epoch=epoch)
        if self._policy.has_memory:
            self._policy.check_route(route, term=self._term)
        return route
