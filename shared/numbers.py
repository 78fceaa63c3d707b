"""Strict parsing of decimal numbers: ASCII digits only.

``int`` and ``float`` accept underscores, blanks, a sign and the digits of every script. They may
refuse what ``str.isdigit`` accepts (``"²"``, or five thousand digits).
"""

from __future__ import annotations

import math
import re
from typing import Final

MOST: Final = 2**63 - 1
"""The largest integer that databases and most other programs can hold."""

_LONGEST: Final = len(str(MOST))
_DECIMAL: Final = re.compile(r"[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]{1,3})?|\.[0-9]+")


def whole_number(raw: str, *, most: int = MOST) -> int | None:
    """Return the number in *raw*, decimal digits from 0 to *most*; None if it is none."""
    if not (raw.isascii() and raw.isdigit() and len(raw) <= _LONGEST):
        return None
    number = int(raw)
    return number if number <= most else None


def decimal_number(raw: str) -> float | None:
    """Return the number in *raw*, finite and 0 or more; None if it is none."""
    if not _DECIMAL.fullmatch(raw):
        return None
    number = float(raw)
    return number if math.isfinite(number) else None
