"""Closing under TLS: both sides say that they have ended, and a silent one is not waited for.

Whoever said so first need not wait for the other (RFC 8446, section 6.1). Loops do wait, and a
peer that is still reading when their time is over loses the rest. Here their time is long, and
looks at the kernel say which of the two it is.
"""

from __future__ import annotations

import asyncio
from typing import Final

from gateway.relay.ending.kernel import unacknowledged

SHUTDOWN_SECONDS: Final = 120.0
"""What a loop is told: for readers that take this long for what a transport holds."""
_LOOK_SECONDS: Final = 0.25
_LITTLE_BYTES: Final = 1024
"""No socket's buffer is full with this, so that its transport holds nothing: it is at most our
last word, whose way is the kernel's concern."""


class SilentClose:
    """Aborts a TLS connection that is being closed, once its peer has all but our last word.

    A peer that takes nothing is found by :class:`gateway.relay.ending.stalls.StallWatch`.
    """

    __slots__ = ("_left", "_loop", "_transport")

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._left = -1

    def look_later(self) -> None:
        """Look after a moment: most peers have closed by then."""
        self._loop.call_later(_LOOK_SECONDS, self._look)

    def _look(self) -> None:
        left = unacknowledged(self._transport)
        if left < 0:
            return
        before, self._left = self._left, left
        little = 0 <= before <= _LITTLE_BYTES and left <= _LITTLE_BYTES
        if little and not self._transport.get_write_buffer_size():
            # Twice, since a transport may have been about to write.
            self._transport.abort()
        else:
            self.look_later()
