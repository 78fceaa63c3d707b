"""What operators see of the follower: metrics, and ``/debug/routes``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.bus.holder import Noted, RouteTableHolder
from gateway.core.access.explain import Conditions, explain
from gateway.core.bus_state import Bus
from shared.networks import Bounds
from shared.reports import Failure
from shared.routes.route import State


class FollowedMeters(Collector):
    """Counts what happened while following; all labels come from closed sets."""

    def __init__(self, holder: RouteTableHolder) -> None:
        self._holder = holder

    def collect(self) -> Iterator[Metric]:
        """Yield how the table got where it is."""
        noted = CounterMetricFamily(
            "fumarole_gateway_bus_noted", "What happened while following.", labels=["what"]
        )
        # Also those that have not happened: of a count that begins with 1 nobody sees that it rose.
        for what in get_args(Noted):
            noted.add_metric([what], self._holder.noted[what])
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


def rank_of(holder: RouteTableHolder) -> tuple[int, ...]:
    """Return what orders followers by what they know: the least is furthest behind."""
    table = holder.table
    known = list(Bus)[::-1].index(holder.bus) if holder.bus is not Bus.STARTING else -1
    if table is None:
        return (known,)
    return known, table.head.term, table.head.build, table.seq


def describe_host(
    host: str,
    holder: RouteTableHolder,
    bounds: Bounds,
    *,
    now: float,
    failing: Mapping[str, Failure],
) -> dict[str, Any]:
    """Return how *host* stands, and why, without secrets; *failing* are sessions by their id."""
    conditions = Conditions(
        bus=holder.bus, dialling=holder.dialling, bounds=bounds, now=now, failing=failing
    )
    return explain(host, holder.table, conditions)


def describe(holder: RouteTableHolder) -> dict[str, Any]:
    """Return what can be told of the table, without its secrets."""
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
