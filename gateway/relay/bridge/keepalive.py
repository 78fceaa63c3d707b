"""Pings, by which a bridge detects that its browser has vanished."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.relay.ending.kernel import progress, unacknowledged
from gateway.relay.transports import reset

PING_SECONDS: Final = 20.0
"""Shorter than the idle timeouts of proxies in between (60 s is usual)."""


class Keepalive:
    """Calls *ping* every :data:`PING_SECONDS`, and resets a vanished browser.

    That is one that has sent nothing from one ping to the next, unless it is still receiving bytes
    that were sent before.

    Attributes:
        has_heard: Set by the owner whenever the browser sends anything.
    """

    __slots__ = ("_ping", "_taken", "_timer", "has_heard")

    def __init__(self, ping: Callable[[], None]) -> None:
        self._ping = ping
        self._taken = 0
        """What the browser had acknowledged at the last ping."""
        self._timer: asyncio.TimerHandle | None = None
        self.has_heard = True

    def begin(self, transport: asyncio.Transport) -> None:
        """Ping over *transport* from now on, until :meth:`stop`."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(PING_SECONDS, self._due, transport)

    def stop(self) -> None:
        """Stop pinging."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self, transport: asyncio.Transport) -> None:
        if not self.has_heard and not self._takes(transport):
            reset(transport)
            return
        self.has_heard = False
        self._taken = progress(transport)
        self._ping()
        self.begin(transport)

    def _takes(self, transport: asyncio.Transport) -> bool:
        """Return whether the browser is still receiving bytes sent before the unanswered ping."""
        waits = transport.get_write_buffer_size() or unacknowledged(transport) > 0
        return bool(waits) and progress(transport) != self._taken
