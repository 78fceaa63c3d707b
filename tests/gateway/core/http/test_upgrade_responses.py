from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.http.fields import FieldReader, Fields
from gateway.core.http.heads import HeadRefused
from gateway.core.http.response_heads import (
    MAX_UPGRADE_BYTES,
    MAX_UPGRADE_RESPONSES,
    ResponseReader,
    UpgradeResponseCache,
    read_upgrade_response,
)
from gateway.core.http.upgrade import accept_value

READER = ResponseReader("frame-ancestors 'self'")
KEYS = ("dGhlIHNhbXBsZSBub25jZQ==", "AAAAAAAAAAAAAAAAAAAAAA==")
PROOFS = (b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo=", b"ICX+Yqv66kxgM0FcWaLWlFLwTAI=")
PROPER = (b"Connection: Upgrade", b"Upgrade: websocket")
DATE = b"Date: Mon, 23 Nov 2026 20:00:00 GMT\r\n"


def asked(*lines: str, key: str = KEYS[0]) -> Fields:
    sent = ("Host: a", "Connection: Upgrade", "Upgrade: websocket", f"Sec-WebSocket-Key: {key}")
    return (
        FieldReader(b"fumarole")
        .read_section("\r\n".join((*sent, *lines, "", "")).encode(), None)
        .fields
    )


def raw(*lines: bytes, minor: int = 1, reason: bytes = b"Switching") -> bytes:
    return b"\r\n".join((b"HTTP/1.%d 101 %b" % (minor, reason), *lines, b"", b""))


def expected_accept(request: Fields) -> bytes:
    return accept_value(request.socket_key or b"")


def alone(data: bytes, request: Fields) -> bytes | None:
    """Return what the browser gets of an uncached 101; None if it is refused."""
    accept = expected_accept(request)
    try:
        switch = read_upgrade_response(READER.read_head(data), request, accept)
    except HeadRefused:
        return None
    return switch.write(switch.fields.end_to_end, accept, DATE)


def remembering(known: UpgradeResponseCache, data: bytes, request: Fields) -> bytes | None:
    """Do the same with a cache, which is asked first."""
    accept = expected_accept(request)
    found = known.get(data + b"beyond", request, accept)
    if found is not None:
        assert found[1] == len(data)
        return found[0].write(found[0].fields.end_to_end, accept, DATE)
    said = alone(data, request)
    if said is not None:
        head = READER.read_head(data)
        switch = read_upgrade_response(head, request, accept)
        known.put(data, switch, accept)
    return said


def test_each_key_has_its_accept_value() -> None:
    assert tuple(expected_accept(asked(key=key)) for key in KEYS) == PROOFS


@pytest.mark.parametrize(
    ("offered", "chosen", "good"),
    [
        ((), (), True),
        (("Sec-WebSocket-Protocol: a, b",), (b"Sec-WebSocket-Protocol: b",), True),
        (("Sec-WebSocket-Protocol: a, b",), (b"Sec-WebSocket-Protocol: c",), False),
        (("Sec-WebSocket-Protocol: a, b",), (b"Sec-WebSocket-Protocol: a, b",), False),
        ((), (b"Sec-WebSocket-Protocol: a",), False),
        (
            ("Sec-WebSocket-Extensions: permessage-deflate",),
            (b"Sec-WebSocket-Extensions: permessage-deflate; server_no_context_takeover",),
            True,
        ),
        (("Sec-WebSocket-Extensions: x",), (b"Sec-WebSocket-Extensions: x",), False),
        ((), (b"Sec-WebSocket-Extensions: permessage-deflate",), False),
        ((), (b"Transfer-Encoding: chunked",), False),
    ],
)
def test_a_101_is_valid_only_if_it_matches_the_request(
    offered: tuple[str, ...], chosen: tuple[bytes, ...], good: bool
) -> None:
    lines = (*PROPER, b"Sec-WebSocket-Accept: " + PROOFS[0], *chosen)
    said = alone(raw(*lines), asked(*offered))
    assert (said is not None) == good
    assert alone(raw(*lines, minor=0), asked(*offered)) is None
    if said is not None:
        assert said.startswith(b"HTTP/1.1 101 Switching Protocols\r\n")
        assert DATE + b"Connection: Upgrade\r\nUpgrade: websocket\r\n" in said
        assert said.endswith(b"\r\n".join((PROOFS[0], *chosen, b"", b"")))
        # What one may choose another has to have offered, too.
        known = UpgradeResponseCache()
        assert remembering(known, raw(*lines), asked(*offered)) == said
        assert remembering(known, raw(*lines), asked()) == (None if chosen else said)


def test_a_101_has_one_date_field() -> None:
    has_date = (*PROPER, b"Sec-WebSocket-Accept: " + PROOFS[0], DATE.rstrip())
    said = alone(raw(*has_date), asked())
    assert said is not None
    assert said.count(b"Date: ") == 1


NAMES = (b"Sec-WebSocket-Accept", b"sec-websocket-accept", b"X-Accept", b"Connection")
VALUES = (*PROOFS, b"", b"x", PROOFS[0] + b" ", b" " + PROOFS[0], PROOFS[0][:-1], PROOFS[1] * 2)
LINES = st.lists(st.tuples(st.sampled_from(NAMES), st.sampled_from(VALUES)), max_size=3)


@given(st.lists(st.tuples(LINES, st.sampled_from(KEYS), st.sampled_from([b"", *PROOFS]))))
def test_a_101_is_parsed_alike_after_any_other(
    heads: list[tuple[list[tuple[bytes, bytes]], str, bytes]],
) -> None:
    known = UpgradeResponseCache()
    for lines, key, reason in heads:
        data = raw(*PROPER, *map(b": ".join, lines), reason=reason)
        request = asked(key=key)
        assert remembering(known, data, request) == alone(data, request)


def test_the_cache_of_101_heads_is_bounded_and_holds_no_long_head() -> None:
    known, proof = UpgradeResponseCache(), b"Sec-WebSocket-Accept: " + PROOFS[0]
    heads = [raw(*PROPER, proof, b"X: %d" % number) for number in range(MAX_UPGRADE_RESPONSES + 1)]
    for head in (*heads, raw(*PROPER, proof, b"X: " + b"x" * MAX_UPGRADE_BYTES)):
        assert remembering(known, head, asked()) is not None
    assert len(known) == MAX_UPGRADE_RESPONSES
    assert known.get(heads[0], asked(), PROOFS[0]) is None
    assert known.get(heads[1], asked(), PROOFS[0]) is not None
    assert known.get(heads[1][:-1], asked(), PROOFS[0]) is None, "it is not complete"
