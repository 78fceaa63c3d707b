"""The last samples of each pod, in memory and bounded. No I/O.

A sample is what all sources said at one time. Samples of different pods that were taken at one time
have the same time, so the sum over a job's ranks is exact.
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from controller.kube.loop_turn import LoopTurn
from controller.resource_metrics.sources import METRICS, MOST_PODS, Measured, Metric, PodKey

POINTS: Final = 60
"""Samples that are kept of one pod."""

MOST_ROWS: Final = 600_000
"""Samples that are kept of all pods together (34 MB): beyond 10,000 pods, fewer of each."""

LEAST_POINTS: Final = 2

LONGEST_NAME: Final = 253
"""Of a namespace or a pod (Kubernetes, "Object Names and IDs"); a source may send anything."""

_WIDTH: Final = 1 + len(METRICS)
_AVERAGED: Final[frozenset[Metric]] = frozenset({"gpu_utilization"})


@dataclass(frozen=True, slots=True)
class Sample:
    """What a pod, or several, used at a time; a metric that was not measured is left out."""

    at: float
    values: Mapping[Metric, float]


@dataclass(slots=True)
class MetricHistory:
    """Keeps samples in the order of their times.

    Args:
        points: How many of one pod.
        rows: How many of all pods together.
        pods: Of how many pods: those that are measured no more make room for others.
    """

    points: int = POINTS
    rows: int = MOST_ROWS
    pods: int = MOST_PODS
    _kept: dict[PodKey, array[float]] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self._kept)

    async def add(self, at: float, measured: Measured, *, forget_before: float) -> None:
        """Add what was measured at *at*, and drop pods last measured before *forget_before*.

        It lets the event loop go on now and then: there may be many pods.
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
        """Return the pod's last samples, from *since* on: a pod before it may have had its name."""
        kept = self._kept.get(key, ())
        first = max(0, len(kept) - most * _WIDTH)
        rows = (kept[start : start + _WIDTH] for start in range(first, len(kept), _WIDTH))
        return [Sample(row[0], _known(row[1:])) for row in rows if row[0] >= since]


def _known(row: Collection[float]) -> dict[Metric, float]:
    named = zip(METRICS, row, strict=True)
    return {metric: value for metric, value in named if not math.isnan(value)}


def summed(samples: Iterable[Sample]) -> list[Sample]:
    """Return what several pods used together, by time: the sum of what is known of each.

    Of utilizations it is the mean.
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
