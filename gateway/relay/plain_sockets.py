"""Accepted sockets whose family and type are plain numbers.

Python's own makes an enumeration's member of both, whenever it is asked. For a connection that is
accepted and given to a loop that is five times, and costs more than the kernel's part of it.
"""

from __future__ import annotations

import socket
from typing import Any, Final

_FAMILY: Final[Any] = socket.SocketType.family
_TYPE: Final[Any] = socket.SocketType.type
_ACCEPT: Final[Any] = socket.SocketType._accept  # type: ignore[attr-defined]  # accept's own call


class PlainSocket(socket.socket):
    """A socket like any other, but for ``family`` and ``type``."""

    __slots__ = ()

    family = _FAMILY
    type = _TYPE


def accept(listening: socket.socket) -> tuple[PlainSocket, Any]:
    """Return the next connection that waits at *listening*, and the address of its peer.

    Raises:
        BlockingIOError: If none waits.
        OSError: As ``socket.accept`` does.
    """
    descriptor, address = _ACCEPT(listening)
    family, kind = _FAMILY.__get__(listening), _TYPE.__get__(listening)
    return PlainSocket(family, kind, listening.proto, fileno=descriptor), address
