"""What operators see of the follower: metrics, and ``/debug/routes``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, get_args

from aiohttp import web
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.registry import Collector

from gateway.core.access.explain import Conditions, explain
from gateway.core.bus_state import Bus
from shared.routes import State

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from gateway.bus.holder import RouteTableHolder
    from shared.networks import Bounds
    from shared.reports import Failure


class FollowedMeters(Collector):
    """Counts what happened while following; all labels come from closed sets."""

    def __init__(self, holder: RouteTableHolder) -> None:
        self._holder = holder

    def collect(self) -> Iterator[Metric]:
        """Yield how the table got where it is."""
        noted = CounterMetricFamily(
            "fumarole_gateway_bus_noted", "What happened while following.", labels=["what"]
        )
        for what, count in self._holder.noted.items():
            noted.add_metric([what], count)
        yield noted


class TableMeters(Collector):
    """Reads the holder whenever Prometheus asks; all labels come from closed sets."""

    def __init__(self, holder: RouteTableHolder) -> None:
        self._holder = holder

    def collect(self) -> Iterator[Metric]:
        """Yield where the table and the bus stand."""
        holder = self._holder
        bus = holder.bus
        state = GaugeMetricFamily("fumarole_gateway_bus", "1 for its state.", labels=["state"])
        for each in Bus:
            state.add_metric([each.value], float(each is bus))
        yield state
        yield _gauge("bus_lag_seconds", "Of the last event.", holder.lag_seconds)
        yield _gauge("controller_silent", "1 beyond its grace.", float(not holder.dialling))
        table = holder.table
        if table is None:
            return
        states = GaugeMetricFamily(
            "fumarole_gateway_routes", "Readable routes by state.", labels=["state"]
        )
        for name in get_args(State):
            states.add_metric([name], table.states[name])
        yield states
        yield _gauge("revocations", "Revocations that are still of use.", len(table.revocations))
        yield _gauge("routes_unreadable", "Routes that are not served.", table.unreadable)
        ambiguous = len(table.ambiguous_hosts())
        yield _gauge("hosts_ambiguous", "Hosts that two routes name.", ambiguous)
        yield _gauge("seq", "Of the last event applied.", table.seq)
        info = InfoMetricFamily("fumarole_gateway_table", "Epoch and hash of the table.")
        info.add_metric([], {"epoch": table.epoch, "hash": f"{table.hash:016x}"})
        yield info


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"fumarole_gateway_{name}", text, value=value)


def make_debug_route(
    holder: RouteTableHolder, conditions: Callable[[], Conditions]
) -> web.RouteDef:
    """Return ``/debug/routes``: where the table stands and, with ``?host=``, how a host does.

    Args:
        holder: Keeps the table.
        conditions: What holds for all hosts at the moment.
    """

    async def debug(request: web.Request) -> web.Response:
        return web.json_response(describe(holder, request.query.get("host"), conditions))

    return web.get("/debug/routes", debug)


def rank_of(holder: RouteTableHolder) -> tuple[int, ...]:
    """Return what orders followers by what they know: the least is furthest behind."""
    table = holder.table
    known = list(Bus)[::-1].index(holder.bus) if holder.bus is not Bus.STARTING else -1
    if table is None:
        return (known,)
    return known, table.head.term, table.head.build, table.seq


def make_conditions(
    holder: RouteTableHolder,
    bounds: Bounds,
    wall: Callable[[], float],
    failing: Callable[[], Mapping[str, Failure]] = dict,
) -> Callable[[], Conditions]:
    """Return what tells the conditions under which hosts are served at the moment."""
    return lambda: Conditions(
        bus=holder.bus,
        dialling=holder.dialling,
        bounds=bounds,
        now=wall(),
        failing=failing(),
    )


def describe(
    holder: RouteTableHolder,
    host: str | None = None,
    conditions: Callable[[], Conditions] | None = None,
) -> dict[str, Any]:
    """Return what can be told of the table, and of *host* in it, without its secrets."""
    told = _describe(holder)
    if host is not None and conditions is not None:
        told["host"] = explain(host, holder.table, conditions())
    return told


def _describe(holder: RouteTableHolder) -> dict[str, Any]:
    told: dict[str, Any] = {
        "bus": holder.bus.value,
        "controller_silent": not holder.dialling,
        "lag_seconds": round(holder.lag_seconds, 6),
        "noted": dict(holder.noted),
    }
    table = holder.table
    if table is None:
        return told
    return told | {
        "epoch": table.epoch,
        "seq": table.seq,
        "hash": f"{table.hash:016x}",
        "routes": len(table),
        "states": {state: table.states[state] for state in get_args(State)},
        "unreadable": table.unreadable,
        "ambiguous": len(table.ambiguous_hosts()),
        "revocations": len(table.revocations),
    }
