"""Tests the head policy without Redis: which heads, tables and events it accepts, at any time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from gateway.bus.head_policy import ANOTHER_SERVER, NOT_SIGNED, HeadPolicy
from gateway.bus.repairer import load_table
from shared.errors import SnapshotRefused, UnreadableRoute, Unsigned
from shared.events import Event, GrantRevoked, Head, Heartbeat, UnknownEvent, event_time
from shared.routes.route import RouteReader
from shared.routes.table import RouteTable
from tests.gateway.bus.following import ONE, TWO, encode, make_route, sid_of
from tests.gateway.bus.leading import KEY, NOW, OTHER, Leader, verifier

THREE = sid_of(3)
DAY = 86400.0
replace = msgspec.structs.replace
Change: TypeAlias = Callable[[Leader], Event]


class PolicyRig:
    """A policy, with clocks that the test sets, and the table in use."""

    def __init__(self, *keys: Ed25519PrivateKey) -> None:
        self.wall, self.uptime = NOW, 50.0
        self.table: RouteTable | None = None
        self.attested: list[float] = []
        self.policy = HeadPolicy(
            verifier(*keys) if keys else None,
            wall=lambda: self.wall,
            monotonic=lambda: self.uptime,
            max_age_seconds=300.0,
        )
        self.policy.table = lambda: self.table
        self.policy.on_attested = self.attested.append

    async def take(self, leader: Leader) -> RouteTable:
        """Put the whole table of *leader* into use."""
        said = self.policy.verify_head(leader.head, self.table)
        routes = self.policy.reader_for(said, RouteReader())
        self.table = await load_table(leader.snapshot, routes, said)
        return self.table

    def refused(self, head: Head, table: RouteTable | None = None) -> str:
        """Return why the policy refuses *head* beside *table*, the one in use."""
        with pytest.raises(SnapshotRefused) as refusal:
            self.policy.verify_head(head, table)
        unsigned = isinstance(refusal.value, Unsigned)
        return f"unsigned: {refusal.value}" if unsigned else str(refusal.value)


# Heads


async def test_without_keys_a_new_gateway_checks_only_the_redis_process_of_a_table() -> None:
    judge, leader = PolicyRig(), await Leader().begin(ONE)
    moved = replace(leader.head, moved=True)
    assert not judge.policy.signed
    why = judge.refused(moved)
    assert why == ANOTHER_SERVER
    assert why.startswith("the route table was begun on another Redis process")
    assert judge.policy.verify_head(leader.head, None) is None
    assert judge.policy.verify_head(moved, await judge.take(leader)) is None
    # The policy records an end only for a controller that signs.
    judge.policy.note_ended(ONE)
    assert not judge.policy.has_ended(ONE)


@pytest.mark.parametrize(("ahead", "why"), [(300.0, "old"), (-300.0, "ahead of this clock")])
async def test_a_new_gateway_accepts_a_signature_fresh_by_its_clock(ahead: float, why: str) -> None:
    judge, leader = PolicyRig(KEY), await Leader(KEY).begin(ONE)
    assert judge.policy.signed
    judge.wall = NOW + ahead
    assert judge.policy.verify_head(leader.head, None) == leader.said
    assert judge.attested == [300.0]
    assert judge.refused(replace(leader.head, moved=True)) == ANOTHER_SERVER
    judge.wall = NOW + ahead * 301 / 300
    assert judge.refused(leader.head) == f"the signature of the route table is 301 s {why}"
    assert judge.attested == [300.0]


async def test_age_and_sequence_are_checked_only_against_an_unsigned_table() -> None:
    judge, leader = PolicyRig(KEY), await Leader(KEY).begin(ONE)
    table = await judge.take(leader)
    judge.wall = NOW + 3600
    assert judge.policy.verify_head(replace(leader.head, moved=True), table) == leader.said
    assert judge.attested[-1] == 3600.0
    plain = await PolicyRig().take(await Leader().begin(ONE))
    assert "3600 s old" in judge.refused(leader.head, plain)


async def test_an_unsigned_head_is_accepted_until_a_signed_one_was_seen() -> None:
    judge, plain = PolicyRig(KEY), await Leader().begin(ONE)
    moved = replace(plain.head, moved=True)
    assert judge.policy.verify_head(plain.head, None) is None
    assert judge.refused(moved) == ANOTHER_SERVER
    assert judge.policy.verify_head(moved, await judge.take(plain)) is None
    # A controller of this project records the server on which its epoch began.
    why = judge.refused(replace(plain.head, server="r1"))
    assert why == f"unsigned: {NOT_SIGNED}"
    assert why.startswith("unsigned: the route table is not signed")
    judge.policy.verify_head((await Leader(KEY).begin(ONE)).head, None)
    assert judge.refused(plain.head, judge.table) == f"unsigned: {NOT_SIGNED}"


async def test_a_head_is_accepted_only_unchanged_and_with_a_known_key() -> None:
    judge, leader = PolicyRig(KEY), await Leader(KEY).begin(ONE)
    why = judge.refused((await Leader(OTHER).begin(ONE)).head)
    assert why.startswith("unsigned: the route table's signature does not hold: ")
    changed = replace(leader.head, routes=2)
    what = "unsigned: the head of the route table is not the one that was signed"
    assert judge.refused(changed) == what
    assert judge.attested == []


# Tables


async def test_an_ended_session_stays_ended_for_the_longest_grant() -> None:
    judge = PolicyRig(KEY)
    await judge.take(await Leader(KEY).begin(ONE, TWO))
    judge.policy.note_ended(ONE)
    table = await judge.take(await Leader(KEY, epoch="e2", term=2).begin(ONE, TWO))
    entry = table.entry(ONE)
    assert entry is not None
    assert entry.problem == "the session has ended before"
    assert table.route(TWO) is not None
    judge.wall = NOW + DAY - 0.1
    judge.policy.forget_ended(judge.wall)
    assert judge.policy.has_ended(ONE)
    assert not judge.policy.has_ended(TWO)
    judge.wall = NOW + DAY
    assert not judge.policy.has_ended(ONE)
    # The end is forgotten for good, also if the clock is set back.
    judge.policy.forget_ended(NOW + DAY + 1)
    judge.wall = NOW
    assert not judge.policy.has_ended(ONE)


async def test_ended_sessions_outlive_the_table() -> None:
    judge, leader = PolicyRig(KEY), await Leader(KEY).begin(ONE)
    reader = judge.policy.reader_for(leader.said, RouteReader())
    assert reader.read(ONE, leader.routes[ONE], epoch="e1").sid == ONE
    judge.policy.note_ended(ONE)
    with pytest.raises(UnreadableRoute, match="ended before"):
        reader.read(ONE, leader.routes[ONE], epoch="e1")


@pytest.mark.parametrize(
    ("key", "term", "rev", "readable"),
    [(KEY, 1, 4, False), (KEY, 1, 5, True), (KEY, 2, 4, True), (None, 1, 4, True)],
)
async def test_within_a_term_no_route_goes_below_its_signed_revision(
    key: Ed25519PrivateKey | None, term: int, rev: int, readable: bool
) -> None:
    judge = PolicyRig(KEY)
    await judge.take(await Leader(key).begin(ONE, rev=5))
    later = await Leader(KEY, epoch="e2", term=term).begin(ONE, TWO, rev=rev)
    table = await judge.take(later)
    assert (table.route(ONE) is not None) is readable
    assert table.route(TWO) is not None
    if not readable:
        entry = table.entry(ONE)
        assert entry is not None
        assert entry.problem == "the route is older than one that was known"


def test_routes_under_an_unsigned_head_are_read_without_signatures() -> None:
    routes = RouteReader()
    assert PolicyRig(KEY).policy.reader_for(None, routes) is routes


async def test_a_table_is_accepted_by_its_signed_root() -> None:
    judge, leader = PolicyRig(KEY), await Leader(KEY).begin(ONE, revoked={"jti:old": NOW + 1})
    table = await judge.take(leader)
    before = leader.said
    assert judge.policy.is_proven_by(table, before)
    assert not judge.policy.is_proven_by(table, (await Leader(KEY).begin(TWO)).said)
    assert not judge.policy.is_proven_by(await PolicyRig().take(leader), before)
    # Expired revocations are dropped without an event.
    leader.beat(at=NOW)
    leader.beat(at=NOW + 61)
    assert leader.said.floor == NOW + 61
    assert judge.policy.is_proven_by(table, leader.said)
    # A head read before that and checked after it raises no alarm.
    assert judge.policy.is_proven_by(table, before)


# Events

CHANGES: dict[str, Change] = {
    "a new route": lambda leader: leader.upsert(THREE),
    "another route": lambda leader: leader.upsert(ONE, rev=2),
    "an end": lambda leader: leader.remove(ONE),
    "a revocation": lambda leader: leader.revoke(sid=ONE, sub="ada"),
    "a longer revocation": lambda leader: leader.revoke(at=NOW + 5, sid=TWO, sub="eve"),
    "one that drops others": lambda leader: leader.upsert(THREE, at=NOW + 61),
}
FORGED: dict[str, dict[str, Any]] = {
    "a new route": {"route": msgspec.Raw(encode(make_route(THREE, owner="eve")))},
    "another route": {"route": msgspec.Raw(encode(make_route(ONE, owner="eve")))},
    "an end": {"sid": TWO},
    "a revocation": {"sub": "eve"},
    "a longer revocation": {"at": event_time(NOW + 6)},
    "one that drops others": {"route": msgspec.Raw(b"{}")},
}


async def begun() -> tuple[PolicyRig, Leader, RouteTable]:
    """Return a judge of a leader's events, and the table that the events are for."""
    judge = PolicyRig(KEY)
    revoked = {"jti:old": NOW + 1, f"sub:{TWO}:eve": NOW + DAY}
    leader = await Leader(KEY).begin(ONE, TWO, revoked=revoked)
    table = await judge.take(leader)
    # The first event drops the revocations that have expired.
    leader.beat(at=NOW)
    judge.attested.clear()
    return judge, leader, table


def held(table: RouteTable) -> tuple[Any, ...]:
    proof = table.proof
    assert proof is not None
    return proof.root, proof.floor, proof.routes, dict(proof.scores)


@pytest.mark.parametrize("what", CHANGES)
async def test_the_next_event_is_accepted_if_it_leads_to_the_signed_root(what: str) -> None:
    judge, leader, table = await begun()
    event = CHANGES[what](leader)
    forged = replace(event, **FORGED[what])
    before = held(table)
    assert not judge.policy.admits(forged, table)
    # The event has left no trace.
    assert held(table) == before
    assert judge.attested == []
    judge.uptime += 0.03
    assert judge.policy.admits(event, table)
    table.apply(event)
    assert held(table) == (bytes.fromhex(leader.said.root), leader.said.floor, *held(table)[2:])
    assert held(table)[2:] == (len(leader.routes), leader.revoked)
    assert judge.attested == [abs(NOW - leader.said.at)]
    assert judge.policy.has_ended(ONE) is (what == "an end")


async def test_an_out_of_order_event_of_a_signed_table_is_left_to_the_table() -> None:
    judge, leader, table = await begun()
    plain = await PolicyRig().take(await Leader().begin(ONE, TWO))
    event = replace(leader.upsert(THREE), head="a.b.c")
    assert judge.policy.admits(event, plain)
    assert judge.policy.admits(replace(event, epoch="e0"), table)
    for seq in (0, 2):
        assert judge.policy.admits(replace(event, seq=seq), table)
    assert judge.policy.admits(Heartbeat(epoch="e1", seq=1, head="a.b.c"), table)
    # None of these events was checked, so none delays the next one.
    assert judge.policy.admits(replace(event, head=leader.head.signed or ""), table)


async def test_an_event_with_a_head_of_another_sequence_is_refused() -> None:
    judge, leader, table = await begun()
    first = leader.head.signed or ""
    event = leader.upsert(THREE)
    others = {
        "unsigned": msgspec.UNSET,
        "malformed": "a.b.c",
        "the one before": first,
        "another key's": (await following_event(OTHER)).head,
        "another term's": (await following_event(KEY, term=2)).head,
    }
    for name, head in others.items():
        judge.uptime += 0.03
        assert not judge.policy.admits(replace(event, head=head), table), name
    judge.uptime += 0.03
    strange = UnknownEvent(v=2, epoch="e1", seq=1, type="RouteNarrowed")
    assert not judge.policy.admits(strange, table)


async def following_event(key: Ed25519PrivateKey, **place: Any) -> Any:
    """Return the same event, as another leader publishes it."""
    leader = await Leader(key, **place).begin(ONE, TWO)
    return leader.upsert(THREE)


async def test_a_heartbeat_confirms_only_the_signed_table() -> None:
    judge, leader, table = await begun()
    beat = leader.beat(at=NOW - 7)
    assert judge.policy.admits(beat, table)
    assert judge.attested == [7.0]
    assert not judge.policy.admits(replace(beat, head=msgspec.UNSET), table)
    judge.uptime += 0.03
    another = await Leader(KEY).begin(ONE, THREE)
    assert not judge.policy.admits(another.beat(), table)
    # This one was forged too: for a moment nothing is checked.
    assert not judge.policy.admits(leader.beat(at=NOW - 6), table)
    assert not judge.policy.admits(leader.upsert(THREE), table)
    assert judge.attested == [7.0]


async def test_after_a_forged_event_unrequested_events_are_not_verified_for_a_while() -> None:
    judge, leader, table = await begun()
    event = leader.upsert(THREE)
    assert not judge.policy.admits(replace(event, head="a.b.c"), table)
    judge.uptime += 0.0199
    assert not judge.policy.admits(event, table)
    judge.uptime += 0.0202
    assert judge.policy.admits(event, table)


@pytest.mark.parametrize("how", ["read from the log", "known from the head"])
async def test_after_a_forged_event_requested_or_known_events_are_still_accepted(how: str) -> None:
    judge, leader, table = await begun()
    event = leader.upsert(THREE)
    assert not judge.policy.admits(replace(event, head="a.b.c"), table)
    if how == "known from the head":
        judge.policy.verify_head(leader.head, table)
    assert judge.policy.admits(event, table, from_log=how == "read from the log")


# Revocations out of sequence


async def test_a_signed_revocation_takes_effect_early_until_it_expires() -> None:
    judge, leader, _ = await begun()
    event = leader.revoke(sid=ONE, sub="ada")
    assert judge.policy.admits_early(event)
    assert not judge.policy.admits_early(replace(event, proof=None))
    assert not judge.policy.admits_early(replace(event, sub="eve"))
    judge.wall = NOW + DAY - 0.1
    assert judge.policy.admits_early(event)
    judge.wall = NOW + DAY
    assert not judge.policy.admits_early(event)
    assert PolicyRig().policy.admits_early(replace(event, proof=None))


async def test_the_number_of_verified_forged_revocations_is_bounded() -> None:
    judge, leader, _ = await begun()
    event = leader.revoke(kid="k1")
    forged: GrantRevoked = replace(event, proof=(await Leader(OTHER).begin()).prove(event))
    assert not judge.policy.admits_early(forged)
    assert not judge.policy.admits_early(event)
    judge.uptime += 0.02
    assert judge.policy.admits_early(event)
