"""Why a host is served or not: the explanation for operators, without secrets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from ipaddress import ip_address
from typing import Any, Final

import msgspec

from gateway.core.bus_state import Bus
from shared.networks import Bounds
from shared.reports import Failure
from shared.routes.route import Route
from shared.routes.table import Found, RouteTable, Standing

SERVED: Final = "served"
FAILING: Final = "failing"
WHY: Final[dict[str, str]] = {
    "no_table": "no route table could be read yet",
    "bus_closed": "the bus has been lost for longer than its grace",
    "unknown": "no route names this host",
    "ambiguous": "two routes name this host, so neither is served there",
    "unsigned": "the route is not signed, and only signed ones are served",
    "unreadable": "the route cannot be read",
    "starting": "the session is starting",
    "closing": "the session is closing: what is open goes on, anything new is refused",
    "expired": "the session's time is over",
    "forbidden_target": "the target is outside the networks in which targets may be",
    "controller_silent": "the controller has been silent for longer than its grace: "
    "what is open goes on, nothing new is dialled",
    "bus_lost": "the bus is lost: users with a cookie are served, no session can be opened",
    FAILING: "users with access are served, but its app, desktop or terminal failed lately",
    SERVED: "users with access are served",
}
"""Each reason and its meaning; the first that applies is given. docs/metrics.md lists them."""

FAILING_SECONDS: Final = 60.0
"""For so long after a failure that browsers saw (502, 504) a session counts as failing; no event
reports its recovery."""
_UNSIGNED: Final = "the route is not signed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Conditions:
    """The conditions that apply to all hosts at the moment."""

    bus: Bus
    dialling: bool
    bounds: Bounds
    now: float
    failing: Mapping[str, Failure]


def explain(host: str, table: RouteTable | None, conditions: Conditions) -> dict[str, Any]:
    """Return whether *host* is served and why; the result holds no credential and no address."""
    name = host.strip().lower()
    if name.rpartition(":")[2].isdigit():
        name = name.rpartition(":")[0]
    why, found = _why(name, table, conditions)
    result: dict[str, Any] = {"host": name[:253], "why": why, "means": WHY[why]}
    if table is not None and why in ("unreadable", "unsigned"):
        entry = table.entry(name.partition(".")[0])
        result["problem"] = None if entry is None else entry.problem
    if found is not None and found.route is not None:
        result |= _describe(found.route) | {"private": found.private}
        failed = conditions.failing.get(found.route.sid)
        result["failed"] = None if failed is None else msgspec.structs.asdict(failed)
    return result


def _why(name: str, table: RouteTable | None, conditions: Conditions) -> tuple[str, Found | None]:
    if table is None:
        return "no_table", None
    found = table.find(name)
    if not conditions.bus.serves:
        return "bus_closed", found
    match found.standing:
        case Standing.ABSENT:
            return "unknown", None
        case Standing.AMBIGUOUS:
            return "ambiguous", None
        case Standing.UNREADABLE:
            entry = table.entry(name.partition(".")[0])
            unsigned = entry is not None and entry.problem == _UNSIGNED
            return ("unsigned" if unsigned else "unreadable"), None
        case _:
            route = found.route
            return (SERVED if route is None else _why_route(route, conditions)), found


def _why_route(route: Route, conditions: Conditions) -> str:
    if route.expires_at is not None and conditions.now >= route.expires_at:
        return "expired"
    if route.state != "ready":
        return route.state
    if route.target is not None and _is_outside(route.target.host, conditions.bounds):
        return "forbidden_target"
    if not conditions.dialling:
        return "controller_silent"
    if not conditions.bus.opens:
        return "bus_lost"
    failed = conditions.failing.get(route.sid)
    lately = failed is not None and conditions.now - failed.at < FAILING_SECONDS
    return FAILING if lately else SERVED


def _is_outside(host: str, bounds: Bounds) -> bool:
    """Return whether *host* is an address outside; a name is checked only when it is dialled."""
    try:
        ip_address(host)
    except ValueError:
        return False
    return not bounds.allow(host)


def _describe(route: Route) -> dict[str, Any]:
    return {
        "sid": route.sid,
        "rev": route.rev,
        "job": route.job,
        "rank": route.rank,
        "kind": route.kind,
        "state": route.state,
        "public": route.public,
        "expires_at": route.expires_at,
        "target": None if route.target is None else route.target.id,
    }
