"""Makes TLS 1.3 records itself, because no library sends many KeyUpdates in a row."""

from __future__ import annotations

import hashlib
import hmac
import struct
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

_SECRET = "CLIENT_TRAFFIC_SECRET_0"
_APPLICATION_DATA, _HANDSHAKE = b"\x17", b"\x16"
_KEY_UPDATE = b"\x18\x00\x00\x01"


class Records:
    """Makes a browser's records after the handshake: RFC 8446, sections 5.2 and 7.

    Args:
        log: The key log of its context. The cipher is AES-256-GCM with SHA-384, OpenSSL's first
            choice.
        number: The index of the connection in the log; the connection has sent nothing yet.
    """

    def __init__(self, log: Path, number: int) -> None:
        lines = [line.split() for line in log.read_text().splitlines()]
        self._take([bytes.fromhex(line[2]) for line in lines if line[0] == _SECRET][number])

    def _take(self, secret: bytes) -> None:
        self._secret = secret
        self._key = AESGCM(_expand(secret, b"key", 32))
        self._iv = int.from_bytes(_expand(secret, b"iv", 12))
        self._count = 0

    def data(self, data: bytes) -> bytes:
        """Return a record of application *data*."""
        return self._record(data + _APPLICATION_DATA)

    def key_update(self, *, asks: bool) -> bytes:
        """Return a KeyUpdate; *asks* says whether it requests one in return."""
        record = self._record(_KEY_UPDATE + bytes([asks]) + _HANDSHAKE)
        self._take(_expand(self._secret, b"traffic upd", 48))
        return record

    def _record(self, inner: bytes) -> bytes:
        header = b"\x17\x03\x03" + struct.pack(">H", len(inner) + 16)
        nonce = (self._iv ^ self._count).to_bytes(12)
        self._count += 1
        return header + self._key.encrypt(nonce, inner, header)


def _expand(secret: bytes, label: bytes, size: int) -> bytes:
    """Return HKDF-Expand-Label of up to 48 bytes, without a context."""
    name = b"tls13 " + label
    info = struct.pack(">HB", size, len(name)) + name + b"\0\x01"
    return hmac.new(secret, info, hashlib.sha384).digest()[:size]
