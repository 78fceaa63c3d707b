"""Encodes and reads WebSocket frames (RFC 6455), one frame at a time."""

from __future__ import annotations

import asyncio
import base64
import hashlib
from dataclasses import dataclass

from tests.contract.streams import DEADLINE_SECONDS, Source, Stream

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
KEY = base64.b64encode(bytes(range(16))).decode()
MASK = b"\x12\x34\x56\x78"


def accept_value(key: str) -> str:
    """Return the Sec-WebSocket-Accept value for *key*."""
    text = key + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"
    return base64.b64encode(hashlib.sha1(text.encode()).digest()).decode()


HANDSHAKE = (
    ("Connection", "Upgrade"),
    ("Upgrade", "websocket"),
    ("Sec-WebSocket-Version", "13"),
    ("Sec-WebSocket-Key", KEY),
)


@dataclass(frozen=True)
class Frame:
    """One frame; ``raw`` holds its bytes on the wire."""

    opcode: int
    payload: bytes
    fin: bool = True
    masked: bool = False
    raw: bytes = b""

    @property
    def code(self) -> int | None:
        """The status code of a Close frame."""
        assert self.opcode == CLOSE, self
        return int.from_bytes(self.payload[:2], "big") if self.payload else None


def encode(
    opcode: int, payload: bytes = b"", *, mask: bytes | None = None, fin: bool = True
) -> bytes:
    """Return a frame's bytes; a client's frame has a *mask*."""
    head = bytes([opcode | (0x80 if fin else 0)])
    bit = 0x80 if mask else 0
    if len(payload) < 126:
        head += bytes([len(payload) | bit])
    elif len(payload) < 65536:
        head += bytes([126 | bit]) + len(payload).to_bytes(2, "big")
    else:
        head += bytes([127 | bit]) + len(payload).to_bytes(8, "big")
    return head + (mask + _masked(payload, mask) if mask else payload)


def close(code: int, reason: str = "", *, mask: bytes | None = None) -> bytes:
    """Return a Close frame."""
    return encode(CLOSE, code.to_bytes(2, "big") + reason.encode(), mask=mask)


async def read_frame(stream: Source, seconds: float = DEADLINE_SECONDS) -> Frame:
    """Return the next frame."""
    raw = await stream.read_exactly(2, seconds)
    size, masked = raw[1] & 0x7F, bool(raw[1] & 0x80)
    if size >= 126:
        more = await stream.read_exactly(2 if size == 126 else 8, seconds)
        raw, size = raw + more, int.from_bytes(more, "big")
    mask = await stream.read_exactly(4, seconds) if masked else b""
    payload = await stream.read_exactly(size, seconds)
    raw += mask + payload
    plain = _masked(payload, mask) if mask else payload
    return Frame(raw[0] & 0x0F, plain, bool(raw[0] & 0x80), masked, raw)


async def last_frame(stream: Source, seconds: float = 3.0) -> Frame:
    """Return the Close frame, and skip the frames before it."""
    async with asyncio.timeout(seconds):
        while (frame := await read_frame(stream, seconds)).opcode != CLOSE:
            pass
    return frame


async def alive(stream: Stream) -> None:
    """Assert that the tunnel still echoes."""
    stream.send(encode(PING, b"alive?", mask=MASK))
    assert (await read_frame(stream)).payload == b"alive?"


def _masked(payload: bytes, mask: bytes) -> bytes:
    size = len(payload)
    key = (mask * (size // 4 + 1))[:size]
    return (int.from_bytes(payload, "big") ^ int.from_bytes(key, "big")).to_bytes(size, "big")
