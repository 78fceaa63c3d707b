from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from websockets.frames import Close, Frame, Opcode

from gateway.core.frames import FrameTracker, close_frame, frame_size


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
def test_a_boundary_is_seen_exactly_where_a_frame_ends(
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
def test_the_frame_under_way_is_finished_and_no_byte_more(
    stream: list[bytes], start: int, size: int
) -> None:
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


def test_half_a_header_is_no_boundary() -> None:
    tracker = FrameTracker()
    tracker.feed(b"\x82")
    assert not tracker.at_boundary
    assert tracker.feed_to_boundary(b"\x02ab\x82\x00") == 3
    assert tracker.at_boundary


def test_the_size_of_the_largest_frame_is_no_trouble() -> None:
    assert frame_size(b"\x82\x7f" + b"\xff" * 8, 0) == 2**64 + 9
    assert frame_size(b"\x82\x7f\xff", 0) == 0


def test_a_close_reads_as_websockets_reads_it() -> None:
    assert close_frame(4401, "grant revoked") == Frame(
        Opcode.CLOSE, Close(4401, "grant revoked").serialize()
    ).serialize(mask=False)
    assert len(close_frame(1000, "x" * 500)) == 127
