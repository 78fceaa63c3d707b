"""Links between the networks of Pods and that of the node: the requests to the kernel.

A Pod has one link, `eth0`, with its address. Everything for the cluster's networks goes over it to
the node, which forwards packets. There is no ARP: both ends of a link have the same hardware
address, so each end accepts whatever the other sends.

Addresses of the cluster are loopback addresses, so that a Pod has the same address inside and
outside. In a Pod, only 127.0.0.0/10 stays loopback, and the links route the rest.
"""

import fcntl
import os
import socket
import struct
from ipaddress import IPv4Address, IPv4Network
from typing import Final

from deploy.local.cluster.kubelet.netlink import NEW, PLAIN, ask, attribute, message, nested, text
from deploy.local.cluster.kubelet.netlink import number as integer

_NEWLINK, _DELLINK, _SETLINK, _NEWADDR, _DELADDR, _NEWROUTE = 16, 17, 19, 20, 21, 24
_IFNAME, _LINKINFO, _AF_SPEC, _NET_NS_FD = 3, 18, 26, 28
_KIND, _DATA, _PEER = 1, 2, 1
_LOCAL, _ADDRESS = 2, 1
_DESTINATION, _OUT_LINK, _SOURCE = 1, 4, 7
_FORWARDING, _ROUTE_LOCALNET = 1, 26
_UP, _NO_ARP = 1, 0x80
_MAIN_TABLE, _BOOT, _SCOPE_UNIVERSE, _SCOPE_LINK, _UNICAST = 254, 3, 0, 253, 1
_SOCKET_NAMESPACE: Final = 0x894C  # SIOCGSKNS
_HARDWARE: Final = attribute(_ADDRESS, bytes.fromhex("0a5800000001"))
LOOPBACK: Final = 1
"""The index of `lo` in every network."""


def join(pod: socket.socket, node: socket.socket, name: str) -> tuple[int, int]:
    """Make a pair of links, `eth0` in the Pod and *name* at the node; return their indexes.

    Args:
        pod: A route socket of the Pod's network.
        node: A route socket of the node's network.
        name: At most 15 characters.
    """
    namespace = fcntl.ioctl(node.fileno(), _SOCKET_NAMESPACE)
    try:
        there = text(_IFNAME, name) + _HARDWARE + integer(_NET_NS_FD, namespace)
        peer = attribute(_PEER, _link(0, 0) + there)
        info = nested(_LINKINFO, text(_KIND, "veth"), nested(_DATA, peer))
        ask(pod, message(_NEWLINK, NEW, _link(0, 0) + text(_IFNAME, "eth0") + _HARDWARE + info))
    finally:
        os.close(namespace)
    return index_of(pod, "eth0"), index_of(node, name)


def index_of(kernel: socket.socket, name: str) -> int:
    """Return the index of the link *name* in the network of *kernel*."""
    response = fcntl.ioctl(kernel.fileno(), 0x8933, struct.pack("16si20x", name.encode(), 0))
    return int(struct.unpack_from("16si", response)[1])


def bring_up(kernel: socket.socket, index: int, *, node: bool = False) -> None:
    """Set a link up, and let it carry loopback addresses; at the node also let it forward."""
    settings = {_ROUTE_LOCALNET: 1} | ({_FORWARDING: 1} if node else {})
    conf = nested(1, *(integer(setting, value) for setting, value in settings.items()))
    inet = nested(socket.AF_INET, conf)
    body = _link(index, _UP | _NO_ARP) + nested(_AF_SPEC, inet)
    ask(kernel, message(_SETLINK, PLAIN, body))


def add_address(kernel: socket.socket, index: int, address: str, bits: int) -> None:
    """Give a link an address."""
    ask(kernel, message(_NEWADDR, NEW, _address(index, address, bits)))


def remove_address(kernel: socket.socket, index: int, address: str, bits: int) -> None:
    """Remove an address from a link."""
    ask(kernel, message(_DELADDR, PLAIN, _address(index, address, bits)))


def add_route(
    kernel: socket.socket, network: IPv4Network, index: int, *, source: str | None = None
) -> None:
    """Route *network* over a link, with the address *source* for connections from here."""
    header = struct.pack(
        "=BBBBBBBBI",
        socket.AF_INET,
        network.prefixlen,
        0,
        0,
        _MAIN_TABLE,
        _BOOT,
        _SCOPE_LINK,
        _UNICAST,
        0,
    )
    target = attribute(_DESTINATION, network.network_address.packed)
    chosen = attribute(_SOURCE, IPv4Address(source).packed) if source else b""
    body = header + target + chosen + integer(_OUT_LINK, index)
    ask(kernel, message(_NEWROUTE, NEW, body))


def narrow_loopback(kernel: socket.socket, bits: int) -> None:
    """Leave only 127.0.0.0 with so many *bits* to `lo`."""
    add_address(kernel, LOOPBACK, "127.0.0.1", bits)
    remove_address(kernel, LOOPBACK, "127.0.0.1", 8)


def remove_link(kernel: socket.socket, index: int) -> None:
    """Remove a link with both of its ends, and the routes over it."""
    ask(kernel, message(_DELLINK, PLAIN, _link(index, 0)))


def _link(index: int, flags: int) -> bytes:
    return struct.pack("=BxHiII", socket.AF_UNSPEC, 0, index, flags, flags)


def _address(index: int, address: str, bits: int) -> bytes:
    packed = IPv4Address(address).packed
    header = struct.pack("=BBBBI", socket.AF_INET, bits, 0, _SCOPE_UNIVERSE, index)
    return header + attribute(_LOCAL, packed) + attribute(_ADDRESS, packed)
