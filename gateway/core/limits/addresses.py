"""Client addresses: the key by which each is limited, and the client behind a proxy."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Final

from shared.networks import Network, embedded, read_address

MAX_HOPS: Final = 32
"""How many trusted proxies in a row are read from ``X-Forwarded-For``: each takes microseconds."""


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
    address that is not a trusted proxy's is the client's. If the field cannot be parsed, or the
    client is more than :data:`MAX_HOPS` hops away, the result is the last proxy's address.
    """
    if not trusted or not is_within(peer, trusted):
        return peer
    last = peer
    for part in reversed((forwarded_for or b"").rsplit(b",", MAX_HOPS)[-MAX_HOPS:]):
        try:
            address = ip_address(part.strip().decode("ascii"))
        except ValueError:
            return last
        # Proxies that listen on :: write IPv4 clients in this form.
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        hop = str(mapped or address)
        if not is_within(hop, trusted):
            return hop
        last = hop
    return last
