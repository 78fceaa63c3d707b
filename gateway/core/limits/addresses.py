"""Addresses of clients: by what each is counted, and who is behind a proxy."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv6Address, IPv6Network, ip_address
from typing import Final

from shared.networks import Network, embedded, read_address

MOST_HOPS: Final = 32
"""Trusted proxies in a row that are read of ``X-Forwarded-For``: each takes some microseconds."""


def plain(text: str) -> str:
    """Return the address *text*; an IPv4 one in its own dress."""
    return text.removeprefix("::ffff:") if "." in text else text


def limit_key(text: str) -> str:
    """Return by what the client at the address *text* is counted: for IPv6 its /64.

    Who has one IPv6 address has all 2**64 of its network.
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
    """Say whether the address *text*, and any that it embeds, lies in one of *networks*.

    An IPv4-mapped address is the IPv4 one in another dress, so only that one is judged. What is
    no address, or has a scope (``fe80::1%eth0``), is nowhere.
    """
    address = read_address(text)
    return address is not None and all(
        any(one in network for network in networks) for one in embedded(address)
    )


def client_address(peer: str, forwarded_for: bytes | None, trusted: Sequence[Network]) -> str:
    """Return the address of the client behind *peer*.

    ``X-Forwarded-For`` counts only from a trusted proxy, read from the right: the first address
    that is not a trusted proxy's is the client's. Where it is unreadable, or further away than
    :data:`MOST_HOPS`, the last proxy is.
    """
    if not trusted or not is_within(peer, trusted):
        return peer
    last = peer
    for part in reversed((forwarded_for or b"").rsplit(b",", MOST_HOPS)[-MOST_HOPS:]):
        try:
            address = ip_address(part.strip().decode("ascii"))
        except ValueError:
            return last
        # Proxies that listen at :: write clients of IPv4 so.
        mapped = address.ipv4_mapped if isinstance(address, IPv6Address) else None
        hop = str(mapped or address)
        if not is_within(hop, trusted):
            return hop
        last = hop
    return last
