"""A cached decision: which requests it covers, and when it ends."""

from __future__ import annotations

import gc
import weakref
from typing import Any

import pytest

from gateway.core.access.access_right import AccessRight
from gateway.core.downstream.cached_decision import CachedDecision
from gateway.core.http.fields import FieldReader, Fields
from gateway.core.http.heads import read_start_line
from gateway.core.http.request_reader import RequestHead
from shared.routes.table import RouteTable
from tests.gateway.relay.harness import GRANT, HOST, SID, route, table_of

NOW = GRANT.ends_at - 100


def fields(*lines: str, host: str = HOST, cookie: str = "fumarole=c") -> Fields:
    sent = (f"Host: {host}", f"Cookie: {cookie}", *lines, "", "")
    return FieldReader(b"fumarole").read_section("\r\n".join(sent).encode(), None).fields


def head(said: Fields, line: str = "GET / HTTP/1.1") -> RequestHead:
    return RequestHead(read_start_line(line.encode()), said)


def make_cached_decision(table: RouteTable, **changes: Any) -> CachedDecision:
    known = table.route(SID)
    assert known is not None
    assert known.target is not None
    access_right = AccessRight(route=known, host=known.hosts[0], grant=GRANT)
    values: dict[str, Any] = {
        "access_right": access_right, "target": known.target, "table": table, "user": "sub ada",
        "forwarded": b"", "reusable": True,
    } | changes  # fmt: skip
    made = CachedDecision.make(**values)
    made.fields = fields()
    return made


@pytest.fixture
def table() -> RouteTable:
    return table_of(route(1))


def test_a_cached_decision_applies_to_the_next_request_of_the_same_user(table: RouteTable) -> None:
    one = make_cached_decision(table)
    for line in ("GET / HTTP/1.1", "POST /other?x HTTP/1.1", "HEAD /fumarole HTTP/1.1"):
        assert one.covers(head(fields("X-Other: field"), line), table, NOW)


@pytest.mark.parametrize(
    "other",
    [
        fields(cookie="fumarole=d"),
        fields(cookie="fumarole=c; fumarole=c"),
        fields(cookie="app=1"),
        fields(host=HOST.replace("a", "b", 1)),
        fields("Fumarole-Token: x"),
        fields("X-Forwarded-For: 1.1.1.1"),
        fields("Upgrade: websocket", "Connection: upgrade"),
    ],
)
def test_a_cached_decision_does_not_apply_to_another_user_host_or_method(
    table: RouteTable, other: Fields
) -> None:
    assert not make_cached_decision(table).covers(head(other), table, NOW)


@pytest.mark.parametrize("path", ["/.fumarole", "/.fumarole/", "/.fumarole/open", "/.fumarole?x"])
def test_requests_for_gateway_pages_are_never_cached_decisions(
    table: RouteTable, path: str
) -> None:
    assert not make_cached_decision(table).covers(
        head(fields(), f"GET {path} HTTP/1.1"), table, NOW
    )


def test_a_cached_decision_ends_with_its_grant_or_a_table_change(table: RouteTable) -> None:
    one = make_cached_decision(table)
    assert not one.covers(head(fields()), table, GRANT.ends_at)
    assert not one.covers(head(fields()), table_of(route(1)), NOW), "another table"
    table.version = object()
    assert not one.covers(head(fields()), table, NOW)


def test_an_uncacheable_decision_applies_once(table: RouteTable) -> None:
    assert not make_cached_decision(table, reusable=False).covers(head(fields()), table, NOW)


def test_the_base_path_precedes_the_target() -> None:
    for base, prefix in (("/", b""), ("/lab", b"/lab"), ("/lab/", b"/lab")):
        assert (
            make_cached_decision(table_of(route(1, target={"base_path": base}))).path_prefix
            == prefix
        )


def test_a_cached_decision_does_not_keep_a_replaced_table_in_memory() -> None:
    table = table_of(route(1))
    one, gone = make_cached_decision(table), weakref.ref(table)
    del table
    gc.collect()
    assert gone() is None
    assert not one.covers(head(fields()), table_of(route(1)), NOW)
