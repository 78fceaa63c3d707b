"""Large frames become fragments: the same messages for a parser, with bounded memory."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Frame, Opcode
from websockets.protocol import CLIENT, SERVER, Protocol, State

from gateway.core.fragments import FRAGMENT_BYTES, Fragmenter
from gateway.core.frames import frame_size

LARGEST = 300_000
SIZES = [
    *(0, 1, 125, 126, 70, 40_000, FRAGMENT_BYTES - 1, FRAGMENT_BYTES, FRAGMENT_BYTES + 1),
    *(2 * FRAGMENT_BYTES, 2 * FRAGMENT_BYTES + 100, 3 * FRAGMENT_BYTES + 40_000),
]


def text(size: int) -> bytes:
    return (b"0123456789abcdef" * (size // 16 + 1))[:size]


def message(size: int, *, masked: bool, parts: int = 1) -> bytes:
    """Return a message of *size* bytes as its sender's *parts*."""
    content, out = text(size), b""
    step = size // parts + 1
    for part in range(parts):
        opcode = Opcode.CONT if part else Opcode.BINARY
        piece = content[part * step : (part + 1) * step]
        out += Frame(opcode, piece, fin=part == parts - 1).serialize(mask=masked)
    return out


def frames_of(stream: bytes, *, masked: bool) -> list[Frame]:
    parser = Protocol(SERVER if masked else CLIENT, state=State.OPEN, max_size=None)
    parser.receive_data(stream)
    assert parser.parser_exc is None
    return [event for event in parser.events_received() if isinstance(event, Frame)]


def messages_of(frames: list[Frame]) -> list[bytes]:
    messages, begun = [], b""
    for frame in frames:
        begun += bytes(frame.data)
        if frame.fin:
            messages.append(begun)
            begun = b""
    return messages


def split(stream: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({cut % (len(stream) + 1) for cut in cuts} | {0, len(stream)})
    return [stream[a:b] for a, b in itertools.pairwise(at)]


@given(
    st.lists(st.tuples(st.sampled_from(SIZES), st.integers(1, 3)), max_size=4),
    st.lists(st.integers(0, 1 << 20), max_size=12),
    st.booleans(),
)
def test_fragments_are_the_same_messages_whatever_the_split(
    parts: list[tuple[int, int]], cuts: list[int], masked: bool
) -> None:
    stream = b"".join(message(size, masked=masked, parts=count) for size, count in parts)
    fragmenter = Fragmenter(LARGEST)
    out = b"".join(fragmenter.feed(piece) for piece in split(stream, cuts))
    assert out == Fragmenter(LARGEST).feed(stream)
    assert fragmenter.at_boundary
    frames = frames_of(out, masked=masked)
    assert messages_of(frames) == [text(size) for size, _ in parts]
    assert all(len(frame.data) <= FRAGMENT_BYTES for frame in frames)


def test_small_frames_are_left_as_they_are() -> None:
    stream = b"".join(message(size, masked=True) for size in (0, 5, 126, FRAGMENT_BYTES))
    assert Fragmenter(LARGEST).feed(stream) == stream


def test_bytes_within_a_fragment_are_not_copied() -> None:
    fragmenter = Fragmenter(LARGEST)
    fragmenter.feed(message(200_000, masked=True)[:100])
    data = bytes(1000)
    assert fragmenter.feed(data) is data
    assert not fragmenter.at_boundary


@pytest.mark.parametrize("length", [LARGEST + 1, 1 << 40, 1 << 63])
def test_a_frame_over_the_limit_is_left_to_the_parser(length: int) -> None:
    header = b"\x82\xff" + length.to_bytes(8, "big") + b"mask"
    assert Fragmenter(LARGEST).feed(header + b"data") == header + b"data"


@pytest.mark.parametrize("first", [0x89, 0x88, 0xC2, 0xF1, 0x83, 0x02])
def test_a_violation_of_the_protocol_stays_one(first: int) -> None:
    """A long control frame, reserved bits, an unknown opcode: the first fragment shows them."""
    stream = bytes((first, 0x7F)) + (100_000).to_bytes(8, "big") + bytes(100_000)
    out = Fragmenter(LARGEST).feed(stream)
    assert out[0] == first & 0x7F
    assert frame_size(out, 0) == 10 + FRAGMENT_BYTES
    assert out[frame_size(out, 0)] == first & 0x80


def test_an_incomplete_header_waits() -> None:
    fragmenter, header = Fragmenter(LARGEST), message(200_000, masked=True)[:14]
    assert b"".join(fragmenter.feed(bytes((byte,))) for byte in header[:-1]) == b""
    assert not fragmenter.at_boundary
    first = b"\x02\xff" + FRAGMENT_BYTES.to_bytes(8, "big")
    assert fragmenter.feed(header[-1:]) == first + header[-4:]
