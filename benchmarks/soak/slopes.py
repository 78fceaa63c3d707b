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


def slope_of(seconds: Sequence[float], values: Sequence[float]) -> Slope | None:
    """Return the slope by least squares; None where there is too little to say.

    Neighbouring samples are alike (a heap that has grown stays so), so that taking each as a
    measurement of its own would make the interval far too narrow. They are joined to blocks first,
    and the line is laid through the means of those.
    """
    points = [(at, value) for at, value in zip(seconds, values, strict=True) if value == value]
    points = points[math.ceil(len(points) * WARM_UP) :]
    blocks = min(BLOCKS, len(points) // 2)
    if blocks < 4:
        return None
    edges = [round(number * len(points) / blocks) for number in range(blocks + 1)]
    parts = [points[a:b] for a, b in pairwise(edges)]
    x = [fmean(at for at, _ in part) / 3600 for part in parts]
    y = [fmean(value for _, value in part) for part in parts]
    slope, error = _least_squares(x, y)
    margin = student_quantile(0.5 + _CONFIDENCE / 2, blocks - 2) * error
    return Slope(slope, slope - margin, slope + margin, y[0], y[-1])


def _least_squares(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    mean_x, mean_y = fmean(x), fmean(y)
    spread = sum((one - mean_x) ** 2 for one in x)
    slope = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread
    rest = sum((b - mean_y - slope * (a - mean_x)) ** 2 for a, b in zip(x, y, strict=True))
    return slope, math.sqrt(rest / (len(x) - 2) / spread)


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
