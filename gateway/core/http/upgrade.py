"""What a proper WebSocket upgrade is, on both sides (RFC 6455, sections 4.1 and 4.2)."""

from __future__ import annotations

import binascii
import hashlib
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gateway.core.http.fields import Fields
    from gateway.core.http.heads import StartLine

_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_KEY = re.compile(rb"[A-Za-z0-9+/]{22}==")
"""Sixteen bytes in base64 (RFC 6455, section 4.1)."""
_TO_KEY: Final = (
    b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\nSec-WebSocket-Key: "
)
_PERMESSAGE_DEFLATE: Final = b"permessage-deflate"
MAX_OFFERS: Final = 32
"""Extensions, or subprotocols, of one upgrade: each is looked at, and nobody has so many."""


def is_proper_upgrade(start: StartLine, fields: Fields) -> bool:
    """Say whether a request that asks for a WebSocket may have one."""
    return fields.proper_upgrade and start.method == b"GET" and start.minor == 1


def is_proper(fields: Fields) -> bool:
    """Say whether *fields* are those of a proper upgrade: read framing and ``Connection`` first."""
    return (
        not fields.chunked
        and fields.length <= 0
        and fields.upgrade_nominated
        and fields.socket_version == b"13"
        and _KEY.fullmatch(fields.socket_key or b"") is not None
        and (fields.socket_extensions or b"").count(b",") < MAX_OFFERS
        and (fields.socket_protocols or b"").count(b",") < MAX_OFFERS
    )


def accept_of(key: bytes) -> bytes:
    """Return the ``Sec-WebSocket-Accept`` that proves that *key* was read."""
    digest = hashlib.sha1(key + _GUID, usedforsecurity=False).digest()
    return binascii.b2a_base64(digest, newline=False)


def only_deflate(extensions: bytes | None) -> bytes | None:
    """Return those *extensions* that are ``permessage-deflate``; None when none is.

    It keeps frame boundaries where they are and control frames uncompressed. What others do to
    them is not known.
    """
    if extensions is None:
        return None
    kept = [offer for offer in map(bytes.strip, extensions.split(b",")) if _name(offer)]
    return b", ".join(kept) or None


def deflate_only(chosen: bytes | None, *, offered: bytes | None) -> bool:
    """Say whether an app chose no extension, or the one that was *offered* to it."""
    if chosen is None:
        return True
    if chosen.count(b",") >= MAX_OFFERS:
        return False
    return only_deflate(offered) is not None and only_deflate(chosen) == chosen.strip()


def _name(offer: bytes) -> bool:
    return offer.partition(b";")[0].strip().lower() == _PERMESSAGE_DEFLATE


def upgrade_fields(fields: Fields) -> bytes:
    """Return the fields of a proper upgrade that ask an app for a WebSocket, in canonical form."""
    lines = _TO_KEY + (fields.socket_key or b"") + b"\r\n"
    deflate = only_deflate(fields.socket_extensions)
    if deflate is not None:
        lines += b"Sec-WebSocket-Extensions: %b\r\n" % deflate
    if fields.socket_protocols is not None:
        lines += b"Sec-WebSocket-Protocol: %b\r\n" % fields.socket_protocols
    return lines
