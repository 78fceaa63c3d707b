"""A cache of first field sections, shared by all connections.

The meaning of a section follows from its bytes alone, whichever client sends them. Browsers open
one WebSocket after the other with the same fields, each on a new connection. Their sections differ
only in the value of ``Sec-WebSocket-Key``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

if TYPE_CHECKING:
    from gateway.core.http.fields import Fields, Section

MAX_SECTIONS: Final = 512
MAX_BYTES: Final = 4096
MAX_FIELDS_OF_SECTION: Final = 64
"""Limits of one section. With the parsed values, all sections together take about 6 MiB at most."""

_KEY_FIELD: Final = b"\r\nSec-WebSocket-Key: "
_KEY: Final = re.compile(rb"[A-Za-z0-9+/]{22}==(?=\r\n)")


CachedSection: TypeAlias = "tuple[Fields, bytes]"
"""The fields of a section, and its end-to-end fields: see :class:`.fields.Section`."""


class SectionCache:
    """Caches sections without tokens, within limits; the oldest is evicted first."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, CachedSection] = {}

    def __len__(self) -> int:
        return len(self._known)

    def get(self, raw: bytes) -> CachedSection | None:
        """Return the cached section that differs from *raw* at most in the key."""
        rest, key = _cut(raw)
        known = self._known.get(rest)
        if known is None or key is None:
            return known
        return msgspec.structs.replace(known[0], socket_key=key), known[1]

    def put(self, section: Section) -> None:
        """Cache *section*, which was parsed in full and whose credential admitted a request."""
        fields = section.fields
        rest, key = _cut(section.raw)
        secret = fields.token is not None or fields.authorization is not None
        if secret or fields.socket_key != key or len(section.names) > MAX_FIELDS_OF_SECTION:
            return
        if not 0 < len(rest) <= MAX_BYTES:
            return
        if rest not in self._known and len(self._known) >= MAX_SECTIONS:
            del self._known[next(iter(self._known))]
        if key is not None:
            fields = msgspec.structs.replace(fields, socket_key=None)
        self._known[rest] = (fields, section.end_to_end)


def _cut(raw: bytes) -> tuple[bytes, bytes | None]:
    """Return *raw* without the key, and the key; empty bytes if the key is invalid.

    A cached section has at most one key, cut out of exactly one field. Only a section with its key
    at the same place equals it without the key.
    """
    at = raw.rfind(_KEY_FIELD) + len(_KEY_FIELD)  # which stands near the end
    if at < len(_KEY_FIELD):
        return raw, None
    key = _KEY.match(raw, at)
    if key is None:
        return b"", None
    return raw[:at] + raw[key.end() :], key[0]
