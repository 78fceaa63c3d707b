"""Sums of the metrics of all workers. No I/O.

Counters and histograms never decrease: the values of an exited worker are kept. Gauges are the sums
of the running workers.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from gateway.workers.channel import Family, Sample

_CUMULATIVE: Final = frozenset({"counter", "histogram"})
_MINIMUM: Final = frozenset(
    {
        "fumarole_gateway_tls_expires_at_seconds",
        "process_max_fds",
        "process_start_time_seconds",
    }
)
"""Gauges that are reported as the minimum instead of the sum."""

_Key: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]


def families_of(collectors: Iterable[Collector]) -> tuple[Family, ...]:
    """Return the current metrics of *collectors*."""
    return tuple(
        Family(
            name=metric.name,
            text=metric.documentation,
            kind=metric.type,
            samples=tuple(Sample(s.name, dict(s.labels), s.value) for s in metric.samples),
        )
        for collector in collectors
        for metric in collector.collect()
    )


def metrics_of(families: Iterable[Family]) -> Iterator[Metric]:
    """Yield *families* as the metrics of a collector."""
    for family in families:
        metric = Metric(family.name, family.text, family.kind)
        for sample in family.samples:
            metric.add_sample(sample.name, sample.labels, sample.value)
        yield metric


class Sums(Collector):
    """Sums up the last metrics of each worker."""

    def __init__(self) -> None:
        self._current: dict[int, tuple[Family, ...]] = {}
        self._retired: tuple[Family, ...] = ()

    def update(self, number: int, families: tuple[Family, ...]) -> None:
        """Replace the metrics of worker *number*, counted since its start."""
        self._current[number] = families

    def retire(self, number: int) -> None:
        """Handle the exit of worker *number*: keep its counters, drop its gauges."""
        families = self._current.pop(number, ())
        cumulative = [
            family for family in (*self._retired, *families) if family.kind in _CUMULATIVE
        ]
        self._retired = tuple(_families(_added(cumulative), cumulative))

    def collect(self) -> Iterator[Metric]:
        """Yield the sums."""
        families = [*self._retired, *(family for each in self._current.values() for family in each)]
        yield from metrics_of(_families(_added(families), families))


def _added(families: Iterable[Family]) -> dict[str, dict[_Key, float]]:
    sums: dict[str, dict[_Key, float]] = {}
    for family in families:
        values = sums.setdefault(family.name, {})
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            known = values.get(key)
            if known is None:
                values[key] = sample.value
            elif family.name in _MINIMUM:
                values[key] = min(known, sample.value)
            else:
                values[key] = known + sample.value
    return sums


def _families(
    sums: Mapping[str, Mapping[_Key, float]], families: Iterable[Family]
) -> Iterator[Family]:
    for family in {family.name: family for family in families}.values():
        values = sums[family.name].items()
        samples = tuple(Sample(name, dict(labels), value) for (name, labels), value in values)
        yield Family(family.name, family.text, family.kind, samples)
