"""Text of somebody else's, as it is stored and shown: bounded, and nothing but text."""

from __future__ import annotations

import re
from typing import Final

_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.?)")
"""What terminals take for commands (ECMA-48: control sequences, operating system commands)."""
_NO_TEXT: Final = re.compile("[\x00-\x09\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]+")
"""Controls, and what makes text run in another direction than it is written."""
_HALF: Final = re.compile("[\ud800-\udfff]")
"""Half of a pair: JSON can say it, and no encoding can."""
_CUT: Final = "…"


def plain_text(said: object, most: int) -> str:
    """Return what is *said*, in at most *most* characters, with newlines as the only control.

    A longer text keeps its beginning, and ends in an ellipsis.
    """
    text = _cleaned(str(said or "")[: 4 * most + 4]).strip()
    return text if len(text) <= most else text[: most - 1] + _CUT


def plain_tail(said: object, most: int) -> str:
    """Return the end of what is *said*, likewise; a longer text begins with an ellipsis."""
    text = _cleaned(str(said or "")[-4 * most - 4 :]).strip("\n")
    return text if len(text) <= most else _CUT + text[len(text) - most + 1 :]


def _cleaned(text: str) -> str:
    text = _ESCAPES.sub("", text.replace("\r\n", "\n"))
    return _HALF.sub("\ufffd", _NO_TEXT.sub(" ", text))
