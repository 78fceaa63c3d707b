"""The header of the PROXY protocol, version 2: the client address behind a TCP proxy.

A proxy that does not read HTTP cannot send the client's address in a field. It sends it in binary
before the first byte. The format is HAProxy's ``proxy-protocol.txt``, section 2.2.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from typing import Final

SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
"""No request and no TLS handshake starts with it; the first byte is enough to tell them apart."""
FIXED_BYTES: Final = 16
MAX_BYTES: Final = 4096
"""Of the addresses and the TLVs after them: TLVs that hold certificates are not meant for the
gateway."""

_LOCAL: Final = 0x20
_PROXY: Final = 0x21
_TCP4: Final = 0x11
_TCP6: Final = 0x21
_ADDRESS_BYTES: Final = {_TCP4: 12, _TCP6: 36}


class BadProxyHeader(Exception):
    """A header that cannot be parsed, so that the client's address cannot be known."""


def remaining_bytes(fixed: bytes) -> int:
    """Return how many bytes follow the first 16 of a header; the caller must not read more.

    Raises:
        BadProxyHeader: For a wrong signature, version, command, family or length.
    """
    if fixed[:12] != SIGNATURE:
        raise BadProxyHeader("the signature is wrong")
    command, family = fixed[12], fixed[13]
    length = int.from_bytes(fixed[14:16], "big")
    if command not in (_LOCAL, _PROXY):
        raise BadProxyHeader("the version or command is not known")
    if length > MAX_BYTES:
        raise BadProxyHeader("the header is too long")
    if command == _PROXY and length < _ADDRESS_BYTES.get(family, MAX_BYTES + 1):
        raise BadProxyHeader("the family is not TCP, or its addresses are cut short")
    return length


def source_address(fixed: bytes, rest: bytes) -> str | None:
    """Return the client's address from a header whose parts were read in full.

    None stands for the proxy itself (``LOCAL``, a health check). What follows the addresses is not
    read.
    """
    if fixed[12] == _LOCAL:
        return None
    if fixed[13] == _TCP4:
        return str(IPv4Address(rest[:4]))
    address = IPv6Address(rest[:16])
    return str(address.ipv4_mapped or address)
