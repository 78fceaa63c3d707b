"""Metrics of plugins: of their hooks, and their own.

Own metrics are named after the plugin, and their label values are declared.

A label with values that jobs choose would fill the memory of this process and of the monitoring
system. So the values of each label are declared, and any other value counts as ``other``.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.metrics import MetricWrapperBase

OTHER: Final = "other"
MOST_METRICS: Final = 50
MOST_SERIES: Final = 200
"""Of one metric."""

_NAME: Final = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*", re.ASCII)
_LONGEST_NAME: Final = 60
_RESERVED: Final = frozenset({"le", "quantile"})
_SECONDS: Final = (0.001, 0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60)

_CALL_BUCKETS: Final = (0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300, 1800, 7200)
_HOOK_BUCKETS: Final = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5, 10, 30)

Labels = Mapping[str, Collection[str]]
_NONE: Final[Labels] = MappingProxyType({})
M = TypeVar("M", bound=MetricWrapperBase)


class _Labelled:
    """Applies labels to a metric, with declared values only."""

    def __init__(self, labels: Labels) -> None:
        self._labels = {name: frozenset(values) for name, values in labels.items()}

    def _of(self, metric: M, given: Mapping[str, str]) -> M:
        if given.keys() != self._labels.keys():
            named = ", ".join(self._labels) or "none"
            raise ValueError(f"the labels of this metric are: {named}")
        if not given:
            return metric
        values = {
            name: given[name] if given[name] in allowed else OTHER
            for name, allowed in self._labels.items()
        }
        return metric.labels(**values)


class PluginCounter(_Labelled):
    """A counter."""

    def __init__(self, metric: Counter, labels: Labels) -> None:
        super().__init__(labels)
        self._metric = metric

    def inc(self, amount: float = 1.0, **labels: str) -> None:
        """Add *amount*, which must not be negative."""
        self._of(self._metric, labels).inc(amount)


class PluginGauge(_Labelled):
    """A gauge."""

    def __init__(self, metric: Gauge, labels: Labels) -> None:
        super().__init__(labels)
        self._metric = metric

    def set(self, value: float, **labels: str) -> None:
        """Set the gauge to *value*."""
        self._of(self._metric, labels).set(value)


class PluginHistogram(_Labelled):
    """A histogram."""

    def __init__(self, metric: Histogram, labels: Labels) -> None:
        super().__init__(labels)
        self._metric = metric

    def observe(self, value: float, **labels: str) -> None:
        """Observe *value*."""
        self._of(self._metric, labels).observe(value)


class PluginMetrics:
    """Creates the metrics of a plugin: ``fumarole_plugin_<plugin>_<name>``.

    A plugin creates them in its constructor, so that errors are found when the process starts.
    """

    def __init__(self, plugin: str, registry: CollectorRegistry) -> None:
        self._plugin = plugin
        self._registry = registry
        self._count = 0

    def counter(self, name: str, text: str, labels: Labels = _NONE) -> PluginCounter:
        """Return a new counter, whose name gets the suffix ``_total``.

        Args:
            name: Its name within the plugin.
            text: The description of the counted events.
            labels: The values of each label, beside ``other``.

        Raises:
            ValueError: If the name is taken or invalid, or there would be too many series.
        """
        names = self._checked(name, labels)
        made = Counter(self._named(name), text, names, registry=self._registry)
        return PluginCounter(made, labels)

    def gauge(self, name: str, text: str, labels: Labels = _NONE) -> PluginGauge:
        """Return a new gauge; arguments and errors are those of :meth:`counter`."""
        names = self._checked(name, labels)
        made = Gauge(self._named(name), text, names, registry=self._registry)
        return PluginGauge(made, labels)

    def histogram(
        self,
        name: str,
        text: str,
        labels: Labels = _NONE,
        *,
        buckets: Sequence[float] = _SECONDS,
    ) -> PluginHistogram:
        """Return a new histogram; other arguments and errors are those of :meth:`counter`.

        Args:
            name: Its name within the plugin.
            text: The description of the measured value.
            labels: The values of each label, beside ``other``.
            buckets: The upper bounds of its buckets; by default those for seconds.
        """
        names = self._checked(name, labels, each=len(buckets) + 3)
        made = Histogram(
            self._named(name), text, names, buckets=tuple(buckets), registry=self._registry
        )
        return PluginHistogram(made, labels)

    def _named(self, name: str) -> str:
        return f"fumarole_plugin_{self._plugin}_{name}"

    def _checked(self, name: str, labels: Labels, *, each: int = 1) -> list[str]:
        for one in (name, *labels):
            if not _NAME.fullmatch(one) or len(one) > _LONGEST_NAME or one in _RESERVED:
                raise ValueError(f"{one!r} cannot be the name of a metric or label")
        series = each * math.prod(len({*values, OTHER}) for values in labels.values())
        if series > MOST_SERIES:
            raise ValueError(f"the metric {name} has {series} series, more than {MOST_SERIES}")
        self._count += 1
        if self._count > MOST_METRICS:
            raise ValueError(f"more than {MOST_METRICS} metrics")
        return list(labels)


class HookCounts:
    """Metrics of plugins' hooks; the plugins' names come from the settings."""

    def __init__(self, registry: CollectorRegistry) -> None:
        self._registry = registry
        self._calls = Counter(
            "fumarole_controller_hooks",
            "Calls of plugins' hooks, by result",
            ["plugin", "hook", "result"],
            registry=registry,
        )
        self._seconds = Histogram(
            "fumarole_controller_hook_seconds",
            "Seconds per hook call, by plugin",
            ["plugin"],
            buckets=_CALL_BUCKETS,
            registry=registry,
        )
        self._by_hook = Histogram(
            "fumarole_controller_plugin_hook_seconds",
            "Seconds per hook call, by plugin and hook",
            ["plugin", "hook"],
            buckets=_HOOK_BUCKETS,
            registry=registry,
        )

    def hook_ended(self, plugin: str, hook: str, result: str, seconds: float) -> None:
        """Count a call."""
        self._by_hook.labels(plugin, hook).observe(seconds)
        self._calls.labels(plugin, hook, result).inc()
        self._seconds.labels(plugin).observe(seconds)

    def watch(self, plugins: Sequence[str], stuck: Callable[[], Mapping[str, int]]) -> None:
        """Register the gauge of abandoned calls, which *stuck* returns by plugin."""
        gauge = Gauge(
            "fumarole_controller_hooks_stuck",
            "Hook calls that exceeded their deadline and still run",
            ["plugin"],
            registry=self._registry,
        )

        def count(plugin: str) -> int:
            return stuck().get(plugin, 0)

        for name in plugins:
            gauge.labels(name).set_function(partial(count, name))
