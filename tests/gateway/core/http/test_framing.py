from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.http.framing import (
    MAX_EXTENSION_BYTES,
    MAX_TRAILER_BYTES,
    Body,
    ChunkedBody,
    CloseDelimitedBody,
    FramingError,
    LengthBody,
    NoBody,
)


def fed(body: Body, pieces: list[bytes]) -> bytes:
    found = b""
    for piece in pieces:
        found += body.feed(piece)
        while body.has_more:
            found += body.feed(b"")
    return found


def splits(data: bytes, cuts: list[int]) -> list[bytes]:
    at = sorted({min(cut, len(data)) for cut in cuts} | {0, len(data)})
    return [data[a:b] for a, b in itertools.pairwise(at)]


cuts = st.lists(st.integers(0, 400), max_size=20)


def chunked(chunks: list[bytes], extension: bytes = b"", trailers: bytes = b"") -> bytes:
    body = b"".join(b"%X%b\r\n%b\r\n" % (len(c), extension, c) for c in chunks)
    return body + b"0\r\n" + trailers + b"\r\n"


def canonical(chunks: list[bytes]) -> bytes:
    return b"".join(b"%x\r\n%b\r\n" % (len(c), c) for c in chunks) + b"0\r\n\r\n"


pieces = st.lists(st.binary(min_size=1, max_size=60), max_size=6)


@given(pieces, cuts, st.binary(max_size=20))
def test_any_split_of_a_chunked_body_gives_the_same_bytes(
    chunks: list[bytes], at: list[int], trailing_data: bytes
) -> None:
    body = ChunkedBody()
    raw = chunked(chunks, b';a="b"', b"X-Sum: 1\r\n") + trailing_data
    assert fed(body, splits(raw, at)) == canonical(chunks)
    assert body.done
    assert body.trailing_data == trailing_data


@given(pieces, cuts)
def test_an_unframed_body_is_the_bare_bytes(chunks: list[bytes], at: list[int]) -> None:
    body = ChunkedBody(framed=False)
    assert fed(body, splits(chunked(chunks), at)) == b"".join(chunks)
    assert body.done


@given(st.binary(max_size=400), st.integers(0, 400), cuts)
def test_any_split_of_a_body_with_a_length_gives_the_same_bytes(
    data: bytes, length: int, at: list[int]
) -> None:
    body = LengthBody(length)
    assert fed(body, splits(data, at)) == data[:length]
    assert body.done == (len(data) >= length)
    assert body.trailing_data == data[length:]


@given(cuts, st.binary(max_size=40).filter(bool), st.data())
def test_any_split_of_a_malformed_body_is_refused_alike(
    at: list[int], junk: bytes, data: st.DataObject
) -> None:
    good = chunked([b"hello", b"world!"])
    where = data.draw(st.integers(0, len(good)))
    raw = good[:where] + junk + good[where:]

    def outcome(parts: list[bytes]) -> object:
        body = ChunkedBody()
        try:
            out = fed(body, parts)
        except FramingError:
            return "refused"
        return out, body.done, body.trailing_data

    assert outcome(splits(raw, at)) == outcome([raw]) == outcome([bytes([b]) for b in raw])


REFUSED = [
    b"0x5\r\nhello\r\n",
    b"5\nhello\r\n",
    b"5\r\nhello\n0\r\n\r\n",
    b"5\r\nhelloX\r\n",
    b"5\r\nhello0\r\n",
    b"-5\r\n",
    b"+5\r\n",
    b" 5\r\n",
    b"5 \r\n",
    b"\r\n",
    b"5;a\x00b\r\n",
    b"5;a\rb\r\n",
    b"5;a\nb\r\n",
    b"5\rX",
    b"g\r\n",
    b"1" * 17,
    b"0" * 17 + b"\r\n",
    b"5_0\r\n",
    b"\xb25\r\n",
    b"5;" + b"x" * MAX_EXTENSION_BYTES + b"\r\n",
    b"0\r\nX\r\n\r\n",
    b"0\r\n X: 1\r\n\r\n",
    b"0\r\nX : 1\r\n\r\n",
    b"0\r\nX: 1\n\r\n\r\n",
    b"0\r\nX: \x00\r\n\r\n",
    b"0\n\n",
    b"0\r\nX: " + b"a" * MAX_TRAILER_BYTES + b"\r\n\r\n",
    b"0\r\n" + b"X: a\r\n" * 2000 + b"\r\n",
]


@pytest.mark.parametrize("raw", REFUSED)
def test_malformed_chunks_are_refused(raw: bytes) -> None:
    # 300 digits more, so that a line that never ends shows itself.
    with pytest.raises(FramingError):
        fed(ChunkedBody(), [raw + b"9" * 300])


@pytest.mark.parametrize("raw", REFUSED)
def test_malformed_chunks_are_refused_byte_by_byte(raw: bytes) -> None:
    with pytest.raises(FramingError):
        fed(ChunkedBody(), [bytes([byte]) for byte in raw + b"9" * 300])


def test_a_chunk_size_of_sixteen_digits_and_an_extension_of_256_bytes_are_accepted() -> None:
    body = ChunkedBody()
    size = b"0000000000000005;" + b"x" * (MAX_EXTENSION_BYTES - 1)
    assert body.feed(size + b"\r\nhello\r\n0\r\n\r\n") == b"5\r\nhello\r\n0\r\n\r\n"
    assert ChunkedBody().feed(b"ffffffffffffffff\r\nx") == b"ffffffffffffffff\r\nx"


@given(cuts)
def test_chunk_sizes_of_an_app_may_be_padded_with_white_space(at: list[int]) -> None:
    raw = b"5   \r\nhello\r\n6\t ;a=b \r\nworld!\r\n0000  \r\n\r\nmore"
    body = ChunkedBody(padded=True)
    assert fed(body, splits(raw, at)) == canonical([b"hello", b"world!"])
    assert body.trailing_data == b"more"


@pytest.mark.parametrize("raw", [raw for raw in REFUSED if raw != b"5 \r\n"])
def test_no_other_malformed_chunk_of_an_app_is_accepted(raw: bytes) -> None:
    with pytest.raises(FramingError):
        fed(ChunkedBody(padded=True), [raw + b"9" * 300])


@pytest.mark.parametrize("size", [b"0 5", b"5" + b" " * (MAX_EXTENSION_BYTES + 1), b" ", b"5 x"])
def test_padding_stands_after_the_size_and_is_bounded(size: bytes) -> None:
    with pytest.raises(FramingError):
        fed(ChunkedBody(padded=True), [size + b"\r\nhello\r\n"])


def test_a_read_within_a_chunk_is_not_copied() -> None:
    body = ChunkedBody()
    body.feed(b"1000\r\n")
    data = b"x" * 1000
    assert body.feed(data) is data
    counted = LengthBody(2000)
    assert counted.feed(data) is data
    assert CloseDelimitedBody().feed(data) is data


def test_a_message_without_body_is_complete_and_consumes_nothing() -> None:
    body = NoBody()
    assert body.done
    assert body.feed(b"next") == b""
    assert body.trailing_data == b"next"
    assert LengthBody(0).done


def test_bytes_moved_by_the_kernel_are_subtracted_from_the_length() -> None:
    body = LengthBody(5 << 30)
    for _ in range(5):
        assert not body.done
        body.advance((1 << 30) - 1)
    assert (body.remaining, body.done) == (5, False)
    assert body.feed(b"12") == b"12"
    body.advance(3)
    assert (body.remaining, body.done) == (0, True)
