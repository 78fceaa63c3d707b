"""WebSocket frames of up to 125 bytes (RFC 6455, section 5.2); a soak sends no others."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Final, NamedTuple

BINARY: Final = 2
CLOSE: Final = 8
PING: Final = 9
PONG: Final = 10
LONGEST: Final = 125


class Frame(NamedTuple):
    """One complete frame, without its mask."""

    opcode: int
    payload: bytes


def _masked(payload: bytes, key: bytes) -> bytes:
    return bytes(byte ^ key[at & 3] for at, byte in enumerate(payload))


def client_frame(opcode: int, payload: bytes) -> bytes:
    """Return a frame as a browser sends it."""
    key = os.urandom(4)
    return bytes((0x80 | opcode, 0x80 | len(payload))) + key + _masked(payload, key)


def server_frame(opcode: int, payload: bytes) -> bytes:
    """Return a frame as an app sends it."""
    return bytes((0x80 | opcode, len(payload))) + payload


def take_frames(buffer: bytearray) -> Iterator[Frame]:
    """Yield the complete frames at the start of *buffer*, and remove them from it.

    Raises:
        ValueError: If a frame is longer than any frame of a soak, or a fragment.
    """
    while len(buffer) >= 2:
        first, second = buffer[0], buffer[1]
        length = second & 0x7F
        if length > LONGEST or not first & 0x80:
            raise ValueError("a frame that no soak sends")
        start = 6 if second & 0x80 else 2
        if len(buffer) < start + length:
            return
        payload = bytes(buffer[start : start + length])
        if second & 0x80:
            payload = _masked(payload, bytes(buffer[2:6]))
        del buffer[: start + length]
        yield Frame(first & 0x0F, payload)


def close_code(frame: Frame) -> int:
    """Return the code of a Close; 1005 where it has none."""
    return int.from_bytes(frame.payload[:2], "big") if len(frame.payload) >= 2 else 1005
