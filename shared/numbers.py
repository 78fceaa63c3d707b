"""Numbers as others write them, in text: ASCII digits, and nothing that only Python means by one.

``int`` and ``float`` take underscores, blanks, a sign and the digits of every script; what
``str.isdigit`` lets pass they may still refuse (``"²"``, or five thousand digits).
"""

from __future__ import annotations

import math
import re
from typing import Final

MOST: Final = 2**63 - 1
"""The largest that databases and most other programs can hold."""

_LONGEST: Final = len(str(MOST))
_DECIMAL: Final = re.compile(r"[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]{1,3})?|\.[0-9]+")


def whole_number(raw: str, *, most: int = MOST) -> int | None:
    """Return the number from 0 to *most* that *raw* is in decimal digits; None if it is none."""
    if not (raw.isascii() and raw.isdigit() and len(raw) <= _LONGEST):
        return None
    number = int(raw)
    return number if number <= most else None


def decimal_number(raw: str) -> float | None:
    """Return the finite number, 0 or more, that *raw* is; None if it is none."""
    if not _DECIMAL.fullmatch(raw):
        return None
    number = float(raw)
    return number if math.isfinite(number) else None
