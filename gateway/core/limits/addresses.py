"""Client addresses: the key by which each is limited, and the client behind a proxy.

A proxy that reads HTTP names the client in ``X-Forwarded-For``. One that does not sends the header
of the PROXY protocol, version 2, in binary before the first byte (HAProxy's
``proxy-protocol.txt``, section 2.2).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import Final

from shared.networks import Network, embedded, read_address

MAX_HOPS: Final = 32
"""How many trusted proxies in a row are read from ``X-Forwarded-For``: each takes microseconds."""

_WITH_PORT: Final = re.compile(
    rb"([0-9.]{7,15}):[0-9]{1,5}|\[([0-9A-Fa-f:.]{2,45})\](?::[0-9]{1,5})?"
)
"""An address with the client's port, as Azure's Application Gateway writes it, AWS's load balancers
on request, and nginx reads it."""


def unmapped(text: str) -> str:
    """Return the address *text*, an IPv4-mapped IPv6 address as IPv4."""
    return text.removeprefix("::ffff:") if "." in text else text


def limit_key(text: str) -> str:
    """Return the key by which the client at the address *text* is limited; for IPv6 its /64.

    A client with one IPv6 address has all 2**64 addresses of its network.
    """
    if ":" not in text:
        return text
    try:
        address = IPv6Address(text.partition("%")[0])
    except ValueError:
        return text
    mapped = address.ipv4_mapped
    return str(mapped or IPv6Network((address, 64), strict=False))


def client_of_key(key: str) -> str:
    """Return what names the client whose address has the limit key *key*; "" without a key.

    No user has this name: names of users contain no control characters.
    """
    return f"\0{key}" if key else ""


def is_within(text: str, networks: Sequence[Network]) -> bool:
    """Return whether the address *text*, and each address that it embeds, lies in *networks*.

    An IPv4-mapped address is judged as IPv4 only. A text that is no address, or an address with a
    scope (``fe80::1%eth0``), lies nowhere.
    """
    address = read_address(text)
    return address is not None and all(
        any(one in network for network in networks) for one in embedded(address)
    )


def client_address(peer: str, forwarded_for: bytes | None, trusted: Sequence[Network]) -> str:
    """Return the address of the client behind *peer*.

    ``X-Forwarded-For`` counts only from a trusted proxy and is read from the right: the first
    address that is not a trusted proxy's is the client's, without its port. If the field cannot be
    parsed, or the client is more than :data:`MAX_HOPS` hops away, the result is the last proxy's
    address.
    """
    if not trusted or not is_within(peer, trusted):
        return peer
    last = peer
    for part in reversed((forwarded_for or b"").rsplit(b",", MAX_HOPS)[-MAX_HOPS:]):
        hop = part.strip()
        with_port = _WITH_PORT.fullmatch(hop)
        if with_port is not None:
            hop = with_port[1] or with_port[2]
        try:
            address = ip_address(hop.decode("ascii"))
        except ValueError:
            return last
        # Proxies that listen on :: write IPv4 clients in this form.
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        last = str(mapped or address)
        if not is_within(last, trusted):
            return last
    return last


# The PROXY header

SIGNATURE: Final = b"\r\n\r\n\x00\r\nQUIT\n"
"""No request and no TLS handshake starts with it; the first byte is enough to tell them apart."""
FIXED_BYTES: Final = 16
MAX_PROXY_BYTES: Final = 4096
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
    if length > MAX_PROXY_BYTES:
        raise BadProxyHeader("the header is too long")
    if command == _PROXY and length < _ADDRESS_BYTES.get(family, MAX_PROXY_BYTES + 1):
        raise BadProxyHeader("the family is not TCP, or its addresses are cut short")
    return length


def source_address(fixed: bytes, rest: bytes) -> str | None:
    """Return the client's address from a header whose parts were read in full.

    None stands for the proxy itself (``LOCAL``, a health check). The bytes after the addresses
    are not read.
    """
    if fixed[12] == _LOCAL:
        return None
    if fixed[13] == _TCP4:
        return str(IPv4Address(rest[:4]))
    address = IPv6Address(rest[:16])
    return str(address.ipv4_mapped or address)
