"""Text of others: made fit to store and show, and read strictly where it is a number.

Text that is shown has no control characters, and none that change its direction.

``int`` and ``float`` accept underscores, blanks, a sign and the digits of every script. They may
refuse what ``str.isdigit`` accepts (``"²"``, or five thousand digits). Here a number consists of
ASCII digits.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

MOST: Final = 2**63 - 1
"""The largest integer that databases and most other programs can hold."""

_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.?)")
"""Commands of terminals (ECMA-48: control sequences, operating system commands)."""
_OTHER_CONTROLS: Final = "\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069"
"""Control characters beyond ASCII's first ones, separators of lines, and characters that change the
direction of text (Unicode's property ``Bidi_Control``)."""
_CONTROL: Final = re.compile(f"[\x00-\x1f{_OTHER_CONTROLS}]")
_CONTROLS_BUT_NEWLINE: Final = re.compile(f"[\x00-\x09\x0b-\x1f{_OTHER_CONTROLS}]+")
_HALF: Final = re.compile("[\ud800-\udfff]")
"""A lone surrogate: JSON can express it, but no encoding can."""
_CUT: Final = "…"
_SHORTEST_SECRET: Final = 4
"""Shorter secrets are part of too many words to be hidden."""

_MOST_SECONDS: Final = 10**9
"""A ``Retry-After`` beyond this is malformed."""
_LONGEST: Final = len(str(MOST))
_DECIMAL: Final = re.compile(r"[0-9]+(\.[0-9]*)?([eE][-+]?[0-9]{1,3})?|\.[0-9]+")


def plain_text(said: object, most: int) -> str:
    """Return *said* in at most *most* characters, with newlines as the only control character.

    A longer text keeps its beginning, followed by an ellipsis.
    """
    text = _cleaned(str(said or "")[: 4 * most + 4]).strip()
    return text if len(text) <= most else text[: most - 1] + _CUT


def plain_tail(said: object, most: int) -> str:
    """Return the end of *said* in the same way; a longer text begins with an ellipsis."""
    text = _cleaned(str(said or "")[-4 * most - 4 :]).strip("\n")
    return text if len(text) <= most else _CUT + text[len(text) - most + 1 :]


def without_controls(text: str) -> str:
    """Return *text* as one line without control and direction characters."""
    return _CONTROL.sub(" ", text)


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return *text* with asterisks instead of *secrets*, including their forms as plain text."""
    forms = {form for one in secrets for form in (one, plain_text(one, len(one) + 1))}
    for form in sorted(forms, key=len, reverse=True):
        if len(form) >= _SHORTEST_SECRET:
            text = text.replace(form, "***")
    return text


def _cleaned(text: str) -> str:
    text = _ESCAPES.sub("", text.replace("\r\n", "\n"))
    return _HALF.sub("\ufffd", _CONTROLS_BUT_NEWLINE.sub(" ", text))


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


def retry_after(raw: str, *, now: float) -> float | None:
    """Return the seconds of a ``Retry-After`` field (RFC 9110, section 10.2.3).

    The field is a number of seconds or a date; proxies and load balancers send both.

    Args:
        raw: The field's value.
        now: Unix seconds, which a date is compared with.

    Returns:
        0 or more; None if the field is malformed.
    """
    raw = raw.strip()
    seconds = whole_number(raw, most=_MOST_SECONDS)
    if seconds is not None:
        return float(seconds)
    at = http_date(raw)
    return None if at is None else max(0.0, at - now)


def http_date(raw: str) -> float | None:
    """Return a date of HTTP (RFC 9110, section 5.6.7) as unix seconds; None if it is malformed."""
    try:
        at = parsedate_to_datetime(raw)
        return (at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp()
    except (ValueError, OverflowError):
        return None
