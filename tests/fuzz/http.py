"""Checks the promises for heads and bodies, in both directions."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

from gateway.core.access.refusals import REFUSALS
from gateway.core.http.fields import FieldReader, Fields, Section, check_consistency
from gateway.core.http.framing import Body, ChunkedBody, FramingError, LengthBody
from gateway.core.http.headers import ForwardedInfo, forwarded_fields, upstream_head
from gateway.core.http.heads import HeadRefused, StartLine, find_end, read_start_line
from gateway.core.http.response_heads import (
    BAD_RESPONSE,
    ResponseReader,
    find_response_end,
    response_body,
)
from gateway.core.http.upgrade import is_valid_upgrade
from tests.fuzz.mutation import cut
from tests.fuzz.reading import (
    COOKIE,
    cgi_name,
    cookie_names,
    read_answer,
    read_chunks,
    read_request,
)

_FACTS: Final = ForwardedInfo(scheme="http", user="ada")
_READER: Final = FieldReader(COOKIE)
_ANSWERS: Final = ResponseReader("frame-ancestors 'self'")
_IDENTITY: Final = frozenset({b"x_forwarded_user", b"x_forwarded_for", b"x_forwarded_host"})

# Requests


def read_whole(raw: bytes) -> tuple[StartLine, Section]:
    """Return the gateway's result for a whole head."""
    line_end = raw.find(b"\r\n")
    start = read_start_line(raw[:line_end])
    section = _READER.read_section(raw[line_end + 2 :], None)
    fields = section.fields
    check_consistency(start, fields)
    if fields.websocket and not is_valid_upgrade(start, fields):
        raise HeadRefused("bad_upgrade")
    return start, section


def _read_in(pieces: list[bytes]) -> tuple[int, StartLine, Section] | str:
    """Return the end and the content of the head in *pieces*, or the code of its refusal."""
    buffer = b""
    try:
        for piece in pieces:
            seen = len(buffer)
            buffer += piece
            end = find_end(buffer, seen)
            if end:
                return (end, *read_whole(buffer[:end]))
    except HeadRefused as refused:
        return refused.code
    return "incomplete"


def check_request(data: bytes) -> Hashable:
    """A head is refused, or the app's head is canonical, complete, and without our credentials."""
    whole, split = _read_in([data]), _read_in(cut(data))
    if isinstance(whole, str) or isinstance(split, str):
        # A head with two errors may be refused for either.
        assert isinstance(whole, str), (whole, split)
        assert isinstance(split, str), (whole, split)
        assert (whole == "incomplete") == (split == "incomplete"), (whole, split)
        assert whole in REFUSALS or whole == "incomplete", whole
        return whole
    assert whole[0] == split[0], (whole, split)
    _check_request_to_app(whole[1], whole[2])
    return _shape(whole[1], whole[2])


def _check_request_to_app(start: StartLine, section: Section) -> None:
    fields = section.fields
    forwarded = forwarded_fields(fields.host, _FACTS)
    around = upstream_head(fields, forwarded, path_prefix=b"")
    around = around.for_client("192.0.2.7", fields.socket_key if fields.websocket else None)
    tail = around.prefix + section.end_to_end + around.suffix
    raw = b"%b %b%b" % (start.method, start.target, tail)
    head = read_request(raw)
    assert head.all(b"host") == [fields.host.encode()], head
    if fields.websocket:
        assert not head.framing, head
    else:
        framed = b"chunked" if fields.chunked else b"%d" % fields.length
        assert head.framing in ((), (framed,)), head
        assert bool(head.framing) == (fields.chunked or fields.length >= 0), head
    folded = [cgi_name(name) for name, _ in head.fields]
    for name in _IDENTITY:
        assert folded.count(name) == 1, (name, head)
    for value in head.all(b"cookie"):
        assert not {COOKIE, b"__Host-fumarole"} & set(cookie_names(value)), value
    assert not head.all(b"fumarole-token"), head
    # The canonical head has the same meaning when it is read again.
    again_start, again_section = read_whole(raw)
    again = again_section.fields
    assert (again_start.method, again_start.target) == (start.method, start.target)
    assert (again.host, again.length, again.chunked) == (fields.host, fields.length, fields.chunked)
    assert again.cookies == (), again.cookies


def _shape(start: StartLine, section: Section) -> Hashable:
    fields = section.fields
    return (
        start.minor,
        start.authority is None,
        fields.chunked,
        min(fields.length, 1),
        fields.close,
        fields.websocket,
        len(fields.cookies),
        fields.token is None,
        fields.authorization is None,
        section.end_to_end.count(b"\r\n"),
    )


def check_sequence(data: bytes) -> Hashable:
    """A section after others has the same meaning as alone.

    The sections are separated by a byte that occurs in none of them. The last one comes twice,
    because a template knows which values differed before.
    """
    parts = data.split(b"\xfe")[:4]
    sections = [part + b"\r\n\r\n" for part in (*parts, parts[-1])]
    if any(b"\r\n\r\n" in part[:-2] for part in sections):
        return "two heads"
    last: Section | None = None
    alone: dict[str, object] | str = ""
    for raw in sections:
        alone = _said(raw, None)
        assert _said(raw, last) == alone, (raw, alone)
        fitting = None if last is None else last.template.match(raw, 0)
        if last is not None and fitting is not None:
            assert (len(raw), _fields_of(last, fitting[1])) == (fitting[0], alone), (raw, alone)
        if isinstance(alone, str):
            return alone
        last = _READER.read_section(raw, last)
    return str(alone["end_to_end"])[:12] if isinstance(alone, dict) else alone


def _said(raw: bytes, last: Section | None) -> dict[str, object] | str:
    try:
        section = _READER.read_section(raw, last)
    except HeadRefused as refused:
        return refused.code
    return _fields_of(section, section.end_to_end)


def _fields_of(section: Section, end_to_end: bytes) -> dict[str, object]:
    said = {name: getattr(section.fields, name) for name in Fields.__struct_fields__}
    return said | {"end_to_end": end_to_end}


# Answers


def check_answer(data: bytes) -> Hashable:
    """A response is refused, or the browser's response is canonical and framed in one way."""
    try:
        end = find_response_end(data)
        if not end:
            return 0
        head = _ANSWERS.read_head(data[:end])
        framings = []
        for method in (b"GET", b"HEAD"):
            for minor in (0, 1):
                body, framing = response_body(head, method, minor)
                raw = b"".join((head.status_line, head.fields.end_to_end, framing, b"\r\n"))
                framings.append((type(body).__name__, read_answer(raw).framing))
    except HeadRefused as refused:
        return {BAD_RESPONSE: "refused"}[refused.code]
    end_to_end = read_answer(head.status_line + head.fields.end_to_end + b"\r\n")
    assert not end_to_end.framing, end_to_end
    for value in end_to_end.all(b"set-cookie"):
        name = value.partition(b";")[0].partition(b"=")[0].strip(b" \t").lower()
        assert name not in (COOKIE, b"__host-fumarole"), value
        assert b"domain" not in [
            a.partition(b"=")[0].strip().lower() for a in value.split(b";")[1:]
        ]
    assert len(end_to_end.all(b"content-security-policy")) >= 1
    assert not end_to_end.all(b"connection"), end_to_end
    return head.minor, head.status // 100, tuple(framings), head.fields.websocket


# Bodies


def _fed(body: Body, pieces: list[bytes]) -> tuple[bytes, bool, bytes] | str:
    out = b""
    try:
        for piece in pieces:
            out += body.feed(piece)
    except FramingError as error:
        return str(error)
    return out, body.done, body.trailing_data


def check_chunks(data: bytes) -> Hashable:
    """Every split gives the same result: canonical chunks of the same bytes."""
    whole = _fed(ChunkedBody(), [data])
    split = _fed(ChunkedBody(), cut(data))
    byte_by_byte = _fed(ChunkedBody(), [data[i : i + 1] for i in range(len(data))])
    bare = _fed(ChunkedBody(framed=False), [data])
    _check_padded(data, whole)
    if isinstance(whole, str):
        assert isinstance(split, str), (whole, split)
        assert isinstance(byte_by_byte, str), (whole, byte_by_byte)
        assert isinstance(bare, str), (whole, bare)
        return whole
    assert split == byte_by_byte == whole, (whole, split, byte_by_byte)
    assert not isinstance(bare, str)
    if whole[1]:
        assert read_chunks(whole[0]) == bare[0]
    assert bare[1:] == whole[1:]
    return whole[1], min(len(bare[0]), 3), bool(whole[2]), whole[0].count(b"\r\n")


def _check_padded(data: bytes, strict: tuple[bytes, bool, bytes] | str) -> None:
    """Check that chunks of an app are the same, or differ in padding alone, whatever the split."""
    whole = _fed(ChunkedBody(padded=True), [data])
    pieces = [data[i : i + 1] for i in range(len(data))]
    split = _fed(ChunkedBody(padded=True), pieces)
    assert split == whole or (isinstance(whole, str) and isinstance(split, str)), (whole, split)
    if isinstance(strict, str) and not isinstance(whole, str):
        assert b" " in data or b"\t" in data, (strict, whole)
        assert not whole[1] or read_chunks(whole[0]) is not None
    elif not isinstance(strict, str):
        assert whole == strict, (strict, whole)


def check_length(data: bytes) -> Hashable:
    """A body of a known length is its first bytes, whatever the split."""
    length = int.from_bytes(data[:2], "big") % 300
    whole = _fed(LengthBody(length), [data])
    assert whole == (data[:length], len(data) >= length, data[length:])
    assert _fed(LengthBody(length), cut(data)) == whole
    return min(len(data), length)
