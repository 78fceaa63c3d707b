"""Parsers of values that several settings have: each raises ValueError with the reason."""

from __future__ import annotations

import re
from typing import Final

from shared.settings import seconds

_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)


def period(raw: str) -> float:
    """Return a period of at least one second."""
    value = seconds(raw)
    if value < 1:
        raise ValueError("a period must be at least one second")
    return value


def name_list(raw: str) -> tuple[str, ...]:
    """Return the names in a list separated by commas, each once."""
    found = tuple(part.strip() for part in raw.split(",") if part.strip())
    if len(set(found)) != len(found):
        raise ValueError("has a duplicate name")
    return found


def dns_label(raw: str) -> str:
    """Return a DNS label (RFC 1123)."""
    if not _LABEL.fullmatch(raw):
        raise ValueError("not a DNS label: lower-case letters, digits and hyphens, at most 63")
    return raw
