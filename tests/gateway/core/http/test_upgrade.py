from __future__ import annotations

import pytest

from gateway.core.http.fields import FieldReader, Fields
from gateway.core.http.heads import read_start_line
from gateway.core.http.upgrade import (
    accept_value,
    deflate_offers,
    is_offered_deflate,
    is_valid_upgrade,
    upgrade_fields,
)

KEY = "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=="
ALL = ("Upgrade: websocket", "Connection: Upgrade", "Sec-WebSocket-Version: 13", KEY)


def read(*lines: str) -> Fields:
    return (
        FieldReader(b"x")
        .read_section("\r\n".join(("Host: a", *lines, "", "")).encode(), None)
        .fields
    )


def test_the_example_of_the_rfc_gets_its_accept_value() -> None:
    assert accept_value(b"dGhlIHNhbXBsZSBub25jZQ==") == b"s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


def test_a_valid_upgrade_is_accepted() -> None:
    assert is_valid_upgrade(read_start_line(b"GET / HTTP/1.1"), read(*ALL))
    assert is_valid_upgrade(read_start_line(b"GET / HTTP/1.1"), read(*ALL, "Content-Length: 0"))


@pytest.mark.parametrize(
    ("line", "fields"),
    [
        (b"POST / HTTP/1.1", ALL),
        (b"GET / HTTP/1.0", ALL),
        (b"GET / HTTP/1.1", (*ALL, "Content-Length: 1")),
        (b"GET / HTTP/1.1", (*ALL, "Transfer-Encoding: chunked")),
        (b"GET / HTTP/1.1", tuple(line for line in ALL if "Connection" not in line)),
        (b"GET / HTTP/1.1", tuple(line for line in ALL if "Version" not in line)),
        (b"GET / HTTP/1.1", tuple(line for line in ALL if "Key" not in line)),
        (b"GET / HTTP/1.1", (*ALL[:3], "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ")),
        (b"GET / HTTP/1.1", (*ALL[:3], "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ=?")),
        (b"GET / HTTP/1.1", (*ALL[:3], "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZWE=")),
        (b"GET / HTTP/1.1", (*ALL, "Sec-WebSocket-Extensions: " + "x," * 32)),
        (b"GET / HTTP/1.1", (*ALL, "Sec-WebSocket-Protocol: " + "x," * 32)),
    ],
)
def test_invalid_upgrades_are_refused(line: bytes, fields: tuple[str, ...]) -> None:
    assert not is_valid_upgrade(read_start_line(line), read(*fields))


@pytest.mark.parametrize(
    ("offered", "passed"),
    [
        (None, None),
        (b"x", None),
        (b"permessage-deflate", b"permessage-deflate"),
        (b"x, Permessage-Deflate; a=1 ,y", b"Permessage-Deflate; a=1"),
        (
            b"permessage-deflate; a, permessage-deflate",
            b"permessage-deflate; a, permessage-deflate",
        ),
        (b"permessage-deflate-2", None),
    ],
)
def test_only_permessage_deflate_is_forwarded(offered: bytes | None, passed: bytes | None) -> None:
    assert deflate_offers(offered) == passed


def test_only_an_offered_extension_may_be_chosen() -> None:
    assert is_offered_deflate(None, offered=None)
    assert is_offered_deflate(b"permessage-deflate; a", offered=b"permessage-deflate")
    assert not is_offered_deflate(b"permessage-deflate", offered=None)
    assert not is_offered_deflate(b"permessage-deflate", offered=b"x")
    assert not is_offered_deflate(b"permessage-deflate, x", offered=b"permessage-deflate, x")
    many = b"permessage-deflate," * 33 + b"permessage-deflate"
    assert not is_offered_deflate(many, offered=b"permessage-deflate")


def test_upgrade_fields_are_written_in_canonical_form() -> None:
    fields = read(*ALL, "Sec-WebSocket-Protocol: a", "Sec-WebSocket-Protocol: b")
    assert upgrade_fields(fields) == (
        b"Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
        b"Sec-WebSocket-Protocol: a, b\r\n"
    )
