"""Netlink: the kernel's interface to links, addresses, routes and packet filters.

It has only what the Pods' network needs. Pure functions make the bytes of a message. `ask` sends
messages and reads the kernel's response, which is available at once.
"""

import errno
import itertools
import os
import socket
import struct
from typing import Final

_HEADER: Final = struct.Struct("=IHHII")
_REQUEST, _ACK, _EXCLUSIVE, _CREATE = 1, 4, 0x200, 0x400
_ERROR: Final = 2
_NESTED: Final = 0x8000
_ANSWER_BYTES: Final = 65536
NEW: Final = _REQUEST | _ACK | _CREATE | _EXCLUSIVE
PLAIN: Final = _REQUEST | _ACK
_SEQUENCE: Final = itertools.count(1)


def attribute(kind: int, value: bytes) -> bytes:
    """Return one attribute, padded."""
    return struct.pack("=HH", len(value) + 4, kind) + value + b"\0" * (-len(value) % 4)


def nested(kind: int, *attributes: bytes) -> bytes:
    """Return an attribute that holds others."""
    return attribute(kind | _NESTED, b"".join(attributes))


def text(kind: int, value: str) -> bytes:
    """Return an attribute that holds a string."""
    return attribute(kind, value.encode() + b"\0")


def number(kind: int, value: int) -> bytes:
    """Return an attribute that holds 32 bits in the machine's order."""
    return attribute(kind, struct.pack("=I", value))


def network_number(kind: int, value: int) -> bytes:
    """Return an attribute that holds 32 bits in the network's order."""
    return attribute(kind, struct.pack("!I", value))


def message(kind: int, flags: int, body: bytes) -> bytes:
    """Return one message."""
    return _HEADER.pack(_HEADER.size + len(body), kind, flags, next(_SEQUENCE), 0) + body


def split(data: bytes) -> list[tuple[int, bytes]]:
    """Return type and body of each message in *data*."""
    found = []
    while len(data) >= _HEADER.size:
        length, kind, *_ = _HEADER.unpack_from(data)
        found.append((kind, data[_HEADER.size : length]))
        data = data[length + (-length % 4) :]
    return found


def attributes(data: bytes) -> dict[int, bytes]:
    """Return the attributes in *data* by their type."""
    found = {}
    while len(data) >= 4:
        length, kind = struct.unpack_from("=HH", data)
        found[kind & ~_NESTED] = data[4:length]
        data = data[length + (-length % 4) :]
    return found


def ask(kernel: socket.socket, *messages: bytes) -> None:
    """Send *messages* as one to the kernel.

    Raises:
        OSError: With the kernel's reason, if it refuses one of them.
    """
    wanted = {
        _HEADER.unpack_from(each)[3] for each in messages if _HEADER.unpack_from(each)[2] & _ACK
    }
    kernel.setblocking(True)
    kernel.settimeout(5.0)
    try:
        # With an explicit receiver the kernel checks our rights, not those of the socket's opener.
        kernel.sendto(b"".join(messages), (0, 0))
        while wanted:
            wanted -= _acknowledged(kernel.recv(_ANSWER_BYTES))
    finally:
        kernel.setblocking(False)


def _acknowledged(response: bytes) -> set[int]:
    done = set()
    for kind, body in split(response):
        if kind == _ERROR:
            code, _, _, _, sequence, _ = struct.unpack_from("=iIHHII", body)
            if code:
                raise OSError(-code, f"{os.strerror(-code)} ({errno.errorcode.get(-code)})")
            done.add(sequence)
    return done
