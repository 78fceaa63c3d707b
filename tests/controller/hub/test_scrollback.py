from __future__ import annotations

import time
import tracemalloc

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from controller.hub.scrollback import REPLAY_BYTES, SEGMENT_BYTES, Scrollback, safe_cut

PIECES = [
    b"text",
    b"line\r\n",
    "€".encode(),
    "𐍈".encode(),
    b"\x1b[31;1m",
    b"\x1b[?1049h",
    b"\x1b]0;title\x07",
    b"\x1b]8;;http://a/\x1b\\",
    b"\x1bP1$r0m\x1b\\",
    b"\x1b(B",
    b"\x1b7",
    b"\x1bM",
]


@given(st.lists(st.sampled_from(PIECES), min_size=1, max_size=40), st.integers(0, 300))
@example([b"\x1bP1$r0m\x1b\\"], 2)
@example([b"\x1bXabc\x1b\\"], 2)
def test_a_cut_is_between_tokens_at_or_after_the_offset(pieces: list[bytes], least: int) -> None:
    data = b"".join(pieces)
    least = min(least, len(data))
    cut = safe_cut(data, least)
    boundaries, at = {0}, 0
    for piece in pieces:
        if piece.startswith(b"\x1b"):
            boundaries |= {at, at + len(piece)}
        else:  # text may be split between any two characters
            offset = 0
            for character in piece.decode():
                boundaries |= {at + offset}
                offset += len(character.encode())
            boundaries.add(at + len(piece))
        at += len(piece)
    assert cut in boundaries
    assert least <= cut <= min(b for b in boundaries if b >= least)


@given(st.binary(max_size=400), st.integers(0, 400))
def test_any_bytes_can_be_cut(data: bytes, least: int) -> None:
    least = min(least, len(data))
    assert least <= safe_cut(data, least) <= len(data)


@given(st.lists(st.binary(max_size=200), max_size=30), st.integers(1, 300))
def test_the_scrollback_is_a_suffix_of_the_output(chunks: list[bytes], limit: int) -> None:
    ring, written = Scrollback(limit), b""
    for chunk in chunks:
        ring.append(chunk)
        written += chunk
        assert ring.end == len(written)
        assert ring.end - ring.start <= limit * 2
        kept = ring.read(ring.start, len(written))
        assert kept == written[ring.start :]


def test_the_scrollback_keeps_up_to_its_limit() -> None:
    ring = Scrollback(1000)
    for _ in range(500):
        ring.append(b"0123456789")
    assert 990 <= ring.end - ring.start <= 2000


def test_an_endless_string_sequence_is_cut() -> None:
    ring = Scrollback(10_000)
    ring.append(b"\x1b]0;" + b"x" * 100_000)
    assert ring.end - ring.start <= 20_000


def test_no_sequence_is_cut_at_any_start_of_the_ring() -> None:
    ring = Scrollback(1 << 20)
    token = b"\x1b]0;" + b"t" * 700 + b"\x07\x1b[38;5;123m\xe2\x82\xac"
    for _ in range(6000):
        ring.append(token)
    boundaries = {0, 705, 716}
    assert ring.start > 0
    for most in range(0, ring.size, 40_000):
        begin = ring.tail(most)
        assert begin % len(token) in boundaries
        assert ring.read(begin, 1) != b"\x82"
    while ring.shrink():
        assert ring.start % len(token) in boundaries
    assert 0 < ring.size <= 2 * SEGMENT_BYTES


def test_the_tail_has_the_requested_length_up_to_a_segment() -> None:
    ring = Scrollback()
    assert ring.tail(1000) == 0
    for _ in range(100):
        ring.append(b"0123456789" * 3000)
    for most in (200_000, 1_000_000):
        assert most - 2 * SEGMENT_BYTES <= ring.end - ring.tail(most) <= most
    assert ring.tail(10**9) == 0
    assert len(ring.replay()) <= REPLAY_BYTES


def test_single_bytes_use_no_more_memory_than_large_pieces() -> None:
    ring = Scrollback(1 << 18)
    tracemalloc.start()
    try:
        for _ in range(300_000):
            ring.append(b"x")
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 1 << 20


def test_reading_before_the_start_or_after_the_end_is_an_error() -> None:
    ring = Scrollback(10)
    ring.append(b"x" * 100)
    with pytest.raises(ValueError, match="is not in"):
        ring.read(0, 10)
    with pytest.raises(ValueError, match="is not in"):
        ring.read(101, 10)


@pytest.mark.parametrize(
    "query",
    [
        b"\x1b[c", b"\x1b[0c", b"\x1b[>c", b"\x1b[=c", b"\x1b[6n", b"\x1b[?6n", b"\x1b[5n",
        b"\x1b[>0q", b"\x1b[?25$p", b"\x1b[?u", b"\x1b[18t", b"\x1b[14t", b"\x1b]11;?\x07",
        b"\x1b]4;1;?\x1b\\", b"\x1bP$qm\x1b\\", b"\x1bP+q544e\x1b\\", b"\x05",
    ],
)  # fmt: skip
def test_a_replay_contains_no_terminal_query(query: bytes) -> None:
    ring = Scrollback()
    ring.append(b"before" + query + b"after")
    assert ring.replay() == b"beforeafter"
    assert query in ring.read(0, 100), "what is live is passed on as it is"


@pytest.mark.parametrize(
    "shown",
    [b"\x1b[5m", b"\x1b[2J", b"\x1b]0;why?\x07", b"\x1b[8;24;80t", b"\x1b[22;0t", b"\x1b[u"],
)
def test_a_replay_contains_all_other_output(shown: bytes) -> None:
    ring = Scrollback()
    ring.append(shown)
    assert ring.replay() == shown


@pytest.mark.parametrize("hostile", [b"\x1b[", b"\x1b]", b"\x1bP$q", b"\x1b[1;", b"\x80", b"\x1b"])
def test_hostile_output_costs_linear_time(hostile: bytes) -> None:
    ring = Scrollback()
    began = time.process_time()
    for _ in range(20):
        ring.append(hostile * (65536 // len(hostile)))
    ring.replay()
    assert time.process_time() - began < 2.0
