"""Makes text of others fit to store and show: bounded, and without control characters."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

_ESCAPES: Final = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|.?)")
"""Commands of terminals (ECMA-48: control sequences, operating system commands)."""
_NO_TEXT: Final = re.compile(
    "[\x00-\x09\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]+"
)
"""Control characters, and characters that change the direction of text (Unicode's property
``Bidi_Control``)."""
_HALF: Final = re.compile("[\ud800-\udfff]")
"""A lone surrogate: JSON can express it, but no encoding can."""
_CUT: Final = "…"
_SHORTEST_SECRET: Final = 4
"""Shorter secrets are part of too many words to be hidden."""


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


def without_secrets(text: str, secrets: Iterable[str]) -> str:
    """Return *text* with asterisks instead of *secrets*, including their forms as plain text."""
    forms = {form for one in secrets for form in (one, plain_text(one, len(one) + 1))}
    for form in sorted(forms, key=len, reverse=True):
        if len(form) >= _SHORTEST_SECRET:
            text = text.replace(form, "***")
    return text


def _cleaned(text: str) -> str:
    text = _ESCAPES.sub("", text.replace("\r\n", "\n"))
    return _HALF.sub("\ufffd", _NO_TEXT.sub(" ", text))
