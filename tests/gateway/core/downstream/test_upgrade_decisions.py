"""Decisions on upgrades that are used again: they never admit what a new decision would refuse."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.access.access_right import UNCOUNTED, ActivityCounter
from gateway.core.access.decision import Access, Forward
from gateway.core.access.grants import Grant, GrantKeys
from gateway.core.access.site import Site
from gateway.core.downstream.cached_decision import CachedDecision
from gateway.core.http.fields import FieldReader
from gateway.core.http.heads import read_start_line
from gateway.core.http.request_reader import RequestHead
from shared.routes.table import RouteTable
from tests.gateway.relay.harness import BASE, OTHER_SID, PORT, SID, FakeWorld, route, table_of

HOST = f"{SID}.{BASE}:{PORT}"
NOW = 1_000_000.0
GRANT = Grant(SID, "t1", "k1", "ada", "control", NOW - 5, NOW + 100)
KEYS = GrantKeys([bytes(range(32))])
ACCESS = Access(Site(scheme="http", base=BASE, port=PORT), KEYS)
SECTION = (
    f"Host: {HOST}\r\nCookie: fumarole={KEYS.sign(GRANT)}\r\nOrigin: http://{HOST}\r\n"
    "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n"
).encode()
FIELDS = FieldReader(b"fumarole").read_section(SECTION, None).fields


def decide(table: RouteTable, now: float, line: bytes = b"GET /ws HTTP/1.1") -> object:
    request = RequestHead(read_start_line(line), FIELDS)
    return ACCESS.decide(request, table=table, now=now)


def cached(table: RouteTable, now: float = NOW, **changes: Any) -> CachedDecision | None:
    """Return the decision on the upgrade as admission caches it; None if it is refused."""
    decision = decide(table, now)
    if not isinstance(decision, Forward) or decision.access_right.route.target is None:
        return None
    right = decision.access_right
    fields: dict[str, Any] = {
        "access_right": right, "target": right.route.target, "table": table, "user": "sub ada",
        "forwarded": b"", "reusable": False,
    } | changes  # fmt: skip
    return CachedDecision.make(**fields)


def covers(
    one: CachedDecision, table: RouteTable, now: float = NOW, *, line: bytes = b"GET /ws HTTP/1.1"
) -> bool:
    return one.covers_upgrade(RequestHead(read_start_line(line), FIELDS), table, now)


def test_a_decision_covers_other_upgrades_until_table_or_right_change() -> None:
    table = table_of(route(1))
    one = cached(table)
    assert one is not None
    assert covers(one, table)
    assert covers(one, table, line=b"GET /other?a=b HTTP/1.1")
    assert not covers(one, table, GRANT.ends_at)
    assert not covers(one, table_of(route(1))), "another table"
    table.version = object()
    assert not covers(one, table)


@pytest.mark.parametrize("path", [b"/.fumarole", b"/.fumarole/connect", b"/.fumarole?x"])
def test_a_decision_covers_no_page_of_the_gateway(path: bytes) -> None:
    table = table_of(route(1))
    one = cached(table)
    assert one is not None
    assert not covers(one, table, line=b"GET %b HTTP/1.1" % path)


def test_a_decision_covers_no_upgrade_once_a_notice_is_due() -> None:
    table = table_of(route(1))
    one = cached(table, until=NOW + 10)
    assert one is not None
    assert covers(one, table, NOW + 9)
    assert not covers(one, table, NOW + 10)


def test_each_connection_of_a_decision_has_a_right_of_its_own() -> None:
    one = cached(table_of(route(1)))
    assert one is not None
    one.access_right.activity = ActivityCounter()
    one.access_right.attachment = (1, NOW)
    other = one.for_client("10.0.0.2")
    right = other.access_right
    assert (right.address, right.attachment, right.activity) == ("10.0.0.2", None, UNCOUNTED)
    assert (right.grant, right.user, right.ends_at) == (GRANT, "ada", GRANT.ends_at)
    assert (one.access_right.address, one.access_right.attachment) == ("", (1, NOW))
    assert (other.target, other.user, other.version) == (one.target, one.user, one.version)


CHANGES = st.one_of(
    st.fixed_dictionaries(
        {"sid": st.sampled_from([SID, OTHER_SID])},
        optional={
            "state": st.sampled_from(["ready", "starting", "closing"]),
            "kind": st.sampled_from(["web", "vnc", "later"]),
            "expires_at": st.sampled_from([NOW - 1, NOW + 2, NOW + 1000]),
            "service_workers": st.booleans(),
            "target": st.sampled_from([{}, {"id": "pod2", "port": 2}]),
        },
    ),
    st.sampled_from(
        [
            {"revoke": {"sid": SID}},
            {"revoke": {"sid": SID, "jti": "t1"}},
            {"revoke": {"sid": SID, "sub": "ada"}},
            {"revoke": {"kid": "k1"}},
            {"revoke": {"sid": OTHER_SID}},
            {"remove": SID},
            {"remove": OTHER_SID},
        ]
    ),
    st.sampled_from([0.5, 3.0, 60.0]),
)


@given(st.lists(CHANGES, max_size=8))
def test_a_covered_upgrade_is_admitted_alike_by_a_new_decision(changes: list[Any]) -> None:
    """The reference is the access decision itself, after any changes of table and time."""
    world, now = FakeWorld(table=table_of(route(1))), NOW
    table = world.table
    assert table is not None
    known = [cached(table)]
    for change in changes:
        if isinstance(change, float):
            now += change
        elif "revoke" in change:
            world.revoke(**change["revoke"])
        elif "remove" in change:
            world.remove(change["remove"])
        else:
            world.upsert(route(1, **change))
        for one in known:
            if one is None or not covers(one, table, now):
                continue
            decision = decide(table, now)
            assert isinstance(decision, Forward)
            assert decision.access_right.route.target == one.target
            assert decision.access_right.grant == one.access_right.grant
            assert decision.access_right.ends_at == one.access_right.ends_at
        known.append(cached(table, now))
