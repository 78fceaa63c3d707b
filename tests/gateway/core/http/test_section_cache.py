from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import asdict

from gateway.core.http.fields import FieldReader
from gateway.core.http.heads import HeadRefused
from gateway.core.http.request_reader import (
    MAX_FIELDS_OF_SECTION,
    MAX_SECTION_BYTES,
    MAX_SECTIONS,
    RequestReader,
    SectionCache,
)

FIELDS = FieldReader(b"fumarole")
KEY, OTHER_KEY = b"dGhlIHNhbXBsZSBub25jZQ==", b"AAAAAAAAAAAAAAAAAAAAAA=="
OPENING = (
    b"GET /echo HTTP/1.1\r\nHost: h\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nCookie: a=1; fumarole=x\r\nX-One: 1\r\n"
    b"Sec-WebSocket-Key: " + KEY + b"\r\nSec-WebSocket-Protocol: p\r\n\r\n"
)


def read(known: SectionCache, head: bytes) -> RequestReader:
    """Read *head* as the first of a connection, and cache it as one that was admitted."""
    reader = RequestReader(FIELDS, known)
    assert reader.read(head) == b""
    reader.cache_section()
    return reader


def raw_fields(reader: RequestReader) -> bytes:
    assert reader.request is not None
    return reader.request.raw_fields


def said(reader: RequestReader) -> object:
    request = reader.request
    assert request is not None
    return asdict(request.fields), request.end_to_end, request.raw_fields


def test_only_the_websocket_key_differs_between_cached_upgrades() -> None:
    known = SectionCache()
    first = read(known, OPENING)
    other = OPENING.replace(KEY, OTHER_KEY)
    assert len(known) == 1
    assert known.get(raw_fields(first)) is not None
    assert said(read(known, other)) == said(read(SectionCache(), other))
    assert said(read(known, OPENING)) == said(first)
    assert len(known) == 1


def test_the_next_head_of_a_connection_is_parsed_by_its_own_bytes() -> None:
    known = SectionCache()
    read(known, OPENING)
    reader = read(known, OPENING.replace(KEY, OTHER_KEY))
    for head in (OPENING, OPENING.replace(b"One: 1", b"One: 2"), OPENING.replace(KEY, OTHER_KEY)):
        assert reader.read(head) == b""
        assert said(reader) == said(read(SectionCache(), head))


KEYS = st.sampled_from([KEY, OTHER_KEY, b"", b"x", KEY[:-1], KEY + b" ", b" " + KEY, KEY + b"\t"])
NAMES = st.sampled_from(
    [b"Sec-WebSocket-Key", b"sec-websocket-key", b"X-One", b"Sec_WebSocket_Key"]
)
LINES = st.lists(st.tuples(NAMES, KEYS), max_size=3)


@given(st.lists(st.tuples(LINES, st.booleans()), max_size=6))
def test_a_first_head_is_parsed_alike_after_any_other_connections(
    heads: list[tuple[list[tuple[bytes, bytes]], bool]],
) -> None:
    known = SectionCache()
    for lines, upgrade in heads:
        section = b"".join(b"%b: %b\r\n" % line for line in lines)
        if upgrade:
            section += b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        head = b"GET / HTTP/1.1\r\nHost: h\r\n" + section + b"\r\n"
        try:
            alone = said(read(SectionCache(), head))
        except HeadRefused as refused:
            with pytest.raises(HeadRefused, match=refused.code):
                read(known, head)
        else:
            assert said(read(known, head)) == alone


@pytest.mark.parametrize(
    "line",
    [
        b"Fumarole-Token: t",
        b"Authorization: Bearer t",
        b"X: " + b"x" * MAX_SECTION_BYTES,
        b"\r\n".join([b"X: x"] * MAX_FIELDS_OF_SECTION),
    ],
)
def test_secrets_and_long_values_are_not_cached(line: bytes) -> None:
    known = SectionCache()
    read(known, OPENING.replace(b"X-One: 1", line))
    assert len(known) == 0


def test_a_section_is_not_cached_before_its_request_is_admitted() -> None:
    known = SectionCache()
    reader = RequestReader(FIELDS, known)
    assert reader.read(OPENING) == b""
    assert len(known) == 0


def test_the_oldest_entry_is_evicted_first() -> None:
    known = SectionCache()
    heads = [OPENING.replace(b"One: 1", b"One: %d" % number) for number in range(MAX_SECTIONS + 1)]
    sections = [raw_fields(read(known, head)) for head in heads]
    assert len(known) == MAX_SECTIONS
    assert known.get(sections[0]) is None
    assert known.get(sections[1]) is not None
