from __future__ import annotations

import httptools
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.http.fields import FieldReader
from gateway.core.http.heads import (
    IANA_METHODS,
    MAX_COOKIE_BYTES,
    MAX_FIELDS,
    MAX_HEAD_BYTES,
    MAX_MEMBERS,
    MAX_TARGET_BYTES,
    HeadRefused,
    find_end,
    read_start_line,
    split_fields,
    tokens,
)

HEAD = b"GET / HTTP/1.1\r\nHost: a\r\nX: y\r\n\r\n"


def found(pieces: list[bytes]) -> object:
    """Return where the end is found, or the refusal, for a head received in *pieces*."""
    buffer = b""
    for piece in pieces:
        seen = len(buffer)
        buffer += piece
        try:
            end = find_end(buffer, seen)
        except HeadRefused as refused:
            return refused.code
        if end:
            return end
    return 0


@given(st.lists(st.sampled_from([b"\r", b"\n", b"a", b"\r\n", b"\r\n\r\n"]), max_size=12))
def test_a_head_end_is_found_byte_by_byte_or_refused(parts: list[bytes]) -> None:
    raw = b"".join(parts)
    stepwise = found([bytes([byte]) for byte in raw])
    at_once = found([raw]) if raw else 0
    # At once, a bare LF before the end is left to the check of the section.
    if isinstance(stepwise, int):
        assert at_once == stepwise
    else:
        bare = raw.replace(b"\r\n", b"")
        assert b"\r" in bare or b"\n" in bare


@given(st.integers(0, len(HEAD)), st.integers(0, len(HEAD)))
def test_any_split_of_a_head_ends_at_the_same_place(first: int, second: int) -> None:
    low, high = sorted((first, second))
    assert found([HEAD[:low], HEAD[low:high], HEAD[high:] + b"rest"]) == len(HEAD)


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        (b"GET / HTTP/1.1\n", "bad_request"),
        (b"GET / HTTP/1.1\r\nHost: a\n", "bad_request"),
        (b"GET / HTTP/1.1\rH", "bad_request"),
        (b"GET /" + b"a" * MAX_HEAD_BYTES, "target_too_long"),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * MAX_HEAD_BYTES, "head_too_large"),
        (b"GET / HTTP/1.1\r\nX: " + b"a" * MAX_HEAD_BYTES + b"\r\n\r\n", "head_too_large"),
    ],
)
def test_bytes_that_cannot_start_a_head_are_refused_at_once(raw: bytes, code: str) -> None:
    assert found([raw]) == code


def test_a_long_target_is_refused_once_the_fields_are_there() -> None:
    line = b"GET /" + b"a" * (MAX_TARGET_BYTES + 100)
    for part in (line, line + b" HTTP/1.1\r\nAccept: text/html\r\n"):
        assert found([part]) == 0
    assert found([part, b"\r\n"]) == "target_too_long"


def test_a_trailing_cr_waits_for_its_lf() -> None:
    assert found([b"GET / HTTP/1.1\r"]) == 0
    assert found([b"GET / HTTP/1.1\r", b"\nHost: a\r", b"\n\r", b"\n"]) == 27


@given(st.sampled_from(sorted(IANA_METHODS - {b"CONNECT", b"TRACE"})))
def test_registered_methods_are_read(method: bytes) -> None:
    start = read_start_line(method + b" /a?b HTTP/1.0")
    assert (start.method, start.target, start.minor) == (method, b"/a?b", 0)
    assert start.authority is None


@given(st.binary(max_size=40))
def test_only_the_exact_start_line_syntax_is_accepted(line: bytes) -> None:
    try:
        start = read_start_line(line)
    except HeadRefused:
        return
    version = b" HTTP/1.%d" % start.minor
    assert line == start.method + b" " + start.target + version


TARGET = st.text(st.characters(min_codepoint=0, max_codepoint=255), min_size=1, max_size=12)


@given(TARGET)
def test_a_target_holds_only_visible_ascii_without_hash_and_backslash(text: str) -> None:
    raw = b"/" + text.encode("latin-1")
    good = all(0x21 <= byte <= 0x7E and byte not in b"#\\" for byte in raw)
    try:
        read_start_line(b"GET " + raw + b" HTTP/1.1")
    except HeadRefused:
        assert not good
    else:
        assert good


@pytest.mark.parametrize(
    ("target", "authority", "path"),
    [
        (b"http://a.b:1/c?d", b"a.b:1", b"/c?d"),
        (b"HTTPS://A", b"a", b"/"),
        (b"http://a?b", b"a", b"/?b"),
        (b"http://a//b", b"a", b"//b"),
    ],
)
def test_absolute_form_is_split_into_host_and_path(
    target: bytes, authority: bytes, path: bytes
) -> None:
    start = read_start_line(b"GET " + target + b" HTTP/1.1")
    assert (start.authority, start.target) == (authority, path)


def test_fields_are_split_and_stripped() -> None:
    section = b"A: b\r\nC:\t d e \t\r\nF:\r\nG: \xff\r\n\r\n"
    expected = [(b"A", b"b"), (b"C", b"d e"), (b"F", b""), (b"G", b"\xff")]
    assert split_fields(section) == expected
    assert split_fields(b"\r\n") == []


def test_more_fields_than_allowed_are_refused() -> None:
    assert len(split_fields(b"a: b\r\n" * MAX_FIELDS + b"\r\n")) == MAX_FIELDS
    with pytest.raises(HeadRefused) as refused:
        split_fields(b"a: b\r\n" * (MAX_FIELDS + 1) + b"\r\n")
    assert refused.value.code == "head_too_large"


def test_too_many_lines_are_refused_unparsed() -> None:
    with pytest.raises(HeadRefused) as refused:
        split_fields(b"a: b\r\n" * MAX_FIELDS + b"no field\r\n\r\n")
    assert refused.value.code == "head_too_large"
    # Ten thousand cookies are within the bound of their bytes.
    line = b"Cookie: " + b"x" * 10 + b"\r\n"
    assert found([b"GET / HTTP/1.1\r\n" + line * 10_000]) == "head_too_large"
    assert found([b"GET / HTTP/1.1\r\n" + line * 10_000 + b"\r\n"]) == "head_too_large"


def test_a_long_line_that_is_no_field_is_refused() -> None:
    for line in (b"a:" + b" " * 60_000 + b"\x01", b"a: " + b"b " * 30_000 + b"\x01", b"a" * 60_000):
        with pytest.raises(HeadRefused):
            split_fields(line + b"\r\n\r\n")


class Pairs(list[tuple[bytes, bytes]]):
    def on_header(self, name: bytes, value: bytes) -> None:
        self.append((name, value.rstrip(b" \t")))


def read_by_llhttp(section: bytes) -> list[tuple[bytes, bytes]] | None:
    """Return the fields that llhttp parses; None if it refuses them."""
    pairs = Pairs()
    parser = httptools.HttpRequestParser(pairs)
    try:
        parser.feed_data(b"POST / HTTP/1.1\r\n" + section)
    except httptools.HttpParserUpgrade:
        pass
    except httptools.HttpParserError:
        return None
    return pairs


_LINES = [
    b"Host: h", b"X: y", b"X:", b"X: \t y \t", b"X\t: y", b" folded", b": y", b"X\x80: y",
    b"X: \x80\xff", b"X: \x7f", b"X: a\x00b", b"Content-Length: 5", b"Content-Length: 5 6",
    b"Content-Length:", b"Content-Length: 99999999999999999999", b"Transfer-Encoding: chunked",
    b"Transfer-Encoding: chunked\t", b"Transfer-Encoding:\tchunked ", b"Transfer-Encoding: gzip",
    b"Transfer-Encoding: x, chunked", b"Connection: upgrade", b"Upgrade: websocket",
]  # fmt: skip
_ENDS = [b"\r\n", b"\r\n", b"\r\n", b"\n", b"\r", b"\r\r\n"]


@given(
    st.lists(st.tuples(st.sampled_from(_LINES), st.sampled_from(_ENDS)), max_size=4),
    st.lists(st.tuples(st.integers(0, 99), st.integers(0, 255)), max_size=2),
)
def test_sections_refused_by_llhttp_are_refused_and_others_parsed_alike(
    lines: list[tuple[bytes, bytes]], changes: list[tuple[int, int]]
) -> None:
    section = bytearray(b"Host: h\r\n" + b"".join(line + end for line, end in lines) + b"\r\n")
    for at, byte in changes:
        section[at % (len(section) - 4)] = byte
    raw = bytes(section[: section.find(b"\r\n\r\n") + 4])
    try:
        FieldReader(b"fumarole").read_section(raw, None)
    except HeadRefused:
        return
    assert read_by_llhttp(raw) == split_fields(raw)


names = st.from_regex(rb"[!#$%&'*+.^_`|~0-9A-Za-z-]{1,12}", fullmatch=True)
values = st.from_regex(rb"([!-~\x80-\xff]([\t -~\x80-\xff]{0,20}[!-~\x80-\xff])?)?", fullmatch=True)


@given(st.lists(st.tuples(names, values), max_size=20))
def test_every_valid_section_is_split_into_its_fields(
    fields: list[tuple[bytes, bytes]],
) -> None:
    ours = (b"content-length", b"transfer-encoding")
    fields = [(name, value) for name, value in fields if name.lower() not in ours]
    section = b"".join(b"%b: %b\r\n" % pair for pair in fields) + b"\r\n"
    assert split_fields(section) == fields


@given(st.binary(max_size=60))
def test_no_section_is_split_into_fewer_lines_than_it_has(junk: bytes) -> None:
    section = b"A: b\r\n" + junk + b"\r\n\r\n"
    section = section[: section.find(b"\r\n\r\n") + 4]
    try:
        pairs = split_fields(section)
    except HeadRefused:
        return
    lines = section[:-4].split(b"\r\n")
    assert [line.partition(b":")[0] for line in lines] == [name for name, _ in pairs]
    for line, (_, value) in zip(lines, pairs, strict=True):
        assert line.partition(b":")[2].strip(b" \t") == value


def test_list_members_are_lower_case_and_never_empty() -> None:
    assert tokens([b"A, b,,", b" c\t"]) == {b"a", b"b", b"c"}


def test_a_list_has_no_more_members_than_a_head_has_fields() -> None:
    many = [b"%d" % number for number in range(MAX_MEMBERS)]
    assert len(tokens([b",".join(many)])) == MAX_MEMBERS
    for values in ([b",".join(many) + b","], [*many, b"a"], [b"," * 60_000]):
        with pytest.raises(HeadRefused):
            tokens(values)


def large(others: int, cookies: int, *, complete: bool) -> bytes:
    """A head with that many bytes of other fields (start line and end included) and of cookies."""
    line, end = b"GET / HTTP/1.1\r\n", b"\r\n" if complete else b""
    crumbs = b"" if not cookies else b"cOOkie: " + b"c" * (cookies - 10) + b"\r\n"
    filler = others - len(line) - len(end)
    return line + crumbs + b"X: " + b"x" * (filler - 5) + b"\r\n" + end


@pytest.mark.parametrize("complete", [True, False])
def test_cookies_have_a_separate_limit(complete: bool) -> None:
    fits = large(60_000, MAX_COOKIE_BYTES, complete=complete)
    assert find_end(fits) == (len(fits) if complete else 0)
    for others, cookies in ((60_000, MAX_COOKIE_BYTES + 1), (MAX_HEAD_BYTES + 1, 200_000)):
        with pytest.raises(HeadRefused) as refused:
            find_end(large(others, cookies, complete=complete))
        assert refused.value.code == "head_too_large"


def test_a_head_that_grows_by_bytes_is_refused_soon_after_its_limit() -> None:
    whole = large(MAX_HEAD_BYTES * 2, 0, complete=False)

    def arrives(size: int) -> bool:
        try:
            return find_end(whole[:size], size - 1000) == 0
        except HeadRefused:
            return False

    refused = next(size for size in range(1000, len(whole), 1000) if not arrives(size))
    assert MAX_HEAD_BYTES <= refused < MAX_HEAD_BYTES + (1 << 14)
