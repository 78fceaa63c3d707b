"""Accepted sockets whose family and type are plain integers.

Python's sockets create an enumeration member on each read of them: five times for a connection that
is accepted and passed to a loop. That costs more than the kernel's part.
"""

from __future__ import annotations

import socket
from typing import Any, Final

_FAMILY: Final[Any] = socket.SocketType.family
_TYPE: Final[Any] = socket.SocketType.type
_ACCEPT: Final[Any] = socket.SocketType._accept  # type: ignore[attr-defined]  # accept's own call


class PlainSocket(socket.socket):
    """A socket whose ``family`` and ``type`` are integers."""

    __slots__ = ()

    family = _FAMILY
    type = _TYPE


def accept(listening: socket.socket) -> tuple[PlainSocket, Any]:
    """Return the next connection of *listening*, and the address of its peer.

    Raises:
        BlockingIOError: If none is waiting.
        OSError: As ``socket.accept`` does.
    """
    descriptor, address = _ACCEPT(listening)
    family, kind = _FAMILY.__get__(listening), _TYPE.__get__(listening)
    return PlainSocket(family, kind, listening.proto, fileno=descriptor), address
