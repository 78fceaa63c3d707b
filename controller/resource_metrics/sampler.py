"""Reads all sources concurrently at an interval, and keeps their values within bounds.

A sample holds the values of all sources at one time. All pods have the same time in one round, so
that the sum over a job's ranks is exact.
"""

from __future__ import annotations

import asyncio
import logging
import math
from array import array
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from prometheus_client import CollectorRegistry, Counter

from controller.loop_turn import LoopTurn
from controller.resource_metrics.sources import (
    METRICS,
    MOST_PODS,
    Measured,
    Metric,
    Missing,
    PodKey,
    Source,
    SourceFailed,
)

POINTS: Final = 60
"""The most samples of one pod."""

MOST_ROWS: Final = 600_000
"""The most samples of all pods (34 MB): with more than 10,000 pods, each has fewer."""

LEAST_POINTS: Final = 2

LONGEST_NAME: Final = 253
"""The longest name of a namespace or pod (Kubernetes, "Object Names and IDs")."""

_WIDTH: Final = 1 + len(METRICS)
_AVERAGED: Final[frozenset[Metric]] = frozenset({"gpu_utilization"})


@dataclass(frozen=True, slots=True)
class Sample:
    """The usage of one or several pods at a time; a metric that was not measured is absent."""

    at: float
    values: Mapping[Metric, float]


@dataclass(slots=True)
class MetricHistory:
    """Keeps samples in the order of their times.

    Args:
        points: The most samples of one pod.
        rows: The most samples of all pods.
        pods: The most pods: pods that are not measured any more make room for others.
    """

    points: int = POINTS
    rows: int = MOST_ROWS
    pods: int = MOST_PODS
    _kept: dict[PodKey, array[float]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._kept)

    async def add(self, at: float, measured: Measured, *, forget_before: float) -> None:
        """Add the values measured at *at*, and drop pods last measured before *forget_before*.

        Yields to the event loop, since there may be many pods.
        """
        turn = LoopTurn()
        over = len(self._kept.keys() | measured.keys()) - self.pods
        for key in list(self._kept):
            is_old = self._kept[key][-_WIDTH] < forget_before
            if key not in measured and (is_old or over > 0):
                del self._kept[key]
                over -= 1
            await turn.rest()
        pods = min(self.pods, len(self._kept.keys() | measured.keys()))
        most = max(LEAST_POINTS, min(self.points, self.rows // max(1, pods)))
        for key, values in measured.items():
            is_known = key in self._kept
            if max(map(len, key)) > LONGEST_NAME or not (is_known or len(self._kept) < self.pods):
                continue
            kept = self._kept.setdefault(key, array("d"))
            kept.append(at)
            kept.extend(values.get(metric, math.nan) for metric in METRICS)
            if len(kept) > most * _WIDTH:
                del kept[: len(kept) - most * _WIDTH]
            await turn.rest()

    def of(self, key: PodKey, *, since: float = 0.0, most: int = POINTS) -> list[Sample]:
        """Return the pod's last samples since *since*: an earlier pod may have had its name."""
        kept = self._kept.get(key, ())
        first = max(0, len(kept) - most * _WIDTH)
        rows = (kept[start : start + _WIDTH] for start in range(first, len(kept), _WIDTH))
        return [Sample(row[0], _known(row[1:])) for row in rows if row[0] >= since]


def _known(row: Collection[float]) -> dict[Metric, float]:
    named = zip(METRICS, row, strict=True)
    return {metric: value for metric, value in named if not math.isnan(value)}


def summed(samples: Iterable[Sample]) -> list[Sample]:
    """Return the joint usage of several pods by time: the sum of the known values.

    For utilizations it is the mean.
    """
    found: dict[float, dict[Metric, list[float]]] = {}
    for sample in samples:
        at = found.setdefault(sample.at, {})
        for metric, value in sample.values.items():
            at.setdefault(metric, []).append(value)
    return [
        Sample(at, {metric: _together(metric, values) for metric, values in found[at].items()})
        for at in sorted(found)
    ]


def _together(metric: Metric, values: Collection[float]) -> float:
    total = math.fsum(values)
    return total / len(values) if metric in _AVERAGED else total


MOST_SECONDS: Final = 15.0
"""Deadline of a source; a shorter interval shortens it."""

REFUSED_SECONDS: Final = 300.0
"""Pause after a source was missing or refused access, which takes an operator to change."""

_REFUSALS: Final[frozenset[Missing]] = frozenset({"not_installed", "forbidden"})

_NOT_THERE: Final[Missing] = "not_configured"

log = logging.getLogger(__name__)


def count_metric_samples(registry: CollectorRegistry) -> Callable[[str, str], None]:
    """Return a function that counts samples by source, whose names are fixed, and by result."""
    samples = Counter(
        "fumarole_controller_metric_samples",
        "Reads of sources of pod metrics, by result",
        ["source", "result"],
        registry=registry,
    )
    return lambda source, result: samples.labels(source, result).inc()


@dataclass(slots=True, eq=False, repr=False)
class MetricSampler:
    """Samples the usage of pods while :meth:`run` runs."""

    sources: Sequence[Source]
    _: KW_ONLY
    interval: float
    """Seconds between samples; 0: no sampling."""
    clock: Callable[[], float]
    """Unix seconds, for samples."""
    monotonic: Callable[[], float]
    """Monotonic seconds, for pauses."""
    count: Callable[[str, str], None] = lambda _source, _result: None
    """Called with each source's result: ``ok``, or the reason for missing values."""
    _resting_until: dict[str, float] = field(default_factory=dict[str, float], init=False)
    _told: dict[str, Missing | None] = field(default_factory=dict[str, Missing | None], init=False)
    history: MetricHistory = field(default_factory=MetricHistory, init=False)
    sampled_at: float | None = None
    missing: Mapping[Metric, Missing] = field(init=False)
    """The metrics that the last sample lacks, with the reasons."""

    def __post_init__(self) -> None:
        configured = {metric for source in self.sources for metric in source.metrics}
        self.missing = {
            metric: "off"
            if not self.interval
            else "starting"
            if metric in configured
            else _NOT_THERE
            for metric in METRICS
        }

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            began = self.monotonic()
            await self.sample()
            await asyncio.sleep(max(0.1, self.interval - (self.monotonic() - began)))

    async def sample(self) -> None:
        """Read all sources and keep their values; a failure affects only its own source."""
        found = await asyncio.gather(*(self._read(source) for source in self.sources))
        missing = {metric: why for metric, why in self.missing.items() if why == _NOT_THERE}
        measured = Measured()
        for some, without in found:
            for key, values in some.items():
                measured.setdefault(key, {}).update(values)
            missing.update(without)
        at = self.clock()
        kept_for = self.interval * self.history.points
        await self.history.add(at, measured, forget_before=at - kept_for)
        self.sampled_at, self.missing = at, missing

    async def _read(self, source: Source) -> tuple[Measured, Mapping[Metric, Missing]]:
        measured = Measured()
        try:
            if self.monotonic() < self._resting_until.get(source.name, 0.0):
                raise SourceFailed(self._told.get(source.name) or "unavailable", "")
            async with asyncio.timeout(min(MOST_SECONDS, self.interval)):
                without = await source.read(measured)
        except TimeoutError:
            return self._failed(
                source, SourceFailed("unavailable", "the source did not respond in time")
            )
        except SourceFailed as error:
            return self._failed(source, error)
        except Exception:  # a source must not affect other parts
            log.exception("cannot read metrics", extra={"source": source.name})
            return self._failed(source, SourceFailed("unavailable", "see the traceback"))
        if self._told.get(source.name) is not None:
            log.info("metrics are read again", extra={"source": source.name})
        self._told[source.name] = None
        self.count(source.name, "ok")
        return measured, without

    def _failed(
        self, source: Source, error: SourceFailed
    ) -> tuple[Measured, dict[Metric, Missing]]:
        now = self.monotonic()
        if now >= self._resting_until.get(source.name, 0.0):
            self.count(source.name, error.reason)
            if error.reason in _REFUSALS:
                self._resting_until[source.name] = now + REFUSED_SECONDS
            if self._told.get(source.name) != error.reason:  # logged once, not for each sample
                extra = {"source": source.name, "reason": error.reason, "why": str(error)}
                log.warning("cannot read metrics", extra=extra)
        self._told[source.name] = error.reason
        return Measured(), dict.fromkeys(source.metrics, error.reason)
