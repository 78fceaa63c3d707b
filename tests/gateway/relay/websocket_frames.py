"""Frames as peers send them, and what a Close says."""

from __future__ import annotations

from websockets.frames import Frame, Opcode


def frame(payload: bytes, *, fin: bool = True, masked: bool = False) -> bytes:
    """Return a binary frame."""
    return Frame(Opcode.BINARY, payload, fin=fin).serialize(mask=masked)


def close_of(data: bytes) -> tuple[int, bytes]:
    """Return code and reason of the one Close that *data* is."""
    assert data[:1] == b"\x88"
    assert len(data) == 2 + data[1]
    return int.from_bytes(data[2:4], "big"), data[4:]
