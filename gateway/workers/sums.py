"""Metrics of all workers as one: no I/O.

Counters and histograms never fall, also when a worker ends: what it had counted is kept. Gauges
are those of the workers that live.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from gateway.workers.channel import Family, Sample

_LASTING: Final = frozenset({"counter", "histogram"})
_LEAST: Final = frozenset(
    {
        "fumarole_gateway_tls_expires_at_seconds",
        "process_max_fds",
        "process_start_time_seconds",
    }
)
"""Gauges of which the smallest says more than the sum."""

_Key: TypeAlias = tuple[str, tuple[tuple[str, str], ...]]


def families_of(collectors: Iterable[Collector]) -> tuple[Family, ...]:
    """Return what *collectors* tell now."""
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
    """Yield *families* as a registry takes them."""
    for family in families:
        metric = Metric(family.name, family.text, family.kind)
        for sample in family.samples:
            metric.add_sample(sample.name, sample.labels, sample.value)
        yield metric


class Sums(Collector):
    """Adds up what the workers told last."""

    def __init__(self) -> None:
        self._told: dict[int, tuple[Family, ...]] = {}
        self._past: tuple[Family, ...] = ()

    def tell(self, number: int, families: tuple[Family, ...]) -> None:
        """Take what worker *number* has counted since it was started."""
        self._told[number] = families

    def leave(self, number: int) -> None:
        """Worker *number* has ended: keep its counters, forget its gauges."""
        families = self._told.pop(number, ())
        lasting = [family for family in (*self._past, *families) if family.kind in _LASTING]
        self._past = tuple(_families(_added(lasting), lasting))

    def collect(self) -> Iterator[Metric]:
        """Yield the sums."""
        told = [*self._past, *(family for each in self._told.values() for family in each)]
        yield from metrics_of(_families(_added(told), told))


def _added(families: Iterable[Family]) -> dict[str, dict[_Key, float]]:
    sums: dict[str, dict[_Key, float]] = {}
    for family in families:
        values = sums.setdefault(family.name, {})
        for sample in family.samples:
            key = (sample.name, tuple(sorted(sample.labels.items())))
            known = values.get(key)
            if known is None:
                values[key] = sample.value
            elif family.name in _LEAST:
                values[key] = min(known, sample.value)
            else:
                values[key] = known + sample.value
    return sums


def _families(sums: Mapping[str, Mapping[_Key, float]], told: Iterable[Family]) -> Iterator[Family]:
    for family in {family.name: family for family in told}.values():
        values = sums[family.name].items()
        samples = tuple(Sample(name, dict(labels), value) for (name, labels), value in values)
        yield Family(family.name, family.text, family.kind, samples)
