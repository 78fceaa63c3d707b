"""Tests sums over workers: counters never decrease, gauges cover the running workers only."""

from __future__ import annotations

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from gateway.workers.sums import Sums, families_of


class Fixed(Collector):
    def __init__(self, count: int, *, expires: float = 100.0) -> None:
        self.count = count
        self.expires = expires

    def collect(self) -> list[Metric]:
        counter = CounterMetricFamily("asked", "Asked.", labels=["class"])
        counter.add_metric(["2xx"], self.count)
        counter.add_metric([f"{self.count}xx"], 1)
        least = "fumarole_gateway_tls_expires_at_seconds"
        return [
            counter,
            GaugeMetricFamily("open", "Open.", value=self.count),
            GaugeMetricFamily(least, "Expires.", value=self.expires),
        ]


def told(sums: Sums) -> str:
    registry = CollectorRegistry()
    registry.register(sums)
    return generate_latest(registry).decode()


def test_counters_and_gauges_are_added_up_by_their_labels() -> None:
    sums = Sums()
    sums.update(0, families_of([Fixed(3)]))
    sums.update(1, families_of([Fixed(4, expires=50.0)]))
    text = told(sums)
    assert 'asked_total{class="2xx"} 7.0' in text
    assert 'asked_total{class="3xx"} 1.0' in text
    assert "open 7.0" in text
    assert "fumarole_gateway_tls_expires_at_seconds 50.0" in text


def test_the_latest_values_of_a_worker_count_once() -> None:
    sums = Sums()
    for count in (1, 2, 5):
        sums.update(0, families_of([Fixed(count)]))
    assert 'asked_total{class="2xx"} 5.0' in told(sums)


def test_an_exited_worker_keeps_its_counters_and_drops_its_gauges() -> None:
    sums = Sums()
    sums.update(0, families_of([Fixed(3)]))
    sums.update(1, families_of([Fixed(4)]))
    sums.retire(0)
    assert 'asked_total{class="2xx"} 7.0' in told(sums)
    assert "open 4.0" in told(sums)
    sums.update(0, families_of([Fixed(1)]))
    assert 'asked_total{class="2xx"} 8.0' in told(sums)
    for number in (0, 1, 1):
        sums.retire(number)
    assert 'asked_total{class="2xx"} 8.0' in told(sums)
    assert "open" not in told(sums).replace("Open", "")
