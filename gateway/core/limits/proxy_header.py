"""The header of the PROXY protocol, version 2: who is behind a proxy that passes bytes on.

A proxy that does not read HTTP cannot say in a field whose connection it passes on; it says so
before the first byte, in binary. The form is HAProxy's ``proxy-protocol.txt``, section 2.2.
"""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address
from typing import Final

SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
"""No request begins so, and no TLS handshake: its first byte decides which of them comes."""
FIXED_BYTES: Final = 16
MAX_BYTES: Final = 4096
"""Of addresses and what follows them: those who add certificates there are not for us."""

_LOCAL: Final = 0x20
_PROXY: Final = 0x21
_TCP4: Final = 0x11
_TCP6: Final = 0x21
_ADDRESS_BYTES: Final = {_TCP4: 12, _TCP6: 36}


class BadProxyHeader(Exception):
    """A header that is not to be understood: whose connection it is cannot be known."""


def remaining_bytes(fixed: bytes) -> int:
    """Return how many bytes follow the first 16 of a header; nothing more may be read.

    Raises:
        BadProxyHeader: For another signature, version, command, family or length.
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
    """Return the client's address in a header whose parts were read in full.

    None stands for the proxy itself (``LOCAL``: a health check). What follows the addresses is
    left unread.
    """
    if fixed[12] == _LOCAL:
        return None
    if fixed[13] == _TCP4:
        return str(IPv4Address(rest[:4]))
    address = IPv6Address(rest[:16])
    return str(address.ipv4_mapped or address)
