"""Metrics of the follower, and the content of ``/debug/routes``."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, get_args

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, InfoMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.bus.holder import Noted, RouteTableHolder
from gateway.core.bus_state import Bus
from shared.routes.route import State


class FollowerMetrics(Collector):
    """Counters of the follower; all labels come from closed sets."""

    def __init__(self, holder: RouteTableHolder) -> None:
        self._holder = holder

    def collect(self) -> Iterator[Metric]:
        """Yield the counters."""
        noted = CounterMetricFamily(
            "fumarole_gateway_bus_noted", "Events while following the bus.", labels=["what"]
        )
        # Zeros as well: rate() does not see the increase of a counter that appears with 1.
        for what in get_args(Noted):
            noted.add_metric([what], self._holder.noted[what])
        yield noted


class TableMetrics(Collector):
    """Gauges of the table, computed at each scrape; all labels come from closed sets."""

    def __init__(self, holder: RouteTableHolder) -> None:
        self._holder = holder

    def collect(self) -> Iterator[Metric]:
        """Yield the state of the table and of the bus."""
        holder = self._holder
        bus = holder.bus
        state = GaugeMetricFamily(
            "fumarole_gateway_bus", "State of the bus: 1 for the current state.", labels=["state"]
        )
        for each in Bus:
            state.add_metric([each.value], float(each is bus))
        yield state
        yield _gauge(
            "bus_lag_seconds",
            "Seconds from the publication of the last event until it was applied.",
            holder.lag_seconds,
        )
        yield _gauge(
            "controller_silent",
            "1 while the controller has been silent for longer than its grace period.",
            float(not holder.dialling),
        )
        table = holder.table
        if table is None:
            return
        states = GaugeMetricFamily(
            "fumarole_gateway_routes", "Readable routes by state.", labels=["state"]
        )
        for name in get_args(State):
            states.add_metric([name], table.states[name])
        yield states
        yield _gauge("revocations", "Revocations in the table.", len(table.revocations))
        yield _gauge(
            "routes_unreadable", "Routes that cannot be read and are not served.", table.unreadable
        )
        ambiguous = len(table.ambiguous_hosts())
        yield _gauge("hosts_ambiguous", "Hosts that more than one route names.", ambiguous)
        yield _gauge("seq", "Sequence number of the last event applied.", table.seq)
        info = InfoMetricFamily("fumarole_gateway_table", "Epoch and hash of the table.")
        info.add_metric([], {"epoch": table.epoch, "hash": f"{table.hash:016x}"})
        yield info


def _gauge(name: str, text: str, value: float) -> GaugeMetricFamily:
    return GaugeMetricFamily(f"fumarole_gateway_{name}", text, value=value)


def rank_of(holder: RouteTableHolder) -> tuple[int, ...]:
    """Return a sort key for followers: the smallest is furthest behind."""
    table = holder.table
    known = list(Bus)[::-1].index(holder.bus) if holder.bus is not Bus.STARTING else -1
    if table is None:
        return (known,)
    return known, table.head.term, table.head.build, table.seq


def describe(holder: RouteTableHolder) -> dict[str, Any]:
    """Return a description of the table and the bus, without secrets."""
    description: dict[str, Any] = {
        "bus": holder.bus.value,
        "controller_silent": not holder.dialling,
        "lag_seconds": round(holder.lag_seconds, 6),
        "noted": dict(holder.noted),
    }
    table = holder.table
    if table is None:
        return description
    return description | {
        "epoch": table.epoch,
        "seq": table.seq,
        "hash": f"{table.hash:016x}",
        "routes": len(table),
        "states": {state: table.states[state] for state in get_args(State)},
        "unreadable": table.unreadable,
        "ambiguous": len(table.ambiguous_hosts()),
        "revocations": len(table.revocations),
    }
