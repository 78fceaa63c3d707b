"""Addresses: which are within bounds, and who the client is."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address, ip_network
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from gateway.core.site import Network

Address: TypeAlias = IPv4Address | IPv6Address

_SPECIAL: Final = tuple(
    map(
        ip_network,
        (
            "0.0.0.0/8",  # to Linux, this very machine
            "127.0.0.0/8",
            "169.254.0.0/16",  # link-local: most clouds' metadata, with credentials
            "224.0.0.0/4",
            "240.0.0.0/4",
            "168.63.129.16/32",  # metadata that is elsewhere
            "fd00:ec2::254/128",
            "::/128",
            "::1/128",
            "fe80::/10",
            "ff00::/8",
        ),
    )
)
"""Where no app is. A network in the settings that is wider than one of these does not mean it."""
_NAT64: Final = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))
_COMPATIBLE: Final = IPv6Network("::/96")


def embedded(address: Address) -> Iterator[Address]:
    """Yield *address* and every address that packets to it may end up at.

    IPv4-mapped, IPv4-compatible, NAT64 (RFC 6052, RFC 8215), 6to4 (RFC 3056) and Teredo
    (RFC 4380) addresses lead to an IPv4 one.
    """
    yield address
    if not isinstance(address, IPv6Address):
        return
    if address.ipv4_mapped is not None:
        yield address.ipv4_mapped
    elif address.sixtofour is not None:
        yield address.sixtofour
    elif address.teredo is not None:
        yield from address.teredo
    elif any(address in network for network in _NAT64) or (
        address in _COMPATIBLE and int(address) > 1
    ):
        yield IPv4Address(int(address) & 0xFFFFFFFF)


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
    address = _read(text)
    return address is not None and all(
        any(one in network for network in networks) for one in embedded(address)
    )


def _read(text: str) -> Address | None:
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address):
        if address.scope_id is not None:
            return None
        return address.ipv4_mapped or address
    return address


class Bounds:
    """Where targets may be.

    Args:
        networks: The allowed ones.
        refused: Addresses that are never meant by a wider network, beside those that are special
            to everybody: the cluster's API server.
    """

    __slots__ = ("_networks", "_refused")

    def __init__(self, networks: Sequence[Network], refused: Sequence[Network] = ()) -> None:
        self._networks = tuple(networks)
        self._refused = (*_SPECIAL, *refused)

    def allow(self, text: str) -> bool:
        """Say whether the address *text*, and any that it embeds, may be dialled.

        A special or refused address may be only when a network that is allowed lies within the
        special one: ``127.0.0.0/8`` means loopback, ``0.0.0.0/0`` does not.
        """
        address = _read(text)
        return address is not None and all(map(self._allows, embedded(address)))

    def _allows(self, address: Address) -> bool:
        allowing = [network for network in self._networks if address in network]
        return bool(allowing) and all(
            any(_lies_in(network, special) for network in allowing)
            for special in self._refused
            if address in special
        )


def _lies_in(inner: Network, outer: Network) -> bool:
    return (
        inner.version == outer.version
        and inner.network_address in outer
        and inner.prefixlen >= outer.prefixlen
    )


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
