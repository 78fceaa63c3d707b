"""What gateways have been told of sessions, whichever process tells them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from typing import Final, Literal, TypeAlias

from controller.sessions.publisher import RoutePublisher
from shared.bus import BusReader
from shared.errors import BusUnavailable, UnreadableRoute
from shared.routes import RouteReader

PATIENCE_SECONDS: Final = 1.0
"""The leader hears of a session at once and publishes it some hundredths of a second later."""
IN_VAIN_SECONDS: Final = 0.1
"""Once somebody has waited in vain: there may be no leader, and nobody is to be held up by that."""
FIRST_LOOK_SECONDS: Final = 0.01
LAST_LOOK_SECONDS: Final = 0.08
READ_SECONDS: Final = 0.5

Routed: TypeAlias = Literal["starting", "ready"]

log = logging.getLogger(__name__)


class PublishedRoutes:
    """Looks for routes in Redis, unless this process publishes them itself and so knows.

    Nothing here fails: where Redis does not answer, a session's route is not known to be there.

    Args:
        reader: Reads Redis.
        publisher: Gives what publishes, while this process leads.
    """

    def __init__(self, reader: BusReader, publisher: Callable[[], RoutePublisher | None]) -> None:
        self._reader = reader
        self._publisher = publisher
        self._routes = RouteReader()
        self.patience = PATIENCE_SECONDS
        """For how many seconds whoever comes next waits."""

    async def until_published(self, sids: Collection[str]) -> None:
        """Return when Redis has routes of all these sessions, or patience is over.

        The sessions are in the store, so whoever leads publishes them, sooner or later.
        """
        publisher = self._publisher()
        if publisher is not None:
            await publisher.until_published(sids)
            return
        try:
            async with asyncio.timeout(self.patience):
                await self._look_for(set(sids))
            self.patience = PATIENCE_SECONDS
        except (BusUnavailable, TimeoutError) as error:
            self.patience = IN_VAIN_SECONDS
            log.info("sessions are not published yet", extra={"why": str(error)})

    async def _look_for(self, missing: set[str]) -> None:
        pause = FIRST_LOOK_SECONDS
        while missing := missing - (await self._reader.routes_of(missing)).keys():
            await asyncio.sleep(pause)
            pause = min(pause * 2, LAST_LOOK_SECONDS)

    async def states_of(self, sids: Collection[str]) -> dict[str, Routed]:
        """Return how the routes of these live sessions were last published."""
        publisher = self._publisher()
        if publisher is not None:
            return {sid: publisher.state_of(sid) for sid in sids}
        try:
            async with asyncio.timeout(READ_SECONDS):
                routes = await self._reader.routes_of(sids)
        except (BusUnavailable, TimeoutError) as error:
            log.info("it is not known how sessions are published", extra={"why": str(error)})
            routes = {}
        return {sid: self._state(sid, routes.get(sid)) for sid in sids}

    def _state(self, sid: str, raw: bytes | None) -> Routed:
        if raw is None:
            return "starting"
        try:
            state = self._routes.read(sid, raw, epoch="").state
        except UnreadableRoute:
            return "starting"
        return "ready" if state == "ready" else "starting"
