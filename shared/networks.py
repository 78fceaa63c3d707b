"""Special-purpose networks, which a wider network in a setting does not include.

Both processes use them: the gateway must not dial such addresses, and a job must not reach them,
since they lead to the machine itself or to a cloud's credentials. The sources are the IANA
registries of special-purpose addresses (RFC 6890) and the metadata services of clouds.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network
from typing import Final, TypeAlias

Address: TypeAlias = IPv4Address | IPv6Address
Network: TypeAlias = IPv4Network | IPv6Network


def _networks(*texts: str) -> tuple[Network, ...]:
    return tuple(map(ip_network, texts))


SPECIAL: Final = _networks(
    "0.0.0.0/8",  # on Linux, this machine
    "127.0.0.0/8",
    "169.254.0.0/16",  # link-local: most clouds' metadata, with credentials
    "168.63.129.16/32",  # Azure's WireServer
    "192.0.0.0/24",  # IETF protocol assignments: Oracle's metadata is there
    "192.88.99.0/24",  # relays of 6to4 (RFC 7526)
    "224.0.0.0/4",
    "240.0.0.0/4",
    "::/128",
    "::1/128",
    "100::/64",  # discard-only (RFC 6666)
    "fd00:ec2::254/128",  # Amazon's metadata
    "fd20:ce::254/128",  # Google's metadata
    "fe80::/10",
    "fec0::/10",  # site-local, once (RFC 3879)
    "ff00::/8",
)
"""No app is here, and no job may reach them."""

NAT64: Final = (IPv6Network("64:ff9b::/96"), IPv6Network("64:ff9b:1::/48"))
"""The last 32 bits of each address are an IPv4 address (RFC 6052, RFC 8215)."""
COMPATIBLE: Final = IPv6Network("::/96")
"""IPv4-compatible addresses, which also end in an IPv4 address (RFC 4291, section 2.5.5.1)."""
EMBEDDING: Final = (
    *NAT64,
    COMPATIBLE,
    *_networks("2001::/32", "2002::/16"),  # Teredo (RFC 4380), 6to4 (RFC 3056)
)
"""Networks whose addresses embed IPv4 addresses. A NetworkPolicy cannot check those, so that it
excludes the whole networks."""

PRIVATE: Final = _networks(
    "10.0.0.0/8",
    "100.64.0.0/10",
    "172.16.0.0/12",
    "192.168.0.0/16",
    "198.18.0.0/15",  # benchmarks (RFC 2544): devices' own networks
    "fc00::/7",
)
"""Private networks, which hold a cluster's nodes, pods and Services."""


def _order(network: Network) -> tuple[int, int]:
    return network.version, int(network.network_address)


def _outermost(networks: tuple[Network, ...]) -> tuple[Network, ...]:
    """Return *networks* in order, without those that lie within another one."""
    found: list[Network] = []
    for one in sorted(networks, key=lambda each: (*_order(each), each.prefixlen)):
        last = found[-1] if found else None
        inside = last is not None and last.version == one.version and one.network_address in last
        if not inside:
            found.append(one)
    return tuple(found)


NOT_THE_WORLD: Final = _outermost((*SPECIAL, *EMBEDDING, *PRIVATE))
"""Networks that "everywhere" excludes for a job: special, private, and those that embed them."""


def embedded(address: Address) -> Iterator[Address]:
    """Yield *address* and every address that it embeds and that packets to it may reach.

    IPv4-mapped, IPv4-compatible, NAT64 (RFC 6052, RFC 8215), 6to4 (RFC 3056) and Teredo
    (RFC 4380) addresses embed IPv4 addresses.
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
    elif any(address in network for network in NAT64) or (
        address in COMPATIBLE and int(address) > 1
    ):
        yield IPv4Address(int(address) & 0xFFFFFFFF)


def read_address(text: str) -> Address | None:
    """Return the address *text*, IPv4-mapped ones as IPv4; None if it is none or has a scope."""
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
    """The networks in which targets may be.

    Args:
        networks: The allowed networks.
        refused: Addresses that a wider allowed network does not include, in addition to the special
            ones: the cluster's API server.
    """

    def __init__(self, networks: Sequence[Network], refused: Sequence[Network] = ()) -> None:
        self._networks = tuple(networks)
        self._refused = (*SPECIAL, *refused)

    def allow(self, text: str) -> bool:
        """Return whether the address *text*, and all that it embeds, may be dialled.

        A special or refused address is allowed only if an allowed network lies within the special
        network: ``127.0.0.0/8`` allows loopback, ``0.0.0.0/0`` does not.
        """
        address = read_address(text)
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
