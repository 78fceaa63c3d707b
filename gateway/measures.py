"""What operators see of the follower: metrics, and ``/debug/routes``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from aiohttp import web
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

from gateway.core.bus_state import Bus
from shared.routes import Found, Standing

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from gateway.feed import Feed


class FeedMeters(Collector):
    """Reads the follower whenever Prometheus asks; all labels come from closed sets."""

    def __init__(self, feed: Feed) -> None:
        self._feed = feed

    def collect(self) -> Iterator[Metric]:
        """Yield where the table stands and how it got there."""
        feed = self._feed
        bus = feed.bus
        state = GaugeMetricFamily("fumarole_gateway_bus", "1 for its state.", labels=["state"])
        for each in Bus:
            state.add_metric([each.value], float(each is bus))
        yield state
        noted = CounterMetricFamily(
            "fumarole_gateway_bus_noted", "What happened while following.", labels=["what"]
        )
        for what, count in feed.noted.items():
            noted.add_metric([what], count)
        yield noted
        yield _gauge("bus_lag_seconds", "Of the last event.", feed.lag_seconds)
        yield _gauge("controller_silent", "1 beyond its grace.", float(not feed.dialling))
        table = feed.table
        if table is None:
            return
        yield _gauge("routes", "Routes in the table.", len(table))
        yield _gauge("routes_unreadable", "Routes that are not served.", table.unreadable)
        ambiguous = len(table.ambiguous_hosts())
        yield _gauge("hosts_ambiguous", "Hosts that two routes name.", ambiguous)
        yield _gauge("seq", "Of the last event applied.", table.seq)
        info = InfoMetricFamily("fumarole_gateway_table", "Epoch and hash of the table.")
        info.add_metric([], {"epoch": table.epoch, "hash": f"{table.hash:016x}"})
        yield info


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"fumarole_gateway_{name}", text, value=value)


def make_debug_route(feed: Feed) -> web.RouteDef:
    """Return ``/debug/routes``: where the table stands and, with ``?host=``, how a host does."""

    async def debug(request: web.Request) -> web.Response:
        return web.json_response(describe(feed, request.query.get("host")))

    return web.get("/debug/routes", debug)


def describe(feed: Feed, host: str | None) -> dict[str, Any]:
    """Return what can be told of the table without its secrets."""
    told: dict[str, Any] = {
        "bus": feed.bus.value,
        "controller_silent": not feed.dialling,
        "lag_seconds": round(feed.lag_seconds, 6),
        "noted": dict(feed.noted),
    }
    table = feed.table
    if table is None:
        return told
    told |= {
        "epoch": table.epoch,
        "seq": table.seq,
        "hash": f"{table.hash:016x}",
        "routes": len(table),
        "unreadable": table.unreadable,
        "ambiguous": len(table.ambiguous_hosts()),
    }
    if host is not None:
        told["host"] = describe_host(host.lower(), table.find(host.lower()))
    return told


def describe_host(host: str, found: Found) -> dict[str, Any]:
    """Return how *host* stands, and why."""
    told: dict[str, Any] = {"host": host, "standing": found.standing.value}
    route = found.route
    if found.standing is Standing.SERVED and route is not None:
        told |= {
            "sid": route.sid,
            "rev": route.rev,
            "job": route.job,
            "rank": route.rank,
            "kind": route.kind,
            "state": route.state,
            "private": found.private,
            "expires_at": route.expires_at,
            "target": None if route.target is None else route.target.id,
        }
    return told
