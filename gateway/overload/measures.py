"""What operators see of overload."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from gateway.core.limits.overload import Overload, Step

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from gateway.overload.watch import OverloadWatch


class OverloadMeters(Collector):
    """Reads the step and its watch whenever Prometheus asks."""

    def __init__(self, overload: Overload, watch: OverloadWatch) -> None:
        self._overload = overload
        self._watch = watch

    def collect(self) -> Iterator[Metric]:
        """Yield memory, its bound, and how far load is shed."""
        overload = self._overload
        yield GaugeMetricFamily(
            "fumarole_gateway_memory_bytes", "Resident, as last measured.", overload.used_bytes
        )
        yield GaugeMetricFamily(
            "fumarole_gateway_memory_bound_bytes",
            "What may be used; 0 for without bound.",
            overload.bound_bytes,
        )
        steps = GaugeMetricFamily(
            "fumarole_gateway_shedding", "Workers that shed load at this step.", labels=["step"]
        )
        entered = CounterMetricFamily(
            "fumarole_gateway_shedding_entered", "Times it was entered.", labels=["step"]
        )
        for step in tuple(Step)[1:]:
            steps.add_metric([step.name.lower()], float(overload.step >= step))
            entered.add_metric([step.name.lower()], overload.entered[step])
        yield steps
        yield entered
        yield CounterMetricFamily(
            "fumarole_gateway_shed_connections",
            "Connections closed to shed load, since they were idle or stalled.",
            self._watch.closed,
        )
