"""Tests routes at the limits of their fields, and a table's counts after each change."""

from __future__ import annotations

import gc
from itertools import product
from typing import Any

import msgspec
import pytest

from shared.errors import UnreadableRoute
from shared.events import MOST_ROUTE_BYTES, GrantRevoked, Head, RouteRemoved, event_time
from shared.routes.route import Route, RouteReader
from shared.routes.table import Entry, Found, Outcome, RouteTable, Standing
from tests.shared.routes.test_route import signed
from tests.shared.routes.test_table import make_table, upserted
from tests.shared.samples import SID, encode, make_route, make_sid

HOST = f"{SID}.apps.example.com"
TARGET = {"scheme": "http", "host": "h", "port": 1, "id": "p"}
SCHEMES = {"web": {"http", "https"}, "vnc": {"tcp", "ws", "wss"}, "terminal": {"ws", "wss"}}


def is_readable(route: dict[str, Any]) -> bool:
    try:
        RouteReader().read(SID, encode(route), epoch="e")
    except UnreadableRoute:
        return False
    return True


@pytest.mark.parametrize(
    ("kind", "scheme"), list(product(SCHEMES, ["http", "https", "tcp", "ws", "wss", "udp"]))
)
def test_each_kind_of_route_has_its_target_schemes(kind: str, scheme: str) -> None:
    route = make_route(kind=kind, target=TARGET | {"scheme": scheme})
    assert is_readable(route) == (scheme in SCHEMES[kind])


def test_a_route_with_required_fields_alone_grants_no_optional_right() -> None:
    least = {
        "sid": SID, "rev": 0, "job": "j", "rank": 0, "kind": "web", "owner": "a", "hosts": [HOST],
        "state": "ready", "target": TARGET,
    }  # fmt: skip
    route = RouteReader().read(SID, encode(least), epoch="e")
    assert route.target is not None
    assert route.target.base_path == "/"
    optional = ("message", "expires_at", "sealed", "epoch", "status")
    assert [getattr(route, name) for name in optional] == [None] * 5
    assert (route.public, route.service_workers, route.frame) == (False, False, False)
    assert route.clipboard == "both"
    assert Entry(None, 1).problem is None
    assert Found(Standing.SERVED) == Found(Standing.SERVED, None, private=False)


def test_a_route_is_immutable_and_untracked_by_the_garbage_collector() -> None:
    table = make_table({SID: encode(make_route())})
    route, entry, found = table.route(SID), table.entry(SID), table.find(HOST)
    assert route is not None
    for one, name in ((route, "rev"), (route.target, "port"), (entry, "digest"), (found, "route")):
        assert not gc.is_tracked(one)
        with pytest.raises(AttributeError):
            setattr(one, name, 7)


LINK = "a" + "b" * 63 + "." + "c" * 188
PATH = "/" + "a" * 1023


@pytest.mark.parametrize(
    ("fits", "does_not"),
    [
        ({"job": "j" * 255}, {"job": "j" * 256}),
        ({"job": "j"}, {"job": ""}),
        ({"rank": 0}, {"rank": -1}),
        ({"rev": 0}, {"rev": -1}),
        ({"expires_at": 0}, {"expires_at": -1}),
        ({"hosts": [HOST, LINK]}, {"hosts": [HOST, LINK + "c"]}),
        ({"hosts": [HOST, "a"]}, {"hosts": [HOST, ""]}),
        ({"hosts": [HOST] * 64}, {"hosts": [HOST] * 65}),
        # A host with the beginning of a session's host could take that session's place.
        ({"hosts": [HOST, "a" * 25]}, {"hosts": [HOST, "a" * 26]}),
        ({"hosts": [HOST, "a" * 27]}, {"hosts": [HOST, "a" * 26 + ".b"]}),
        ({"target": TARGET | {"port": 65535}}, {"target": TARGET | {"port": 65536}}),
        ({"target": TARGET | {"base_path": PATH}}, {"target": TARGET | {"base_path": PATH + "a"}}),
        ({"target": TARGET | {"base_path": "/~"}}, {"target": TARGET | {"base_path": "/\\"}}),
        ({"state": "starting", "target": None}, {"state": "closing", "target": None}),
        (
            {"kind": "vnc", "target": TARGET | {"scheme": "tcp"}},
            {"kind": "vnc", "target": TARGET | {"scheme": "tcp"}, "public": True},
        ),
        (
            {"kind": "vnc", "target": TARGET | {"scheme": "tcp"}, "clipboard": "none"},
            {"kind": "vnc", "target": TARGET | {"scheme": "tcp"}, "service_workers": True},
        ),
        ({"public": True}, {"clipboard": "in"}),
        ({"service_workers": True}, {"hosts": ["elsewhere", HOST]}),
    ],
)
def test_a_route_is_readable_up_to_its_limits(
    fits: dict[str, Any], does_not: dict[str, Any]
) -> None:
    assert is_readable(make_route(**fits))
    assert not is_readable(make_route(**does_not))


@pytest.mark.parametrize("clipboard", ["both", "in", "out", "none"])
def test_a_clipboard_policy_may_allow_one_direction(clipboard: str) -> None:
    desktop = make_route(kind="vnc", target=TARGET | {"scheme": "tcp"}, clipboard=clipboard)
    assert RouteReader().read(SID, encode(desktop), epoch="e").clipboard == clipboard


@pytest.mark.parametrize("raw", [b"{", b"", b"\xff", b'"\xff"', b'"no token"', b'{"v":2}'])
def test_a_malformed_route_states_why_it_is_not_served(raw: bytes) -> None:
    table = make_table({SID: raw})
    entry = table.entry(SID)
    assert entry is not None
    assert entry.problem
    assert table.find(HOST) == Found(Standing.UNREADABLE, private=True)


def test_an_oversize_route_is_not_read() -> None:
    """Reading such a route would block the loop, whatever fills it."""
    route = make_route() | {"unknown": ""}
    for room, reads in ((MOST_ROUTE_BYTES, True), (MOST_ROUTE_BYTES + 1, False)):
        filled = route | {"unknown": "x" * (room - len(encode(route)))}
        assert len(encode(filled)) == room
        assert is_readable(filled) is reads


# A table's counts


def revoked(seq: int, at: float = 1500, **what: Any) -> GrantRevoked:
    return GrantRevoked(epoch="e1", seq=seq, at=event_time(at), **what)


def removed(seq: int, sid: str = SID) -> RouteRemoved:
    return RouteRemoved(epoch="e1", seq=seq, at=event_time(0), sid=sid)


def test_state_counts_follow_added_changed_and_removed_routes() -> None:
    one, two = make_sid(1), make_sid(2)
    table = make_table({one: encode(make_route(one)), two: b"{"}, seq=0)
    assert (dict(table.states), table.unreadable) == ({"ready": 1}, 1)
    table.apply(upserted(make_route(two, state="closing"), 1))
    assert (dict(table.states), table.unreadable) == ({"ready": 1, "closing": 1}, 0)
    table.apply(upserted(make_route(one, state="closing"), 2))
    table.apply(removed(3, two))
    assert (+table.states, table.unreadable, len(table)) == ({"closing": 1}, 0, 1)


def test_a_table_has_another_version_only_after_a_change() -> None:
    table = make_table({SID: encode(make_route())})
    known = table.version
    table.apply(removed(1, make_sid(9)))
    assert table.version is known
    table.apply(revoked(2, sid=SID))
    assert table.version is not known
    # The same revocation again, or an earlier one: the table holds it already.
    known = table.version
    table.apply(revoked(3, sid=SID))
    table.apply(revoked(4, at=1400, sid=SID))
    assert table.version is known
    two = make_sid(2)
    for event in (upserted(make_route(), 5), upserted(make_route(two), 6), removed(7, two)):
        known = table.version
        table.apply(event)
        assert table.version is not known


def test_a_table_knows_its_epoch_and_sequence() -> None:
    head = Head(epoch="e1", seq=0, term=7, routes=0, revoked=0, since=5.0)
    table = RouteTable(head, RouteReader())
    assert (table.head, table.since, table.hash) == (head, 5.0, 0)
    table.apply(revoked(1, sid=SID))
    assert table.head == msgspec.structs.replace(head, seq=1)


def test_session_identifiers_are_interned_in_the_table() -> None:
    table = make_table({SID: encode(make_route())})
    route = table.route(SID)
    assert route is not None
    other = "".join(SID)
    assert table.name_of(other) is route.sid
    assert next(iter(table)) is route.sid
    assert (table.name_of("unknown"), table.entry("unknown")) == ("unknown", None)


def test_a_host_claimed_by_three_routes_is_served_once_two_release_it() -> None:
    sids, link = [make_sid(n) for n in (1, 2, 3)], "demo.apps.example.com"
    routes = {s: make_route(s, hosts=[f"{s}.apps.example.com", link]) for s in sids}
    table = make_table({sid: encode(route) for sid, route in routes.items()})
    table.apply(removed(1, sids[0]))
    assert (table.find(link).standing, set(table.ambiguous_hosts())) == (Standing.AMBIGUOUS, {link})
    table.apply(removed(2, sids[1]))
    assert (table.find(link).route, set(table.ambiguous_hosts())) == (table.route(sids[2]), set())
    table.apply(removed(3, sids[2]))
    assert table.find(link) == Found(Standing.ABSENT)
    assert table._hosts == {}


def test_a_session_host_under_another_domain_is_not_found() -> None:
    table = make_table({SID: encode(make_route())})
    assert table.find(f"{SID}.elsewhere.example").standing is Standing.ABSENT
    assert table.find(f"x.{HOST}").standing is Standing.ABSENT


@pytest.mark.parametrize(
    ("seq", "outcome"),
    [(4, Outcome.REPAIR), (5, Outcome.CURRENT), (6, Outcome.APPLIED), (7, Outcome.REPAIR)],
)
def test_a_stored_revocation_is_current_only_under_its_own_name(seq: int, outcome: Outcome) -> None:
    table = make_table(revoked={"jti:t": 9e9, "jti:t-1": 2e9}, seq=5)
    assert table.revoke(revoked(5, sid=SID, jti="t-9"))
    assert not table.revoke(revoked(5, sid=SID, jti="t-9"))
    assert table.apply(revoked(seq, sid=SID, jti="t-9")) is outcome
    assert table.apply(revoked(table.seq, sid=SID, jti="t-8")) is Outcome.REPAIR


def test_another_table_never_brings_a_grant_back() -> None:
    older = make_table(revoked={"jti:a": 2e9, "jti:b": 2e9, "jti:c": 2e9})
    newer = make_table(revoked={"jti:a": 3e9, "jti:b": 1e9})
    newer.inherit(older)
    assert dict(newer.revocations) == {"jti:a": 3e9, "jti:b": 2e9, "jti:c": 2e9}
    # An item that the table holds already is no change.
    known = newer.version
    newer.inherit(older)
    assert newer.version is known


def test_a_table_without_revocations_revokes_no_grant() -> None:
    grant: dict[str, Any] = {"sid": SID, "jti": "t", "sub": "ada", "kid": "k", "issued_at": 0.0}
    assert not make_table().is_revoked(**grant)


def test_of_two_revocations_of_one_name_the_later_one_is_kept() -> None:
    head = Head(epoch="e1", seq=0, term=1, routes=0, revoked=1)
    table = RouteTable(head, RouteReader())
    table.load_revocation("jti:a", 3e9)
    table.load_revocation("jti:a", 2e9)
    table.complete()
    assert dict(table.revocations) == {"jti:a": 3e9}


def test_a_revocation_that_expires_now_is_still_effective() -> None:
    table = make_table(revoked={"jti:a": 1000.0})
    table.prune(1000.0)
    assert "jti:a" in table.revocations


def test_without_keys_plain_and_signed_routes_are_read() -> None:
    # A reader without keys accepts it, so controllers can begin to sign before every gateway has
    # keys.
    assert isinstance(RouteReader().read(SID, signed(make_route()), epoch="e1"), Route)
    with pytest.raises(UnreadableRoute, match="another epoch"):
        RouteReader().read(SID, signed(make_route()), epoch="e2")
