"""Frames as peers send them, and the contents of a Close."""

from __future__ import annotations

from websockets.frames import Frame, Opcode


def frame(payload: bytes, *, fin: bool = True, masked: bool = False) -> bytes:
    """Return a binary frame."""
    return Frame(Opcode.BINARY, payload, fin=fin).serialize(mask=masked)


def close_of(data: bytes) -> tuple[int, bytes]:
    """Return the code and reason of the only Close in *data*."""
    assert data[:1] == b"\x88"
    assert len(data) == 2 + data[1]
    return int.from_bytes(data[2:4], "big"), data[4:]
