from __future__ import annotations

import struct
from ipaddress import ip_address

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.limits.addresses import (
    FIXED_BYTES,
    MAX_PROXY_BYTES,
    SIGNATURE,
    BadProxyHeader,
    remaining_bytes,
    source_address,
)


def header(
    source: str = "192.0.2.7",
    *,
    command: int = 0x21,
    family: int | None = None,
    extra: bytes = b"",
    length: int | None = None,
) -> bytes:
    """Return a header; parts that are not given are valid."""
    address = ip_address(source)
    if family is None:
        family = 0x11 if address.version == 4 else 0x21
    packed = address.packed * 2 + struct.pack("!HH", 51234, 443) + extra
    size = len(packed) if length is None else length
    return SIGNATURE + bytes((command, family)) + struct.pack("!H", size) + packed


def read(raw: bytes) -> tuple[str | None, bytes]:
    """Return the address, and the bytes after the header."""
    fixed, rest = raw[:FIXED_BYTES], raw[FIXED_BYTES:]
    size = remaining_bytes(fixed)
    assert len(rest) >= size
    return source_address(fixed, rest[:size]), rest[size:]


@pytest.mark.parametrize("source", ["192.0.2.7", "2001:db8::7", "0.0.0.0", "::"])
def test_the_source_is_read_and_nothing_beyond_the_header(source: str) -> None:
    assert read(header(source) + b"GET / HTTP/1.1\r\n") == (source, b"GET / HTTP/1.1\r\n")


def test_tlvs_after_the_addresses_are_skipped() -> None:
    tlvs = b"\x01\x00\x08http/1.1" + b"\x04\x00\x00" + b"\x20\xff\xffnonsense"
    assert read(header(extra=tlvs) + b"x") == ("192.0.2.7", b"x")


def test_an_ipv4_mapped_address_is_read_as_ipv4() -> None:
    assert read(header("::ffff:192.0.2.7"))[0] == "192.0.2.7"


@pytest.mark.parametrize("family", [0x00, 0x11, 0x21, 0x31])
def test_a_local_connection_is_the_proxys_own(family: int) -> None:
    raw = SIGNATURE + bytes((0x20, family)) + b"\x00\x00"
    assert read(raw + b"rest") == (None, b"rest")
    assert read(header(command=0x20, family=family) + b"rest") == (None, b"rest")


@pytest.mark.parametrize(
    "raw",
    [
        b"\r\n\r\n\x00\r\nQUIT\r" + header()[12:],
        b"\r\n\r\n\x00\r\nquit\n" + header()[12:],
        b"\r\n\r\n" + b"GET / HTTP/1",
        b"PROXY TCP4 192.0",
        header(command=0x11),
        header(command=0x31),
        header(command=0x22),
        header(command=0x01),
        header(family=0x00),
        header(family=0x10),
        header(family=0x12),
        header(family=0x22),
        header(family=0x31),
        header(family=0x41),
        header(length=11),
        header(length=0),
        header("::1", length=35),
        header(length=MAX_PROXY_BYTES + 1),
        header(length=0xFFFF),
    ],
)
def test_a_malformed_proxy_header_is_refused(raw: bytes) -> None:
    with pytest.raises(BadProxyHeader):
        remaining_bytes(raw[:FIXED_BYTES])


@given(st.binary(min_size=4, max_size=4), st.binary(max_size=MAX_PROXY_BYTES))
def test_any_bytes_are_read_or_refused(said: bytes, rest: bytes) -> None:
    fixed = SIGNATURE + said
    try:
        size = remaining_bytes(fixed)
    except BadProxyHeader:
        return
    address = source_address(fixed, rest.ljust(size, b"\0")[:size])
    assert address is None or ip_address(address)
