"""Pings: how a bridge finds that its browser is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from gateway.relay.ending.kernel import progress, unacknowledged
from gateway.relay.transports import reset

PING_SECONDS: Final = 20.0
"""Shorter than the idle timeouts of what may stand between (60 s is usual)."""


class Keepalive:
    """Has *ping* called every :data:`PING_SECONDS`, and resets a browser that is gone.

    That is one that has not sent anything from one ping until the next, unless it is still taking
    what was sent before.

    Attributes:
        heard: To be set with whatever the browser sends.
    """

    __slots__ = ("_ping", "_taken", "_timer", "heard")

    def __init__(self, ping: Callable[[], None]) -> None:
        self._ping = ping
        self._taken = 0
        """What the browser had acknowledged at the last ping."""
        self._timer: asyncio.TimerHandle | None = None
        self.heard = True

    def begin(self, transport: asyncio.Transport) -> None:
        """Ping over *transport* from now on, until :meth:`stop`."""
        loop = asyncio.get_running_loop()
        self._timer = loop.call_later(PING_SECONDS, self._due, transport)

    def stop(self) -> None:
        """Ping no more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self, transport: asyncio.Transport) -> None:
        if not self.heard and not self._takes(transport):
            reset(transport)
            return
        self.heard = False
        self._taken = progress(transport)
        self._ping()
        self.begin(transport)

    def _takes(self, transport: asyncio.Transport) -> bool:
        """Say whether the browser is still at what was sent before the ping that it owes us."""
        waits = transport.get_write_buffer_size() or unacknowledged(transport) > 0
        return bool(waits) and progress(transport) != self._taken
