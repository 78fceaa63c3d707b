"""The ``Date`` field, which an origin server with a clock sends (RFC 9110, section 6.6.1)."""

from __future__ import annotations

from collections.abc import Callable
from email.utils import formatdate


class HttpDate:
    """Makes the field once a second.

    Args:
        wall: Returns unix seconds.
    """

    __slots__ = ("_field", "_second", "_wall")

    def __init__(self, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._second = -1
        self._field = b""

    def field(self) -> bytes:
        """Return the whole field, with its CRLF."""
        second = int(self._wall())
        if second != self._second:
            self._second = second
            self._field = b"Date: %b\r\n" % formatdate(second, usegmt=True).encode("ascii")
        return self._field
