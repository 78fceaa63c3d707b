"""Decides which heads, tables and events a gateway accepts: docs/proxy-events.md, "Signed tables".

Without keys, the gateway trusts Redis, with one exception: a gateway without a table refuses one
that may come from an old backup, since it cannot compare it with anything.

With ``FUMAROLE_GATEWAY_ROUTE_KEYS``, Redis is an untrusted transport:

- a head needs the controller's signature,
- a table needs the root hash that a signed head names,
- an event needs a signed head that names the root hash of the table after the event.

Nothing here reads Redis.
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
_BACK_OFF_SECONDS: Final = 0.02
"""After a forged message no published event is checked for this time. A flood of forgeries thus
costs at most 50 checks a second. Skipped events are made up for by the head and the log."""


def check_fresh(head: Head) -> None:
    """Check that a gateway without a table may load the table of *head*.

    A Redis that was restarted from a file, or failed over, may lack revocations and marks of used
    tokens. The leader notices within a second and rebuilds the table. Until a leader has reached
    this Redis, its content is not confirmed.

    Raises:
        SnapshotRefused: If the epoch began on another Redis process than the one that answers.
    """
    if head.moved:
        raise SnapshotRefused(ANOTHER_SERVER)


@dataclass(eq=False, repr=False)
class HeadPolicy:
    """Decides what is accepted, and remembers sessions that must not come back."""

    verifier: TableVerifier | None
    """Holds the controller's public keys; None where Redis is trusted."""
    _: KW_ONLY
    wall: Callable[[], float]
    monotonic: Callable[[], float]
    max_age_seconds: float
    """The maximum age of a signed head that a gateway without a table accepts."""
    _back_off_until: float = float("-inf")
    _has_seen_signature: bool = False
    _ended: dict[str, float] = field(init=False, default_factory=dict)
    """Ended sessions, each with the unix time until which it is remembered."""
    table: Callable[[], RouteTable | None] = field(init=False)
    """Returns the table in use; the holder sets it."""
    on_attested: Callable[[float], None] = field(init=False)
    """Called with the age, in seconds, of each head signature that verified; likewise."""

    @property
    def signed(self) -> bool:
        """Whether only what the controller has signed is accepted."""
        return self.verifier is not None

    # Heads

    def verify_head(self, head: Head, table: RouteTable | None) -> SignedHead | None:
        """Return the signed content of *head*; None if no signature is required.

        Args:
            head: The head as read from Redis.
            table: The table in use.

        Raises:
            SnapshotRefused: If the table of this head must not be used.
        """
        verifier = self.verifier
        if verifier is None:
            if table is None:
                check_fresh(head)
            return None
        if head.signed is None:
            self._check_unsigned(head, fresh=table is None)
            return None
        signed_head = self._verified(verifier, head)
        if not is_proven(table):
            check_fresh(head)
            self._check_age(signed_head)
        self._has_seen_signature = True
        self._attest(signed_head)
        return signed_head

    def _check_unsigned(self, head: Head, *, fresh: bool) -> None:
        # Routes that are signed one by one, without a signed head, are read for one more minor
        # version. A controller that writes those does not set ``server``.
        if self._has_seen_signature or head.server is not None:
            raise Unsigned(NOT_SIGNED)
        if fresh:
            check_fresh(head)

    def _verified(self, verifier: TableVerifier, head: Head) -> SignedHead:
        try:
            signed_head = verifier.head(head.signed or "")
        except TokenRefused as error:
            raise Unsigned(f"the route table's signature does not hold: {error}") from None
        if not signed_head.matches(head):
            raise Unsigned("the head of the route table is not the one that was signed")
        return signed_head

    def _check_age(self, signed_head: SignedHead) -> None:
        age = self.wall() - signed_head.at
        if abs(age) > self.max_age_seconds:
            when = f"{age:.0f} s old" if age > 0 else f"{-age:.0f} s ahead of this clock"
            raise SnapshotRefused(f"the signature of the route table is {when}")

    def _attest(self, signed_head: SignedHead) -> None:
        # The absolute value: a controller clock that is ahead must not make a head look fresh.
        self.on_attested(abs(self.wall() - signed_head.at))

    # Tables

    def reader_for(self, signed_head: SignedHead | None, routes: RouteReader) -> RouteReader:
        """Return the reader for routes under *signed_head*; *routes* if that is None."""
        return routes if signed_head is None else CoveredReader(self, term=signed_head.term)

    @property
    def remembers(self) -> bool:
        """Whether :meth:`check_route` has anything to compare a route with."""
        return bool(self._ended) or self.table() is not None

    def has_ended(self, sid: str) -> bool:
        """Return whether the session *sid* has ended and must not come back."""
        return self._ended.get(sid, 0.0) > self.wall()

    def check_route(self, route: Route, *, term: int) -> None:
        """Check that *route*, published in *term*, is no replay.

        Raises:
            UnreadableRoute: If its session has ended, or the table in use holds a later revision
                of the same term.
        """
        if self.has_ended(route.sid):
            raise UnreadableRoute("the session has ended before")
        table = self.table()
        if table is None or not is_proven(table) or table.head.term != term:
            return
        held = table.route(route.sid)
        if held is not None and held.rev > route.rev:
            raise UnreadableRoute("the route is older than one that was known")

    def is_proven_by(self, table: RouteTable, signed_head: SignedHead) -> bool:
        """Return whether *table*, at the seq of *signed_head*, has the signed root hash."""
        proof = table.proof
        if proof is None:
            return False
        if signed_head.floor < proof.floor:
            return True  # signed before the table dropped its last expired revocations
        proof.drop_below(signed_head.floor)
        return proof.root.hex() == signed_head.root

    def forget_ended(self, now: float) -> None:
        """Forget ended sessions of which no grant can be valid at *now*."""
        for sid in [sid for sid, until in self._ended.items() if until < now]:
            del self._ended[sid]

    def note_ended(self, sid: str) -> None:
        """Remember that *sid* has ended, so that no replayed table or event brings it back."""
        if self.signed:
            self._ended[sid] = self.wall() + REVOCATION_KEPT_SECONDS

    # Events

    def admits(self, event: Event, table: RouteTable, *, from_log: bool = False) -> bool:
        """Return whether *event* may be applied to *table*; if so, update the table's proof.

        Events out of order pass: the table then requests a repair.

        Args:
            event: The next event.
            table: The table that it applies to.
            from_log: Whether the gateway read the event from the log. A published event may come
                from anybody with access to Redis, so checks of those are rate-limited.
        """
        if table.proof is None or event.epoch != table.epoch:
            return True
        if isinstance(event, Heartbeat):
            return event.seq != table.seq or self._confirms(event, table)
        if event.seq != table.seq + 1:
            return True
        signed_head = self._signed_head_of(event, table, from_log=from_log)
        if signed_head is None or not _follows(event, table.proof, signed_head):
            self._back_off()
            return False
        if isinstance(event, RouteRemoved):
            self.note_ended(event.sid)
        self._attest(signed_head)
        return True

    def _confirms(self, event: Heartbeat, table: RouteTable) -> bool:
        signed_head = self._signed_head_of(event, table)
        if signed_head is None or not self.is_proven_by(table, signed_head):
            self._back_off()
            return False
        self._attest(signed_head)
        return True

    def _signed_head_of(
        self, event: Event, table: RouteTable, *, from_log: bool = False
    ) -> SignedHead | None:
        """Return the signed head that *event* leads to; None if there is none that is valid."""
        verifier = self.verifier
        # The effect of an event of an unknown version or type cannot be checked.
        if verifier is None or isinstance(event, UnknownEvent) or not isinstance(event.head, str):
            return None
        if not (from_log or verifier.is_known(event.head)) and self._backs_off:
            return None
        try:
            signed_head = verifier.head(event.head)
        except TokenRefused:
            return None
        held = table.head
        ours = (event.epoch, event.seq, held.term, held.build)
        return (
            signed_head
            if (signed_head.epoch, signed_head.seq, signed_head.term, signed_head.build) == ours
            else None
        )

    def admits_early(self, event: GrantRevoked) -> bool:
        """Return whether a revocation may take effect before the events that precede it."""
        if self.verifier is None:
            return True
        if event.proof is None or self._backs_off:
            return False
        try:
            proven = self.verifier.revocation(event.proof)
        except TokenRefused:
            self._back_off()
            return False
        return proven == event.revocation() and proven.score > self.wall()

    @property
    def _backs_off(self) -> bool:
        return self.monotonic() < self._back_off_until

    def _back_off(self) -> None:
        self._back_off_until = self.monotonic() + _BACK_OFF_SECONDS


def accept_unsigned() -> HeadPolicy:
    """Return the policy that trusts Redis."""
    return HeadPolicy(None, wall=time.time, monotonic=time.monotonic, max_age_seconds=0.0)


def _follows(event: Event, proof: TableDigest, signed_head: SignedHead) -> bool:
    """Apply *event* to *proof* if that gives the signed root; else leave *proof* as it was."""
    floor, dropped = proof.floor, proof.drop_below(signed_head.floor)
    undo = _change(event, proof)
    if proof.root.hex() == signed_head.root:
        return True
    undo()
    for member, score in dropped.items():
        proof.set_revocation(member, score)
    proof.floor = floor
    return False


def _change(event: Event, proof: TableDigest) -> Callable[[], object]:
    """Apply *event* to *proof*; return a function that undoes it."""
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
    """Return whether *table* is covered by a signed head."""
    return table is not None and table.proof is not None


class CoveredReader(RouteReader):
    """Reads routes that a signed head covers; refuses replays."""

    def __init__(self, policy: HeadPolicy, *, term: int) -> None:
        super().__init__()
        self._policy = policy
        self._term = term

    def read(self, sid: str, raw: bytes | msgspec.Raw, *, epoch: str) -> Route:
        """Return the route *raw* of *sid*.

        Raises:
            UnreadableRoute: Also if the session has ended, or the table in use holds a later
                revision.
        """
        route = super().read(sid, raw, epoch=epoch)
        if self._policy.remembers:
            self._policy.check_route(route, term=self._term)
        return route
