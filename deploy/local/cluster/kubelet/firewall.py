"""The packet filter of the node's network: decides about each new connection between Pods.

One rule holds back the first packet of each connection and passes all others. The kernel queues the
held packet for this process, which passes or drops it as `Judge` decides. If this process is gone,
nothing answers, and the kernel drops the packet.
"""

import asyncio
import contextlib
import socket
import struct
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import IPv4Address
from typing import Final

from deploy.local.cluster.kubelet.netlink import (
    NEW,
    PLAIN,
    ask,
    attribute,
    attributes,
    message,
    nested,
    network_number,
    number,
    split,
    text,
)

NETFILTER: Final = 12
"""The protocol of the netlink sockets that this module needs."""

_TABLES, _QUEUES, _BEGIN, _END = 10, 3, 16, 17
_NEW_TABLE, _NEW_CHAIN, _NEW_RULE = 0, 3, 6
_PACKET, _VERDICT, _CONFIGURE = 0, 1, 2
_FORWARD: Final = 2
_REGISTER: Final = 8
_KNOWN_STATES: Final = 2 | 4  # established, related
_ACCEPT, _DROP = 1, 0
_PACKET_BYTES: Final = 65536
_COPIED_BYTES: Final = 64  # the IP header and the header after it
_TABLE: Final = "pods"
_NAMES: Final = {socket.IPPROTO_TCP: "TCP", socket.IPPROTO_UDP: "UDP", 132: "SCTP"}


@dataclass(frozen=True, slots=True)
class Attempt:
    """The first packet of a connection: its source and its target."""

    source: str
    target: str
    protocol: str
    """``TCP``, ``UDP``, ``SCTP``, or empty for a protocol without ports."""

    port: int


Judge = Callable[[Attempt], bool]


def read_attempt(packet: bytes) -> Attempt:
    """Return the connection that an IPv4 packet tries to open."""
    length = (packet[0] & 15) * 4
    source, target = (str(IPv4Address(packet[at : at + 4])) for at in (12, 16))
    protocol = _NAMES.get(packet[9], "")
    known = protocol and len(packet) >= length + 4
    port = int.from_bytes(packet[length + 2 : length + 4], "big") if known else 0
    return Attempt(source, target, protocol, port)


def install(kernel: socket.socket) -> None:
    """Hold back new connections in the network of *kernel*.

    Raises:
        OSError: If this kernel has no packet filter for unprivileged users.
    """
    try:
        _install(kernel, _expression("queue", attribute(1, struct.pack("!H", 0))))
    except FileNotFoundError:  # built without nft's own queues, maybe with the older ones
        older = text(1, "NFQUEUE") + network_number(2, 0) + attribute(3, bytes(8))
        _install(kernel, _expression("target", older))


def answer_attempts(queue: socket.socket, judge: Judge) -> None:
    """Decide from now on, in the running loop, about the packets that `install` holds back.

    Raises:
        OSError: If this kernel has no such queues.
    """
    ask(queue, _configure(attribute(1, struct.pack("!BxH", 1, socket.AF_INET))))
    ask(queue, _configure(attribute(2, struct.pack("!IB", _COPIED_BYTES, 2))))
    loop = asyncio.get_running_loop()
    loop.add_reader(queue, _answer_all, queue, judge)


def _answer_all(queue: socket.socket, judge: Judge) -> None:
    with contextlib.suppress(BlockingIOError, OSError):  # full: a lost packet is sent again
        while True:
            for _, body in split(queue.recv(_PACKET_BYTES)):
                found = attributes(body[4:])
                if 1 not in found:
                    continue
                attempt = read_attempt(found[10])
                verdict = _ACCEPT if judge(attempt) else _DROP
                header = attribute(2, struct.pack("!I", verdict) + found[1][:4])
                queue.sendto(_message(_QUEUES, _VERDICT, header, flags=1), (0, 0))


def _configure(body: bytes) -> bytes:
    return _message(_QUEUES, _CONFIGURE, body, flags=PLAIN)


def _install(kernel: socket.socket, hold: bytes) -> None:
    hook = nested(4, network_number(1, _FORWARD), network_number(2, 0))
    chain = text(1, _TABLE) + text(3, "forward") + hook + text(7, "filter")
    state = _expression("ct", network_number(1, _REGISTER), network_number(2, 0))
    masked = _expression(
        "bitwise",
        network_number(1, _REGISTER),
        network_number(2, _REGISTER),
        network_number(3, 4),
        nested(4, number(1, _KNOWN_STATES)),
        nested(5, number(1, 0)),
    )
    none = _expression("cmp", network_number(1, _REGISTER), network_number(2, 0), _zero(3))
    rule = text(1, _TABLE) + text(2, "forward") + nested(4, state, masked, none, hold)
    ask(
        kernel,
        _batch(_BEGIN),
        _message(_TABLES, _NEW_TABLE, text(1, _TABLE), flags=NEW),
        _message(_TABLES, _NEW_CHAIN, chain, flags=NEW),
        _message(_TABLES, _NEW_RULE, rule, flags=NEW | 0x800),
        _batch(_END),
    )


def _expression(name: str, *data: bytes) -> bytes:
    return nested(1, text(1, name), nested(2, *data))


def _zero(kind: int) -> bytes:
    return nested(kind, number(1, 0))


def _batch(kind: int) -> bytes:
    return message(kind, 1, struct.pack("!BBH", socket.AF_UNSPEC, 0, _TABLES))


def _message(subsystem: int, kind: int, body: bytes, *, flags: int) -> bytes:
    header = struct.pack("!BBH", socket.AF_INET, 0, 0)
    return message(subsystem << 8 | kind, flags, header + body)
