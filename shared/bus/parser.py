"""Reads responses of Redis up to a size that a process can hold."""

from __future__ import annotations

from typing import Any, Final

from redis._parsers import _AsyncRESP2Parser

from shared.bus.translation import NotServed

MOST_VALUE_BYTES: Final = 1 << 23
"""An event has 256 KiB at most, a route 128 KiB. A longer value is read up to here, so that only it
counts as unreadable."""
MOST_RESPONSE_BYTES: Final = 1 << 27
"""Twice the largest table that is read in one piece, or a million revocations."""


class BoundedParser(_AsyncRESP2Parser):
    """Gives up the connection before it reads what would take seconds and gigabytes."""

    _left = 0

    async def read_response(self, *args: Any, **options: Any) -> Any:
        """Return the next response.

        Raises:
            NotServed: If the response, or a value in it, is too large.
        """
        self._left = MOST_RESPONSE_BYTES
        return await super().read_response(*args, **options)

    async def _read(self, length: int) -> bytes:
        self._left -= length
        if length > MOST_VALUE_BYTES or self._left < 0:
            raise NotServed("it sent more than a route table can have")
        return await super()._read(length)
