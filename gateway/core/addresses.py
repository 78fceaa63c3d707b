"""Addresses: which are within bounds, and who the client is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from gateway.core.site import Network

Address: TypeAlias = IPv4Address | IPv6Address

_NAT64: Final = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))
_COMPATIBLE: Final = IPv6Network("::/96")


def embedded(address: Address) -> Iterator[Address]:
    """Yield *address* and every address that packets to it may end up at.

    IPv4-mapped, IPv4-compatible, NAT64 (RFC 6052, RFC 8215) and 6to4 (RFC 3056) addresses lead to
    an IPv4 one.
    """
    yield address
    if not isinstance(address, IPv6Address):
        return
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    elif address.sixtofour is not None:
        yield address.sixtofour
    elif any(address in network for network in _NAT64) or (
        address in _COMPATIBLE and int(address) > 1
    ):
        yield IPv4Address(int(address) & 0xFFFFFFFF)


def is_within(text: str, networks: Sequence[Network]) -> bool:
    """Say whether the address *text*, and any that it embeds, lies in one of *networks*.

    An IPv4-mapped address is the IPv4 one in another dress, so only that one is judged. What is
    no address, or has a scope (``fe80::1%eth0``), is nowhere.
    """
    try:
        address = ip_address(text)
    except ValueError:
        return False
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            return False
        address = address.ipv4_mapped or address
    return all(any(one in network for network in networks) for one in embedded(address))


def client_address(peer: str, forwarded_for: bytes | None, trusted: Sequence[Network]) -> str:
    """Return the address of the client behind *peer*.

    ``X-Forwarded-For`` counts only from a trusted proxy, read from the right: the first address
    that is not a trusted proxy's is the client's. Where it is unreadable, the last proxy is.
    """
    if not trusted or not is_within(peer, trusted):
        return peer
    last = peer
    for part in reversed((forwarded_for or b"").split(b",")):
        try:
            hop = str(ip_address(part.strip().decode("ascii")))
        except ValueError:
            return last
        if not is_within(hop, trusted):
            return hop
        last = hop
    return last
