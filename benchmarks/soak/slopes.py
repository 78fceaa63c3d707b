"""The slope of a series that is sampled over time, with a confidence interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist, fmean
from typing import Final

WARM_UP: Final = 0.1
"""What part of the samples, the first ones, is left out."""
BLOCKS: Final = 24
_CONFIDENCE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Slope:
    """By how much a series changes in an hour: 95 % lie between ``low`` and ``high``."""

    per_hour: float
    low: float
    high: float
    first: float
    last: float

    @property
    def grows(self) -> bool:
        """Whether the whole interval is above zero."""
        return self.low > 0


def slope_of(
    seconds: Sequence[float], values: Sequence[float], beside: Sequence[float] | None = None
) -> Slope | None:
    """Return the slope by least squares; None where there is too little to say.

    Neighbouring samples are alike (a heap that has grown stays so), so that taking each as a
    measurement of its own would make the interval far too narrow. They are joined to blocks first,
    and the line is laid through the means of those. With *beside*, another series, the slope is
    that of what *values* do not owe to it (both, and time, are regressed on it first).
    """
    more = seconds if beside is None else beside
    rows = [row for row in zip(seconds, values, more, strict=True) if not any(map(math.isnan, row))]
    rows = rows[math.ceil(len(rows) * WARM_UP) :]
    blocks = min(BLOCKS, len(rows) // 2)
    if blocks < 5:
        return None
    edges = [round(number * len(rows) / blocks) for number in range(blocks + 1)]
    parts = [rows[a:b] for a, b in pairwise(edges)]
    hours, y, other = ([fmean(row[at] for row in part) for part in parts] for at in range(3))
    x, rest, freedom = [at / 3600 for at in hours], y, blocks - 2
    if beside is not None:
        x, rest, freedom = _without(other, x), _without(other, y), blocks - 3
    slope, error = _least_squares(x, rest, freedom)
    margin = student_quantile(0.5 + _CONFIDENCE / 2, freedom) * error
    return Slope(slope, slope - margin, slope + margin, y[0], y[-1])


def _without(cause: Sequence[float], values: Sequence[float]) -> list[float]:
    """Return what of *values* a line through *cause* leaves (Frisch, Waugh and Lovell)."""
    mean_cause, mean = fmean(cause), fmean(values)
    spread = sum((one - mean_cause) ** 2 for one in cause)
    if not spread:
        return list(values)
    by = sum((a - mean_cause) * (b - mean) for a, b in zip(cause, values, strict=True)) / spread
    return [b - mean - by * (a - mean_cause) for a, b in zip(cause, values, strict=True)]


def _least_squares(x: Sequence[float], y: Sequence[float], freedom: int) -> tuple[float, float]:
    mean_x, mean_y = fmean(x), fmean(y)
    spread = sum((one - mean_x) ** 2 for one in x)
    slope = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread
    rest = sum((b - mean_y - slope * (a - mean_x)) ** 2 for a, b in zip(x, y, strict=True))
    return slope, math.sqrt(rest / freedom / spread)


def student_quantile(part: float, freedom: int) -> float:
    """Return the quantile of Student's t (Abramowitz and Stegun, 26.7.5)."""
    z = NormalDist().inv_cdf(part)
    terms = (
        z,
        (z**3 + z) / 4,
        (5 * z**5 + 16 * z**3 + 3 * z) / 96,
        (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / 384,
        (79 * z**9 + 776 * z**7 + 1482 * z**5 - 1920 * z**3 - 945 * z) / 92160,
    )
    return math.fsum(term / math.pow(freedom, power) for power, term in enumerate(terms))
