"""Published routes of sessions, reports of gateways, and notices of revocations.

The orchestrator sees the reports; they never decide about access. Only the leader writes the table
in Redis, in one order. A replica that does not lead sends a notice of a revocation to the gateways
that listen, and writes nothing. The revocation is in the store, and the current or the next leader
brings it into the table. So a revocation also takes effect without a leader.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Final

from redis.asyncio import Redis

from controller.sessions.publisher import Routed, RoutePublisher
from shared.bus import ACTIVITIES_AT_ONCE, BusReader, Keys, Publisher, ReportReader
from shared.errors import BusUnavailable, PublishRefused, UnreadableRoute
from shared.events import GrantRevoked
from shared.reports import Activity
from shared.routes.route import RouteReader
from shared.routes.signed_table import TableSigner

PATIENCE_SECONDS: Final = 1.0
"""The leader learns of a session at once, and publishes it some hundredths of a second later."""
IN_VAIN_SECONDS: Final = 0.1
"""After a wait without success: there may be no leader, and requests must not be held up."""
FIRST_LOOK_SECONDS: Final = 0.01
LAST_LOOK_SECONDS: Final = 0.08
READ_SECONDS: Final = 0.5
_LATE: Final = "Redis does not respond in time"

log = logging.getLogger(__name__)


class PublishedRoutes:
    """Reads routes from Redis, unless this process publishes them itself.

    It never fails: if Redis does not respond, a session's route counts as not published.

    Args:
        reader: Reads Redis.
        publisher: Returns the publisher while this process leads.
    """

    def __init__(self, reader: BusReader, publisher: Callable[[], RoutePublisher | None]) -> None:
        self._reader = reader
        self._publisher = publisher
        self._routes = RouteReader()
        self.patience = PATIENCE_SECONDS
        """How many seconds the next caller waits."""

    async def until_published(self, sids: Collection[str]) -> None:
        """Return when Redis has routes of all these sessions, or after a deadline.

        The sessions are in the store, so the leader publishes them sooner or later.
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
            log.info("new sessions are not published yet", extra={"why": str(error) or _LATE})

    async def _look_for(self, missing: set[str]) -> None:
        pause = FIRST_LOOK_SECONDS
        while missing := missing - (await self._reader.routes_of(missing)).keys():
            await asyncio.sleep(pause)
            pause = min(pause * 2, LAST_LOOK_SECONDS)

    async def states_of(self, sids: Collection[str]) -> dict[str, Routed]:
        """Return the last published state of these live sessions."""
        publisher = self._publisher()
        if publisher is not None:
            return {sid: publisher.state_of(sid) for sid in sids}
        try:
            async with asyncio.timeout(READ_SECONDS):
                routes = await self._reader.routes_of(sids)
        except (BusUnavailable, TimeoutError) as error:
            log.info("cannot read the published routes", extra={"why": str(error) or _LATE})
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


class Activities:
    """Reads activities. It never fails, and waits only briefly.

    Args:
        reader: Reads the reports in Redis.
        clock: Unix seconds.
    """

    def __init__(self, reader: ReportReader, *, clock: Callable[[], float]) -> None:
        self._reader = reader
        self._clock = clock

    async def of(self, sids: Sequence[str]) -> dict[str, Activity]:
        """Return the activities that gateways have reported for these sessions, by sid."""
        found: dict[str, Activity] = {}
        try:
            async with asyncio.timeout(READ_SECONDS):
                for first in range(0, len(sids), ACTIVITIES_AT_ONCE):
                    some = sids[first : first + ACTIVITIES_AT_ONCE]
                    found |= await self._reader.activities_of(some, now=self._clock())
        except (BusUnavailable, TimeoutError) as error:
            log.info("cannot read the gateways' reports", extra={"why": str(error) or _LATE})
        return found


NOTICE_SECONDS: Final = 2.0
"""How long a request that revokes waits for Redis."""


@dataclass(slots=True, eq=False, repr=False)
class Notices:
    """Sends notices of revocations."""

    redis: Redis
    """The Redis that gateways listen to."""
    keys: Keys
    """This installation's keys in Redis."""
    _: KW_ONLY
    signer: TableSigner | None = None
    """Signs notices, for gateways that accept only signed ones."""

    async def tell(self, event: GrantRevoked, *, term: int) -> None:
        """Notify gateways of *event*, which is in the store already. It never fails.

        Args:
            event: The revocation.
            term: The leader's term in the store. If Redis knows a higher one, the store is another
                installation's or an old copy, and nothing is sent.
        """
        try:
            async with asyncio.timeout(NOTICE_SECONDS):
                publisher = Publisher(self.redis, self.keys, term=term, signer=self.signer)
                await publisher.notice(event)
        except PublishRefused as refused:
            log.info("a revocation is left to the leader", extra={"why": refused.reason})
        except (BusUnavailable, TimeoutError) as error:
            why = str(error) or _LATE
            log.warning("gateways could not be notified of a revocation", extra={"why": why})
