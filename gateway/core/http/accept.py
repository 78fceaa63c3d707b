"""Who gets a page and who gets JSON (RFC 9110, section 12.5.1)."""

from __future__ import annotations

import re
from typing import Final

_WEIGHT: Final = re.compile(rb"[ \t]*q=([01](?:\.[0-9]{0,3})?)[ \t]*")


def wants_page(accept: bytes) -> bool:
    """Say whether who sent this ``Accept`` is a browser that shows pages.

    It names ``text/html``, and does not rather have JSON. Wildcards say nothing: every client of
    an interface sends them.
    """
    weights = dict(_read_range(part) for part in accept.lower().split(b","))
    html = weights.get(b"text/html", 0.0)
    return html > 0 and html >= weights.get(b"application/json", 0.0)


def _read_range(part: bytes) -> tuple[bytes, float]:
    media, *parameters = part.split(b";")
    for parameter in parameters:
        if weight := _WEIGHT.fullmatch(parameter):
            return media.strip(b" \t"), float(weight[1])
    return media.strip(b" \t"), 1.0
