"""The end of a gateway process: nobody new, those who ask are answered, tunnels leave in turns.

Browsers come back at once to whichever gateway is left. If all tunnels ended in one moment they
would all come back in the next, so their ends are spread over the first half of the time there is.

An idle connection may have a request on its way: proxies and browsers keep connections for their
next one. It is answered, with ``Connection: close``, for a second; then idle connections close.
(nginx's ``keepalive_min_timeout`` and HAProxy's ``idle-close-on-response`` are for the same.)
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from gateway.core.access.access_right import DRAINING

if TYPE_CHECKING:
    from gateway.live import Member
    from gateway.relay.gateway import DataPath

log = logging.getLogger(__name__)

STEP_SECONDS: Final = 0.05
IDLE_SECONDS: Final = 1.0
"""Or a quarter of the time there is: for how long an idle connection may still be used."""
LAST_SECONDS: Final = 0.5
"""Of the time there is, or a tenth of it: for what is left to be closed, and to end by then."""


async def drain(path: DataPath, *, seconds: float, random: Callable[[], float]) -> None:
    """Return once nothing is open any more, after *seconds* at the latest.

    Each connection closes with its next answer, an idle one after a moment. Tunnels, desktops and
    terminals get 1001 in the first half.

    Args:
        path: Its listeners are closed already.
        seconds: How long it may take.
        random: From 0 to 1.
    """
    loop = path.parts.loop
    began = loop.time()
    path.drain()
    log.info("draining", extra={"open": path.open})
    turns = _Turns(until=began + seconds / 2, random=random)
    enough = began + seconds - min(LAST_SECONDS, seconds / 10)
    idle_until = began + min(IDLE_SECONDS, seconds / 4)
    while (path.open or path.arriving) and loop.time() < enough:
        if loop.time() >= idle_until:
            idle_until = enough
            path.close_idle()
        path.parts.live.end(turns.due(path.tunnels(), loop.time()), DRAINING)
        await asyncio.sleep(min(STEP_SECONDS, seconds))
    if path.open:
        log.warning("the time to drain is over", extra={"open": path.open})


class _Turns:
    """When each tunnel ends; one that comes later has less time."""

    def __init__(self, *, until: float, random: Callable[[], float]) -> None:
        self._until = until
        self._random = random
        self._at: dict[Member, float] = {}

    def due(self, members: list[Member], now: float) -> list[Member]:
        """Return those of *members* whose turn it is."""
        for member in members:
            if member not in self._at:
                self._at[member] = now + self._random() * max(self._until - now, 0.0)
        return [member for member in members if self._at[member] <= now]
