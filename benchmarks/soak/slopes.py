"""The slope of a series that is sampled over time, with a confidence interval."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from statistics import NormalDist, fmean
from typing import Final

WARM_UP: Final = 0.1
"""The part of the samples, from the first on, that is left out."""
BLOCKS: Final = 24
_CONFIDENCE: Final = 0.95


@dataclass(frozen=True, slots=True)
class Slope:
    """The change of a series in an hour, with its 95 % interval from ``low`` to ``high``."""

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
    """Return the slope by least squares; None if there are too few samples.

    Neighbouring samples are alike (a heap that has grown stays large). To take each as an
    independent measurement would make the interval far too narrow. So samples are joined to blocks,
    and the line goes through the means of the blocks. With *beside*, another series, the slope is
    that of the rest of *values* once both they and time are regressed on *beside*.
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
    """Return the residuals of *values* after regression on *cause* (Frisch, Waugh, Lovell)."""
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
