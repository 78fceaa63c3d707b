"""What makes a WebSocket upgrade valid, on both sides (RFC 6455, sections 4.1 and 4.2)."""

from __future__ import annotations

import binascii
import hashlib
from typing import Final

from gateway.core.http.fields import MAX_OFFERS, Fields
from gateway.core.http.heads import StartLine

_GUID: Final = b"258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
_UPGRADE: Final = b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
_PERMESSAGE_DEFLATE: Final = b"permessage-deflate"


def is_valid_upgrade(start: StartLine, fields: Fields) -> bool:
    """Return whether a request for a WebSocket is a valid upgrade."""
    return fields.valid_upgrade and start.method == b"GET" and start.minor == 1


def accept_value(key: bytes) -> bytes:
    """Return the ``Sec-WebSocket-Accept`` that proves that *key* was read."""
    digest = hashlib.sha1(key + _GUID, usedforsecurity=False).digest()
    return binascii.b2a_base64(digest, newline=False)


def deflate_offers(extensions: bytes | None) -> bytes | None:
    """Return the ``permessage-deflate`` offers among *extensions*; None if there are none.

    This extension keeps frame boundaries and leaves control frames uncompressed. For others that is
    not known.
    """
    if extensions is None:
        return None
    kept = [offer for offer in map(bytes.strip, extensions.split(b",")) if _name(offer)]
    return b", ".join(kept) or None


def is_offered_deflate(chosen: bytes | None, *, offered: bytes | None) -> bool:
    """Return whether an app has *chosen* no extension, or one that was *offered*."""
    if chosen is None:
        return True
    if chosen.count(b",") >= MAX_OFFERS:
        return False
    return deflate_offers(offered) is not None and deflate_offers(chosen) == chosen.strip()


def _name(offer: bytes) -> bool:
    return offer.partition(b";")[0].strip().lower() == _PERMESSAGE_DEFLATE


def upgrade_fields(fields: Fields) -> bytes:
    """Return the fields that request a WebSocket from an app, canonical, all but the key."""
    lines = _UPGRADE
    deflate = deflate_offers(fields.socket_extensions)
    if deflate is not None:
        lines += b"Sec-WebSocket-Extensions: %b\r\n" % deflate
    if fields.socket_protocols is not None:
        lines += b"Sec-WebSocket-Protocol: %b\r\n" % fields.socket_protocols
    return lines
