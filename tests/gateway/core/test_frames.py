from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Close, Frame, Opcode

from gateway.core.frames import FrameTracker, close_frame, frame_size, take_messages


def frame(payload: bytes, *, fin: bool = True, masked: bool = False) -> bytes:
    return Frame(Opcode.BINARY, payload, fin=fin).serialize(mask=masked)


frames = st.lists(
    st.builds(
        frame,
        st.sampled_from([0, 1, 125, 126, 127, 1000, 65535, 65536]).map(lambda n: b"x" * n),
        fin=st.booleans(),
        masked=st.booleans(),
    ),
    min_size=1,
    max_size=4,
)


@given(frames, st.lists(st.integers(0, 140000), max_size=12))
def test_a_frame_boundary_is_found_exactly_at_the_end_of_a_frame(
    stream: list[bytes], cuts: list[int]
) -> None:
    raw = b"".join(stream)
    ends, total = {0}, 0
    for one in stream:
        total += len(one)
        ends.add(total)
    interesting = {e + d for e in ends for d in (-1, 0, 1, 2, 3, 9)} | set(cuts)
    tracker, at = FrameTracker(), 0
    assert tracker.at_boundary
    for cut in sorted(c for c in interesting if 0 < c <= len(raw)):
        tracker.feed(raw[at:cut])
        at = cut
        assert tracker.at_boundary == (at in ends), at


@given(frames, st.integers(0, 200000), st.integers(1, 70000))
def test_only_the_frame_in_progress_is_finished(stream: list[bytes], start: int, size: int) -> None:
    raw = b"".join(stream)
    start = min(start, len(raw))
    tracker = FrameTracker()
    tracker.feed(raw[:start])
    at = start
    while at < len(raw) and not tracker.at_boundary:
        taken = tracker.feed_to_boundary(raw[at : at + size])
        assert taken
        at += taken
    total, ends = 0, [0]
    for one in stream:
        total += len(one)
        ends.append(total)
    assert at == min(e for e in ends if e >= start)
    assert tracker.feed_to_boundary(b"more") == 0


def test_a_partial_frame_header_is_no_boundary() -> None:
    tracker = FrameTracker()
    tracker.feed(b"\x82")
    assert not tracker.at_boundary
    assert tracker.feed_to_boundary(b"\x02ab\x82\x00") == 3
    assert tracker.at_boundary


def test_the_largest_frame_size_is_accepted() -> None:
    assert frame_size(b"\x82\x7f" + b"\xff" * 8, 0) == 2**64 + 9
    assert frame_size(b"\x82\x7f\xff", 0) == 0


def test_a_close_frame_is_parsed_as_the_websockets_library_does() -> None:
    assert close_frame(4401, "grant revoked") == Frame(
        Opcode.CLOSE, Close(4401, "grant revoked").serialize()
    ).serialize(mask=False)
    assert len(close_frame(1000, "x" * 500)) == 127


messages = st.lists(
    st.tuples(st.binary(max_size=400), st.sampled_from([0, 1, 125, 126, 127, 65535, 65536])).map(
        lambda pair: (pair[0] * 200)[: pair[1]] if pair[1] > 400 else pair[0]
    ),
    max_size=5,
)


@given(messages, st.binary(max_size=12), st.integers(0, 80000))
def test_whole_messages_are_taken_and_the_rest_is_kept(
    said: list[bytes], beyond: bytes, cut: int
) -> None:
    raw = [Frame(Opcode.BINARY, one).serialize(mask=True) for one in said]
    data = (b"".join(raw) + b"\x89" + beyond)[:cut]
    taken, end = take_messages(data)
    ends = list(itertools.accumulate(map(len, raw), initial=0))
    whole = 0
    while whole < len(raw) and ends[whole + 1] <= len(data) and len(said[whole]) < 65536:
        whole += 1
    assert taken == said[:whole]
    assert end == ends[whole]


@pytest.mark.parametrize(
    "raw",
    [
        b"\x82\x02hi",
        b"\x02\x82maskhi",
        b"\xc2\x82maskhi",
        b"\x81\x82maskhi",
        b"\x80\x82maskhi",
        b"\x88\x82maskhi",
        b"\x82\xff" + (2).to_bytes(8, "big") + b"maskhi",
    ],
    ids=["unmasked", "fragment", "extension", "text", "continuation", "close", "wide"],
)
def test_frames_off_the_fast_path_are_left_to_the_parser(raw: bytes) -> None:
    assert take_messages(raw) == ([], 0)
