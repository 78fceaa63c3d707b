"""Field sections that a connection began with, known again when another one begins with the same.

What a section says follows from its bytes alone, whoever sends them. Browsers open one WebSocket
after the other with the same fields, each on a connection of its own and with a key of its own:
a section is the same but for the value of ``Sec-WebSocket-Key``.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec

if TYPE_CHECKING:
    from gateway.core.http.fields import Fields, Section

MOST_SECTIONS: Final = 512
MOST_BYTES: Final = 4096
MOST_FIELDS: Final = 64
"""Of each: with what was understood of them, all together take some 6 MiB at most."""

_KEY_FIELD: Final = b"\r\nSec-WebSocket-Key: "
_KEY: Final = re.compile(rb"[A-Za-z0-9+/]{22}==(?=\r\n)")


KnownSection: TypeAlias = "tuple[Fields, bytes]"
"""What a section says, and its end-to-end fields: see :class:`.fields.Section`."""


class KnownSections:
    """Remembers sections without tokens, within bounds; the oldest is forgotten first."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[bytes, KnownSection] = {}

    def __len__(self) -> int:
        return len(self._known)

    def find(self, raw: bytes) -> KnownSection | None:
        """Return what *raw* says, if a section is known that differs from it in the key at most."""
        rest, key = _cut(raw)
        known = self._known.get(rest)
        if known is None or key is None:
            return known
        return msgspec.structs.replace(known[0], socket_key=key), known[1]

    def keep(self, section: Section) -> None:
        """Remember *section*, which was read whole, and by whose credential somebody was let in."""
        fields = section.fields
        rest, key = _cut(section.raw)
        secret = fields.token is not None or fields.authorization is not None
        if secret or fields.socket_key != key or len(section.names) > MOST_FIELDS:
            return
        if not 0 < len(rest) <= MOST_BYTES:
            return
        if rest not in self._known and len(self._known) >= MOST_SECTIONS:
            del self._known[next(iter(self._known))]
        if key is not None:
            fields = msgspec.structs.replace(fields, socket_key=None)
        self._known[rest] = (fields, section.crossing)


def _cut(raw: bytes) -> tuple[bytes, bytes | None]:
    """Return *raw* without the key in it, and the key; nothing at all where it is no proper one.

    What is kept has one key at most, and so one field with no value where it was cut out. Only a
    section with its key at the same place is the same without it.
    """
    at = raw.rfind(_KEY_FIELD) + len(_KEY_FIELD)  # which stands near the end
    if at < len(_KEY_FIELD):
        return raw, None
    key = _KEY.match(raw, at)
    if key is None:
        return b"", None
    return raw[:at] + raw[key.end() :], key[0]
