"""Content negotiation (RFC 9110, section 12.5): HTML page or JSON, language, gzip."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

_WEIGHT: Final = re.compile(rb"[ \t]*q=([01](?:\.[0-9]{0,3})?)[ \t]*")
_ACCEPT_FIELD: Final = re.compile(rb"^accept:([^\r\n]*)", re.IGNORECASE | re.MULTILINE)
_LANGUAGE_FIELD: Final = re.compile(rb"^accept-language:([^\r\n]*)", re.IGNORECASE | re.MULTILINE)
_MAX_BYTES: Final = 1024
_MAX_RANGES: Final = 32
_FIELDS_BYTES: Final = 16 * 1024
_LONGEST_TAG: Final = 35
"""RFC 5646, section 4.4.1: no language tag needs more."""


def prefers_html(accept: bytes) -> bool:
    """Return whether this ``Accept`` is that of a browser that shows pages.

    It must name ``text/html`` and must not prefer JSON. Wildcards do not count: every API client
    sends them. Only the first KiB and the first 32 ranges count.
    """
    weights = _weights(accept)
    html = weights.get(b"text/html", 0.0)
    return html > 0 and html >= weights.get(b"application/json", 0.0)


def languages_in(fields: bytes) -> bytes:
    """Return the ``Accept-Language`` of *fields*, the lines of a head; empty without one.

    It is parsed only for a page of the gateway: a request that reaches its app does not pay for it.
    """
    return b",".join(_LANGUAGE_FIELD.findall(fields))


def preferences_in(head: bytes) -> tuple[bytes, bytes]:
    """Return the ``Accept`` and ``Accept-Language`` of *head*, which is malformed or incomplete.

    Only the first 16 KiB after the request line count: browsers send both before their cookies.
    """
    begin = head.find(b"\r\n")
    fields = head[begin + 2 : begin + 2 + _FIELDS_BYTES] if begin >= 0 else b""
    return b",".join(_ACCEPT_FIELD.findall(fields)), languages_in(fields)


def preferred_language(accept_language: bytes, known: Collection[str]) -> str | None:
    """Return which of the lower-case *known* is preferred; None if any other will do.

    A range also matches without its last subtags (RFC 4647, section 3.4). Only the first KiB and
    the first 32 ranges count.
    """
    ranges = _read_ranges(accept_language)
    refused = {tag for tag, weight in ranges if weight == 0}
    for tag, weight in sorted(ranges, key=lambda one: -one[1]):
        if weight == 0 or tag == b"*":
            break
        while 0 < len(tag) <= _LONGEST_TAG and tag not in refused:
            name = tag.decode("latin-1")
            if name in known:
                return name
            tag = tag.rpartition(b"-")[0]
    return None


def accepts_gzip(accept_encoding: bytes) -> bool:
    """Return whether this ``Accept-Encoding`` accepts gzip (RFC 9110, section 12.5.3).

    It must name gzip or ``*``. Only the first KiB counts.
    """
    weights = _weights(accept_encoding)
    return weights.get(b"gzip", weights.get(b"*", 0.0)) > 0


def _weights(field: bytes) -> dict[bytes, float]:
    return dict(_read_ranges(field))


def _read_ranges(field: bytes) -> list[tuple[bytes, float]]:
    parts = field[:_MAX_BYTES].lower().split(b",", _MAX_RANGES)[:_MAX_RANGES]
    return [_read_range(part) for part in parts]


def _read_range(part: bytes) -> tuple[bytes, float]:
    media, *parameters = part.split(b";")
    for parameter in parameters:
        if weight := _WEIGHT.fullmatch(parameter):
            return media.strip(b" \t"), float(weight[1])
    return media.strip(b" \t"), 1.0
