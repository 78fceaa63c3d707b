from __future__ import annotations

import gc
import itertools
import tracemalloc
from collections.abc import Iterator
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.http.fields import FieldReader
from gateway.core.http.heads import HeadRefused
from gateway.core.http.request_reader import MAX_EMPTY_LINES, RequestHead, RequestReader

HEAD = b"GET /path HTTP/1.1\r\nHost: h\r\nX-One: 1\r\n\r\n"


def reader() -> RequestReader:
    return RequestReader(FieldReader(b"fumarole"))


def last(one: RequestReader) -> RequestHead:
    assert one.request is not None
    return one.request


@pytest.fixture
def traced() -> Iterator[None]:
    tracemalloc.start()
    yield
    tracemalloc.stop()


def used_bytes() -> int:
    gc.collect()
    return tracemalloc.get_traced_memory()[0]


@given(st.sets(st.integers(1, len(HEAD) + 5), max_size=6))
def test_any_split_of_a_head_is_the_same_head(cuts: set[int]) -> None:
    raw, one = HEAD + b"beyond", reader()
    ends = [0, *sorted(cuts), len(raw)]
    pieces = [raw[a:b] for a, b in itertools.pairwise(ends) if a < b]
    beyond: bytes | None = None
    for number, piece in enumerate(pieces):
        beyond = one.read(piece)
        if beyond is not None:
            beyond += b"".join(pieces[number + 1 :])
            break
    assert beyond == b"beyond"
    assert last(one).start.target == b"/path"
    assert last(one).end_to_end == b"X-One: 1\r\n"
    assert one.partial == b""


def test_a_repeated_section_is_parsed_once() -> None:
    one = reader()
    one.read(HEAD)
    first = last(one).fields
    one.read(HEAD.replace(b"/path", b"/other"))
    assert last(one).fields is first
    one.read(HEAD.replace(b"X-One: 1", b"X-One: 2"))
    assert last(one).fields is first, "it means nothing to the gateway"
    assert last(one).end_to_end == b"X-One: 2\r\n"
    one.read(HEAD.replace(b"Host: ", b"Host: b."))
    assert last(one).fields is not first


@given(st.lists(st.sampled_from(["1", "two", " 3 ", "", "\x01", "a\r\n\r\n", "x" * 16_400])))
def test_a_repeatedly_changing_value_is_validated_each_time(values: list[str]) -> None:
    one = reader()
    for value in values:
        raw = HEAD.replace(b"One: 1", b"One: " + value.encode())
        try:
            reader().read(raw)
        except HeadRefused:
            with pytest.raises(HeadRefused):
                one.read(raw)
            return
        alone = reader()
        assert one.read(raw + b"beyond") == alone.read(raw + b"beyond")
        assert (last(one).end_to_end, last(one).raw_fields) == (
            last(alone).end_to_end,
            last(alone).raw_fields,
        )


def test_a_split_head_is_parsed_alike_after_a_similar_one() -> None:
    one = reader()
    for number in range(3):
        one.read(HEAD.replace(b"One: 1", b"One: %d" % number))
    assert one.read(HEAD[:-3]) is None
    assert one.read(HEAD[-3:] + b"beyond") == b"beyond"
    assert last(one).end_to_end == b"X-One: 1\r\n"


def test_a_start_line_is_validated_before_cached_fields() -> None:
    one = reader()
    one.read(HEAD)
    for line in (b"BREW / HTTP/1.1", b"GET /a\nb HTTP/1.1", b"GET  / HTTP/1.1", b"GET / HTTP/1.2"):
        with pytest.raises(HeadRefused):
            one.read(HEAD.replace(b"GET /path HTTP/1.1", line))


def test_an_empty_line_before_each_request_is_ignored() -> None:
    one = reader()
    for _ in range(MAX_EMPTY_LINES * 2):
        assert one.read(b"\r\n") is None
        assert one.read(HEAD) == b""


@pytest.mark.parametrize("piece", [1000, 70_000, 150_000, 10**6])
def test_cookies_that_nobody_gets_are_dropped_as_they_arrive(piece: int) -> None:
    bomb = b"; ".join(b"s%d=%b" % (n, b"x" * 4000) for n in range(180))
    cookies = b"Cookie: %b; fumarole=ours; a=1\r\n" % bomb
    whole, one = HEAD[:-2] + cookies + b"\r\nbeyond", reader()
    beyond: bytes | None = None
    for at in range(0, len(whole), piece):
        assert beyond is None
        beyond = one.read(whole[at : at + piece])
        assert len(one.partial) < 200_000 + piece
    assert beyond == b"beyond"
    assert last(one).fields.cookies == (b"ours",)
    assert last(one).end_to_end == b"X-One: 1\r\nCookie: %b\r\n" % bomb[: bomb.index(b"; s8=")]
    assert one.read(HEAD) == b"", "the next head is counted anew"


@pytest.mark.parametrize(
    "cookies", [b"Cookie: a=" + b"x" * 1_200_000, b"Cookie: a=%b\r\n" % (b"x" * 60_000) * 5]
)
def test_the_cookies_of_a_head_are_limited(cookies: bytes) -> None:
    one = reader()
    with pytest.raises(HeadRefused) as refused:
        one.read(HEAD[:-2] + cookies)
    assert refused.value.code == "head_too_large"


@pytest.mark.parametrize(
    "raw",
    [b"GET / HTTP/1.1\nHost: h\r\n\r\n", HEAD.replace(b"Host: h\r\n", b""), b"\r\n" * 9],
)
def test_a_malformed_head_is_not_refused_as_oversize(raw: bytes) -> None:
    one = reader()
    with pytest.raises(HeadRefused) as refused:
        one.read(raw)
    assert refused.value.code == "bad_request"


def test_a_refused_start_line_keeps_the_cached_fields() -> None:
    one = reader()
    one.read(HEAD)
    with pytest.raises(HeadRefused):
        one.read(b"BREW / HTTP/1.1\r\nHost: other\r\n\r\n")
    assert last(one).fields.host == "h"


def test_a_cleared_reader_holds_no_head() -> None:
    one = reader()
    one.read(HEAD)
    one.clear()
    assert one.request is None
    assert one.section is None


@given(st.sets(st.integers(1, 12), max_size=6))
def test_a_few_empty_lines_before_a_request_line_are_ignored(cuts: set[int]) -> None:
    raw, one = b"\r\n" * 4 + HEAD, reader()
    ends = [0, *sorted(cuts), len(raw)]
    beyond = None
    for a, b in itertools.pairwise(ends):
        beyond = one.read(raw[a:b])
    assert beyond == b""
    assert last(one).start.target == b"/path"
    assert one.read(b"\r\n" * MAX_EMPTY_LINES + HEAD) == b""


def test_too_many_empty_lines_are_refused_in_any_split() -> None:
    one = reader()
    for _ in range(MAX_EMPTY_LINES):
        assert one.read(b"\r\n") is None
    with pytest.raises(HeadRefused) as refused:
        one.read(b"\r\n")
    assert refused.value.code == "bad_request"


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        (b"HEAD / HTTP/1.1\r\nX : 1\r\n\r\n", True),
        (b"HEAD / HTTP/1.1\r\nHo", True),
        (b"\r\nHEAD  / HTTP/1.1\r\n\r\n", True),
        (b"GET / HTTP/1.1\r\nX : 1\r\n\r\n", False),
        (b"HEADER / HTTP/1.1\r\nX : 1\r\n\r\n", False),
    ],
)
def test_the_method_head_is_known_of_refused_and_incomplete_heads(
    data: bytes, expected: bool
) -> None:
    one = reader()
    with suppress(HeadRefused):
        one.read(data)
    assert one.asks_for_head is expected


# The most that an idle connection keeps of its last head (docs/limits.md).
KEPT_BYTES = 32 << 10
LARGE_FIELDS = b"".join(b"X-%d: %s\r\n" % (number, b"x" * 250) for number in range(200))
MANY_FIELDS = b"".join(b"X-%d: x\r\n" % number for number in range(250))
LARGE_COOKIE = (
    b"Cookie: " + b"; ".join(b"c%d=%s" % (at, b"v" * 100) for at in range(2000)) + b"\r\n"
)


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize(
    "fields", [LARGE_FIELDS, MANY_FIELDS, LARGE_COOKIE, LARGE_FIELDS + LARGE_COOKIE], ids=len
)
@pytest.mark.parametrize("times", [1, 3])
def test_an_idle_connection_keeps_little_of_a_large_head(fields: bytes, times: int) -> None:
    heads = [
        HEAD.replace(b"X-One: 1\r\n", b"X-One: %d\r\n%b" % (number, fields))
        for number in range(times)
    ]
    one, before = reader(), used_bytes()
    for head in heads:
        assert one.read(head) == b""
        one.release()
    assert used_bytes() - before < KEPT_BYTES


@pytest.mark.usefixtures("traced")
def test_an_idle_connection_keeps_nothing_of_a_large_value() -> None:
    """A template that other values made matches the large one too."""
    one = reader()
    for number in range(2):
        one.read(HEAD.replace(b"One: 1", b"One: %d" % number))
    one.release()
    before = used_bytes()
    one.read(HEAD.replace(b"One: 1", b"One: " + b"x" * KEPT_BYTES))
    one.release()
    assert used_bytes() - before < KEPT_BYTES // 8


@pytest.mark.usefixtures("traced")
def test_a_request_under_way_keeps_of_a_large_head_only_what_the_app_gets() -> None:
    head = HEAD.replace(b"X-One: 1\r\n", LARGE_FIELDS + LARGE_COOKIE)
    one, before = reader(), used_bytes()
    one.read(head)
    last(one).raw = b""
    assert used_bytes() - before < len(last(one).end_to_end) + KEPT_BYTES


def test_a_head_after_a_large_one_is_read_as_alone() -> None:
    one, alone = reader(), reader()
    one.read(HEAD.replace(b"X-One: 1\r\n", LARGE_FIELDS))
    one.release()
    assert one.read(HEAD + b"beyond") == alone.read(HEAD + b"beyond") == b"beyond"
    assert (last(one).end_to_end, last(one).raw_fields) == (
        last(alone).end_to_end,
        last(alone).raw_fields,
    )
