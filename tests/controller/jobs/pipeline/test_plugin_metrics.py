"""Tests plugins' metrics: prefixed names, and no series beyond the declared values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from controller.jobs.pipeline.plugin_metrics import HookCounts, PluginMetrics


@pytest.fixture
def registry() -> CollectorRegistry:
    return CollectorRegistry()


@pytest.fixture
def metrics(registry: CollectorRegistry) -> PluginMetrics:
    return PluginMetrics("cost_centre", registry)


def test_metrics_are_named_after_their_plugin(
    registry: CollectorRegistry, metrics: PluginMetrics
) -> None:
    metrics.counter("bills", "Bills that were sent").inc(2)
    metrics.gauge("open", "Bills that are open").set(5)
    metrics.histogram("seconds", "How long it took", buckets=(1, 2)).observe(1.5)
    page = generate_latest(registry).decode()
    assert "fumarole_plugin_cost_centre_bills_total 2.0" in page
    assert "fumarole_plugin_cost_centre_open 5.0" in page
    assert 'fumarole_plugin_cost_centre_seconds_bucket{le="2.0"} 1.0' in page


def test_an_undeclared_label_value_creates_no_series(
    registry: CollectorRegistry, metrics: PluginMetrics
) -> None:
    bills = metrics.counter("bills", "Bills", {"result": ("sent", "refused")})
    bills.inc(result="sent")
    for number in range(100):
        bills.inc(result=f"job-{number}")
    page = generate_latest(registry).decode()
    assert 'bills_total{result="sent"} 1.0' in page
    assert 'bills_total{result="other"} 100.0' in page
    assert page.count("bills_total{") == 2
    for labels in ({}, {"result": "sent", "job": "j1"}, {"job": "j1"}):
        with pytest.raises(ValueError, match="the labels of this metric are: result"):
            bills.inc(1.0, **labels)


@pytest.mark.parametrize(
    "make",
    [
        lambda metrics: metrics.gauge("Bills", ""),
        lambda metrics: metrics.gauge("bills__x", ""),
        lambda metrics: metrics.gauge("x" * 100, ""),
        lambda metrics: metrics.gauge("bills", "", {"le": ("a",)}),
        lambda metrics: metrics.gauge("bills", "", {"job": [str(n) for n in range(300)]}),
        lambda metrics: metrics.histogram("bills", "", {"a": "xyz", "b": "xyz"}),
        lambda metrics: [metrics.gauge("bills", "") for _ in range(2)],
        lambda metrics: [metrics.gauge(f"bills_{n}", "") for n in range(60)],
    ],
)
def test_an_invalid_metric_is_refused_at_declaration(
    metrics: PluginMetrics, make: Callable[[PluginMetrics], Any]
) -> None:
    with pytest.raises(ValueError, match=r"cannot be the name|series|Duplicated|more than"):
        make(metrics)


def test_each_hook_has_its_time_and_its_failures(registry: CollectorRegistry) -> None:
    counts = HookCounts(registry)
    counts.hook_ended("stamp", "on_create", "done", 0.002)
    counts.hook_ended("stamp", "on_cleanup", "timed_out", 30.0)
    page = generate_latest(registry).decode()
    assert (
        'fumarole_controller_plugin_hook_seconds_sum{hook="on_cleanup",plugin="stamp"} 30.0' in page
    )
    assert 'plugin_hook_seconds_bucket{hook="on_create",le="0.005",plugin="stamp"} 1.0' in page
    assert 'hooks_total{hook="on_cleanup",plugin="stamp",result="timed_out"} 1.0' in page
