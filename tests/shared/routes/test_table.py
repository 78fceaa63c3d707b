"""Tests that applied events equal the snapshot, and that nothing out of order is applied."""

from __future__ import annotations

import random
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import SnapshotRefused
from shared.events import (
    GrantRevoked,
    Head,
    Heartbeat,
    RouteRemoved,
    RouteUpserted,
    UnknownEvent,
    event_time,
)
from shared.routes.route import RouteReader
from shared.routes.table import Outcome, RouteTable, Standing
from tests.shared.samples import (
    SID,
    encode,
    events,
    make_route,
    make_sid,
)


def make_table(
    held: dict[str, bytes] | None = None,
    revoked: dict[str, float] | None = None,
    *,
    seq: int = 0,
) -> RouteTable:
    held, revoked = held or {}, revoked or {}
    head = Head(epoch="e1", seq=seq, term=1, routes=len(held), revoked=len(revoked))
    table = RouteTable(head, RouteReader())
    for sid, raw in held.items():
        table.load_route(sid, raw)
    for member, score in revoked.items():
        table.load_revocation(member, score)
    table.complete()
    return table


def upserted(route: dict[str, Any], seq: int) -> RouteUpserted:
    raw = msgspec.Raw(encode(route))
    return RouteUpserted(epoch="e1", seq=seq, at=event_time(0), sid=route["sid"], route=raw)


def contents(table: RouteTable) -> Any:
    hosts = [f"{make_sid(n)}.apps.example.com" for n in range(6)]
    hosts += ["one.apps.example.com", "two.apps.example.com"]
    return (
        {sid: table.entry(sid) for sid in table},
        dict(table.revocations),
        {host: (table.find(host).standing, table.find(host).route) for host in hosts},
        table.hash,
        table.seq,
        table.epoch,
        table.unreadable,
        sorted(table.ambiguous_hosts()),
    )


class _Store:
    """A publisher's store after the same events."""

    def __init__(self) -> None:
        self.routes: dict[str, bytes] = {}
        self.revoked: dict[str, float] = {}

    def take(self, event: Any) -> None:
        match event:
            case RouteUpserted():
                self.routes[event.sid] = bytes(event.route)
            case RouteRemoved():
                self.routes.pop(event.sid, None)
            case GrantRevoked():
                entry = event.revocation()
                self.revoked[entry.member] = max(entry.score, self.revoked.get(entry.member, 0))


# Events


@given(st.lists(events(), max_size=30), st.integers(0, 30))
def test_applying_events_in_order_equals_the_snapshot(changes: list[Any], start: int) -> None:
    store, seq = _Store(), 0
    table = make_table()
    for index, event in enumerate(changes):
        seq += not isinstance(event, Heartbeat)
        placed = msgspec.structs.replace(event, seq=seq)
        store.take(placed)
        if index == start:
            # A table that joins here by a snapshot continues like a table from the start.
            table = make_table(store.routes, store.revoked, seq=seq)
        else:
            outcome = table.apply(placed)
            assert outcome is (Outcome.CURRENT if isinstance(event, Heartbeat) else Outcome.APPLIED)
    assert contents(table) == contents(make_table(store.routes, store.revoked, seq=seq))


@given(events(), st.integers(0, 100), st.integers(-100, 100))
def test_every_gap_and_rollback_is_detected_and_not_applied(event: Any, at: int, step: int) -> None:
    table = make_table({SID: encode(make_route())}, {"jti:x": 1.0}, seq=at)
    before = contents(table)
    placed = msgspec.structs.replace(event, seq=max(0, at + step))
    next_one = placed.seq == (at if isinstance(event, Heartbeat) else at + 1)
    outcome = table.apply(placed)
    assert (outcome is Outcome.REPAIR) == (not next_one)
    if not next_one:
        assert contents(table) == before


@given(events(epoch="e2", seqs=st.integers(0, 3)))
def test_an_event_of_another_epoch_is_detected_and_not_applied(event: Any) -> None:
    table = make_table({SID: encode(make_route())}, seq=1)
    before = contents(table)
    assert table.apply(event) is Outcome.REPAIR
    assert contents(table) == before


def test_an_unknown_event_advances_the_sequence() -> None:
    table = make_table(seq=4)
    assert table.apply(UnknownEvent(v=2, epoch="e1", seq=5, type="RouteMoved")) is Outcome.UNKNOWN
    assert table.apply(upserted(make_route(), 6)) is Outcome.APPLIED


@pytest.mark.parametrize(
    ("found", "counted"), [((1, 0), (2, 0)), ((1, 1), (1, 0)), ((0, 0), (0, 1))]
)
def test_a_snapshot_with_wrong_counts_is_refused(
    found: tuple[int, int], counted: tuple[int, int]
) -> None:
    head = Head(epoch="e", seq=1, term=1, routes=counted[0], revoked=counted[1])
    table = RouteTable(head, RouteReader())
    for number in range(found[0]):
        table.load_route(make_sid(number), encode(make_route(make_sid(number))))
    for number in range(found[1]):
        table.load_revocation(f"jti:{number}", 1.0)
    text = "the head counts {} routes and {} revocations, the snapshot holds {} and {}"
    with pytest.raises(SnapshotRefused, match=text.format(*counted, *found)):
        table.complete()


# The hash


@given(st.dictionaries(st.integers(0, 50).map(make_sid), st.integers()), st.randoms())
def test_the_hash_does_not_depend_on_order(revs: dict[str, int], rng: random.Random) -> None:
    held = {sid: encode(make_route(sid, rev=abs(rev))) for sid, rev in revs.items()}
    shuffled = list(held.items())
    rng.shuffle(shuffled)
    assert make_table(held).hash == make_table(dict(shuffled)).hash


# Hosts


def test_a_session_is_found_by_its_own_host_and_by_its_links() -> None:
    hosts = [f"{SID}.apps.example.com", "demo.apps.example.com"]
    table = make_table({SID: encode(make_route(hosts=hosts, public=True))})
    assert table.find(hosts[0]).private
    link = table.find(hosts[1])
    assert (link.standing, link.private) == (Standing.SERVED, False)
    assert table.find("other.apps.example.com").standing is Standing.ABSENT


def test_a_new_revision_with_the_same_hosts_is_found() -> None:
    first, second = (
        make_route(rev=rev, hosts=[f"{SID}.apps.example.com", "link.example.com"], state=state)
        for rev, state in ((1, "ready"), (2, "closing"))
    )
    table = make_table({SID: encode(first)})
    key, version = next(iter(table)), table.version
    assert table.apply(upserted(second, 1)) is Outcome.APPLIED
    fresh = make_table({SID: encode(second)}, seq=1)
    assert contents(table) == contents(fresh)
    assert (table.hash, +table.states) == (fresh.hash, +fresh.states)
    assert table.version is not version
    route = table.route(SID)
    assert route is not None
    assert route.sid is key is next(iter(table)), "one string is enough"
    for host in first["hosts"]:
        assert table.find(host).route is route
    assert table.apply(upserted(make_route(rev=3), 2)) is Outcome.APPLIED
    assert table.find("link.example.com").standing is Standing.ABSENT


def test_a_new_revision_is_counted_once_and_keeps_the_key_strings() -> None:
    table = make_table({SID: encode(make_route())})
    before = table.route(SID)
    table.apply(upserted(make_route(rev=2, state="closing"), 1))
    after = table.route(SID)
    assert before is not None
    assert after is not None
    assert dict(table.states) == {"ready": 0, "closing": 1}
    assert after.hosts is before.hosts
    assert after.sid is before.sid


def test_a_replaced_table_is_freed_in_steps() -> None:
    hosts = [f"{SID}.apps.example.com", "one.example.com", "two.example.com"]
    table = make_table({SID: encode(make_route(hosts=hosts))})
    assert table.free(2) is True
    assert (len(table), table.find(hosts[2]).standing) == (0, Standing.ABSENT)
    assert table.free(2) is False


def test_a_host_claimed_by_two_routes_is_served_once_one_releases_it() -> None:
    one, two = make_sid(1), make_sid(2)
    link = "demo.apps.example.com"
    held = {
        sid: encode(make_route(sid, hosts=[f"{sid}.apps.example.com", link])) for sid in (one, two)
    }
    table = make_table(held)
    assert table.find(link).standing is Standing.AMBIGUOUS
    assert list(table.ambiguous_hosts()) == [link]
    table.apply(RouteRemoved(epoch="e1", seq=1, at=event_time(0), sid=one))
    assert table.find(link).route == table.route(two)
    assert (one in table, two in table) == (False, True)


def test_a_route_that_names_a_host_twice_is_served() -> None:
    host = f"{SID}.apps.example.com"
    table = make_table({SID: encode(make_route(hosts=[host, host]))})
    assert table.find(host).standing is Standing.SERVED


@pytest.mark.parametrize(
    "route",
    [
        make_route(make_sid(9)),
        make_route(kind="ssh"),
        make_route(state="open"),
        make_route(rank=-1),
        make_route(rank=True),
        make_route(rank=1.0),
        make_route(hosts=[]),
        make_route(hosts=["elsewhere.apps.example.com"]),
        make_route(hosts=[f"{SID}.Apps.example.com"]),
        make_route(hosts=[f"{SID}.apps.example.com", f"{make_sid(9)}.apps.example.com"]),
        make_route(target=None),
        make_route(kind="vnc"),
        make_route(kind="terminal", public=True),
        make_route(target={"scheme": "http", "host": "h", "port": 0, "id": "p"}),
        make_route(target={"scheme": "http", "host": "h", "port": 1, "id": "p", "base_path": "x"}),
        make_route(target={"scheme": "http", "host": "h", "port": 1, "id": "p", "base_path": "/?"}),
        make_route(target={"scheme": "http", "host": "h", "port": 1}),
        {"sid": SID},
        [],
        None,
    ],
)
def test_an_unreadable_route_is_known_but_not_served(route: Any) -> None:
    table = make_table({SID: encode(route)})
    assert table.find(f"{SID}.apps.example.com").standing is Standing.UNREADABLE
    assert (table.route(SID), table.unreadable, len(table)) == (None, 1, 1)


def test_a_too_deeply_nested_route_is_not_served() -> None:
    deep = encode(make_route())[:-1] + b',"deep":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    table = make_table({SID: deep})
    assert table.find(f"{SID}.apps.example.com").standing is Standing.UNREADABLE
    table.apply(upserted(make_route(), 1))
    assert table.find(f"{SID}.apps.example.com").standing is Standing.SERVED
    assert table.unreadable == 0


def test_a_starting_route_may_have_no_target_yet() -> None:
    table = make_table({SID: encode(make_route(state="starting", target=None))})
    assert table.find(f"{SID}.apps.example.com").standing is Standing.SERVED


# Revocations


def _grant(**fields: Any) -> dict[str, Any]:
    return {"sid": SID, "jti": "t-1", "sub": "ada", "kid": "k1", "issued_at": 1000} | fields


@pytest.mark.parametrize(
    ("revocation", "grant", "revoked"),
    [
        ({"sid": SID, "jti": "t-1"}, _grant(issued_at=9999), True),
        ({"sid": SID, "jti": "t-2"}, _grant(), False),
        ({"kid": "k1"}, _grant(issued_at=9999), True),
        ({"kid": "k2"}, _grant(), False),
        ({"sid": SID, "sub": "ada"}, _grant(issued_at=1500), True),
        ({"sid": SID, "sub": "ada"}, _grant(issued_at=1501), False),
        ({"sid": SID, "sub": "bob"}, _grant(), False),
        ({"sid": make_sid(8), "sub": "ada"}, _grant(), False),
        ({"sid": SID}, _grant(issued_at=1500), True),
        ({"sid": SID}, _grant(issued_at=1501), False),
        ({"sid": make_sid(8)}, _grant(), False),
    ],
)
def test_which_grants_a_revocation_ends(revocation: Any, grant: Any, revoked: bool) -> None:
    table = make_table()
    table.apply(GrantRevoked(epoch="e1", seq=1, at=event_time(1500), **revocation))
    assert table.is_revoked(**grant) is revoked


def test_an_earlier_revocation_does_not_shorten_a_later_one() -> None:
    table = make_table()
    table.apply(GrantRevoked(epoch="e1", seq=1, at=event_time(1500), sid=SID))
    table.apply(GrantRevoked(epoch="e1", seq=2, at=event_time(1400), sid=SID))
    assert table.is_revoked(**_grant(issued_at=1450))


def test_a_revocation_is_forgotten_when_no_grant_can_outlive_it() -> None:
    table = make_table(revoked={"jti:old": 999.0, "jti:t-1": 1001.0})
    table.prune(1000.0)
    assert set(table.revocations) == {"jti:t-1"}
