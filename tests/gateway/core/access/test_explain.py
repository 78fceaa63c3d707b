"""Why a host is served or not: the first reason that applies, and no secret."""

from __future__ import annotations

from dataclasses import replace
from ipaddress import ip_network
from typing import Any

import pytest

from gateway.core.access.explain import WHY, Conditions, explain
from gateway.core.bus_state import Bus
from shared.errors import TokenRefused
from shared.events import Head
from shared.networks import Bounds
from shared.reports import Failure
from shared.routes.route import RouteReader
from shared.routes.table import RouteTable
from tests.gateway.bus.following import BASE, encode, make_route, sid_of

GOOD = Conditions(
    bus=Bus.FOLLOWING,
    dialling=True,
    bounds=Bounds([ip_network("127.0.0.0/8")]),
    now=100.0,
    failing={},
)
ONE = f"{sid_of(1)}.{BASE}"
TARGET = {"scheme": "http", "port": 1, "base_path": "/", "id": "pod-1"}


def table_of(*routes: dict[str, Any], signed: bool = False) -> RouteTable:
    def check(_token: str) -> bytes:
        raise TokenRefused("bad_signature", "no")

    head = Head(epoch="e", seq=1, term=1, routes=0, revoked=0)
    table = RouteTable(head, RouteReader(check if signed else None))
    for route in routes:
        table.load_route(route["sid"], encode(route))
    return table


def why(table: RouteTable | None, host: str = ONE, **conditions: Any) -> str:
    explanation = explain(host, table, replace(GOOD, **conditions))
    assert explanation["means"] == WHY[explanation["why"]]
    return str(explanation["why"])


@pytest.mark.parametrize(("seconds", "expected"), [(0, "failing"), (59, "failing"), (61, "served")])
def test_a_recently_failing_app_is_not_explained_as_served(seconds: int, expected: str) -> None:
    failing = {
        sid_of(1): Failure("app_unreachable", 100.0 - seconds),
        sid_of(2): Failure("x", 99.0),
    }
    table = table_of(make_route(sid_of(1)))
    assert why(table, failing=failing) == expected
    explanation = explain(ONE, table, replace(GOOD, failing=failing))
    at = 100.0 - seconds
    assert explanation["failed"] == {"code": "app_unreachable", "at": at, "reason": ""}
    assert why(table_of(make_route(sid_of(1), state="closing")), failing=failing) == "closing"


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, "served"),
        ({"state": "starting"}, "starting"),
        ({"state": "starting", "target": None}, "starting"),
        ({"state": "closing"}, "closing"),
        ({"expires_at": 100.0}, "expired"),
        ({"expires_at": 100.5}, "served"),
        ({"expires_at": 1.0, "state": "closing"}, "expired"),
        ({"target": TARGET | {"host": "10.0.0.1"}}, "forbidden_target"),
        ({"target": TARGET | {"host": "64:ff9b::a00:1"}}, "forbidden_target"),
        ({"target": TARGET | {"host": "app.example"}}, "served"),
    ],
)
def test_an_explanation_states_why_a_route_is_not_served(
    changes: dict[str, Any], expected: str
) -> None:
    assert why(table_of(make_route(sid_of(1), **changes))) == expected


def test_a_special_address_is_forbidden_unless_a_network_within_it_is_allowed() -> None:
    table = table_of(make_route(sid_of(1)))
    assert why(table, bounds=Bounds([ip_network("0.0.0.0/0")])) == "forbidden_target"


def test_an_unserved_host_is_explained_by_its_reason() -> None:
    link = {"hosts": [ONE, "link.example"], "public": True}
    other = {"hosts": [f"{sid_of(2)}.{BASE}", "link.example"], "public": True}
    both = table_of(make_route(sid_of(1), **link), make_route(sid_of(2), **other))
    assert why(both, "link.example") == "ambiguous"
    assert why(both, "other.example") == "unknown"
    assert why(table_of({"sid": sid_of(1), "rev": "x"})) == "unreadable"
    assert why(table_of(make_route(sid_of(1)), signed=True)) == "unsigned"
    assert why(None) == "no_table"


@pytest.mark.parametrize(
    ("conditions", "expected"),
    [
        ({"bus": Bus.CLOSED}, "bus_closed"),
        ({"bus": Bus.LOST}, "bus_lost"),
        ({"dialling": False}, "controller_silent"),
        ({"dialling": False, "bus": Bus.LOST}, "controller_silent"),
    ],
)
def test_an_unusable_bus_is_explained(conditions: dict[str, Any], expected: str) -> None:
    assert why(table_of(make_route(sid_of(1))), **conditions) == expected


@pytest.mark.parametrize("host", [ONE.upper(), f" {ONE} ", f"{ONE}:8443"])
def test_a_host_is_found_from_a_pasted_url(host: str) -> None:
    assert why(table_of(make_route(sid_of(1))), host) == "served"


def test_an_explanation_holds_no_secret_and_no_address() -> None:
    table = table_of(make_route(sid_of(1), sealed="the-secret", message="the-message"))
    explanation = str(explain(ONE, table, GOOD))
    for secret in ("the-secret", "the-message", "127.0.0.1", "8888"):
        assert secret not in explanation
    unreadable = table_of({"sid": sid_of(1), "rev": "the-value"})
    assert "the-value" not in str(explain(ONE, unreadable, GOOD))
