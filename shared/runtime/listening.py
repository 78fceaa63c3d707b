"""Listening sockets: made here, so that both address families and several processes can share."""

from __future__ import annotations

import socket
from typing import Final

BACKLOG: Final = 4096
"""Connections that wait in the kernel to be accepted; the kernel lowers it to its own limit."""


def listen(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen at every address of *host*, all at one port.

    ``::`` takes IPv4 as well, whatever the kernel's default is; any other IPv6 address is only
    itself. With port 0 the first socket is given a free one, which the others take, too.

    Raises:
        OSError: If an address cannot be had, with its name; none is taken then.
    """
    taken: list[socket.socket] = []
    try:
        for family, address in _addresses(host, port):
            at = taken[0].getsockname()[1] if taken else port
            taken.append(_listen(family, (address, at), dual=host == "::"))
    except OSError as error:
        for sock in taken:
            sock.close()
        where = f"cannot listen at {host}:{port}: {error.strerror}"
        raise type(error)(error.errno, where) from error
    return taken


def _addresses(host: str, port: int) -> list[tuple[int, str]]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # A name can stand twice in /etc/hosts.
    return list(dict.fromkeys((int(info[0]), str(info[4][0])) for info in found))


def _listen(family: int, address: tuple[str, int], *, dual: bool) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(not dual))
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock
