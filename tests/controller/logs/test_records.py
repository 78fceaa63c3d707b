"""Tests log records: lines are cut, counted, and found again."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.logs.records import (
    MOST_PIECE,
    Counter,
    Cutter,
    LogMark,
    Resumer,
    read_mark,
    records_of,
    text_of,
    time_of,
)

STAMPS = (
    "2026-11-22T14:38:42Z", "2026-11-22T14:38:42.000000001Z", "2026-11-22T14:38:42.1234567+01:00",
    "2026-11-22T14:38:43.5Z",
)  # fmt: skip
LINES = st.lists(
    st.tuples(
        st.sampled_from(STAMPS), st.binary(max_size=40).map(lambda raw: raw.replace(b"\n", b""))
    )
)


def as_sent(lines: list[tuple[str, bytes]]) -> bytes:
    return b"".join(b"%b %b\n" % (at.encode(), text) for at, text in lines)


def cut(raw: bytes, sizes: list[int]) -> list[bytes]:
    cutter, blocks = Cutter(), []
    for size in [*sizes, len(raw)]:
        blocks.append(cutter.feed(raw[:size]))
        raw = raw[size:]
    return [*blocks, cutter.finish()]


@given(LINES, st.binary(max_size=30), st.lists(st.integers(0, 50)))
def test_any_split_of_a_log_gives_the_same_records(
    lines: list[tuple[str, bytes]], rest: bytes, sizes: list[int]
) -> None:
    rest = rest.replace(b"\n", b"")
    raw = as_sent(lines) + b"%b %b" % (STAMPS[0].encode(), rest)
    assert b"".join(cut(raw, sizes)) == b"".join(cut(raw, []))
    text = b"".join(line + b"\n" for _, line in lines) + rest
    assert text_of(b"".join(cut(raw, sizes))) == text


@given(LINES, st.lists(st.integers(0, 200)), st.data())
def test_a_log_resumes_exactly_where_it_stopped(
    lines: list[tuple[str, bytes]], sizes: list[int], data: st.DataObject
) -> None:
    lines.sort(key=lambda line: time_of(line[0].encode() + b" ") or 0)
    blocks = cut(as_sent(lines), sizes)
    stop = data.draw(st.integers(0, len(blocks)))
    counter = Counter()
    for block in blocks[:stop]:
        counter.see(block)
    resumer = Resumer(counter.mark)
    again = b"".join(resumer.pass_on(block) for block in cut(as_sent(lines), [7, 90]))
    assert again == b"".join(blocks[stop:])


@pytest.mark.parametrize("text", [b"x" * (3 * MOST_PIECE + 5), "ü".encode() * MOST_PIECE])
@pytest.mark.parametrize("end", [b"\n", b""])
@pytest.mark.parametrize("head", [b"2026-11-22T14:38:42.5Z ", b""])
def test_an_oversize_line_is_split(text: bytes, end: bytes, head: bytes) -> None:
    raw = head + text + end + (head + b"next\n" if end else b"")
    whole = b"".join(cut(raw, []))
    assert whole == b"".join(cut(raw, [1000, MOST_PIECE, 3, MOST_PIECE]))
    assert text_of(whole) == text + end + (b"next\n" if end else b"")
    records = list(records_of(whole))
    assert all(len(one.text) <= MOST_PIECE for one in records)
    assert [one.ends for one in records].count(True) == (2 if end else 0)
    for one in records:
        one.text.decode()  # no character is split


def test_only_rfc_3339_timestamps_are_accepted() -> None:
    assert time_of(b"1970-01-01T01:00:00.5+01:00 x") == 5 * 10**8
    assert time_of(b"2026-02-31T00:00:00Z x") is None
    assert time_of(b"unable to retrieve container logs") is None
    assert text_of(b"unable to retrieve\n2026-11-22T14:38:42Z x\n") == b"unable to retrieve\nx\n"


def test_a_missing_resume_mark_is_passed_by_its_time() -> None:
    at = time_of(b"2026-11-22T14:38:42.5Z ")
    assert at is not None
    later = b"2026-11-22T14:38:43Z b\n"
    assert Resumer(LogMark(at, 3)).pass_on(later) == later
    # If a clock is set back later, no line is lost.
    line = b"2026-11-22T14:38:42.5Z a\n"
    assert Resumer(LogMark(at, 1)).pass_on(line + b"2025-01-01T00:00:00Z c\n").endswith(b" c\n")


def test_resume_marks_round_trip_and_other_text_is_refused() -> None:
    assert read_mark(LogMark(17, 2).text()) == LogMark(17, 2)
    for text in ("", "1", "1.", "x.1", "1.1.1", "-1.1", "1" * 17 + ".1"):
        with pytest.raises(ValueError, match="position"):
            read_mark(text)
