"""What gateways have been told of sessions, what they report, and what they are told at once.

What they report is shown to the orchestrator, and never a reason for access. Only the leader writes
into the table, in one order. A replica that does not lead tells whoever listens of a revocation,
and writes nothing: the revocation is in the store, from where the leader, this one or the next,
brings it into the table. So it takes effect also while there is no leader.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Sequence
from typing import Final, Literal, TypeAlias

from redis.asyncio import Redis

from controller.sessions.publisher import RoutePublisher
from shared.bus import ACTIVITIES_AT_ONCE, BusReader, Keys, Publisher, ReportReader
from shared.errors import BusUnavailable, PublishRefused, UnreadableRoute
from shared.events import GrantRevoked
from shared.reports import Activity
from shared.routes.route import RouteReader
from shared.routes.signed_table import TableSigner

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


class Activities:
    """Reads activities; nothing here fails, and nobody waits for long.

    Args:
        clock: Unix seconds.
    """

    def __init__(self, reader: ReportReader, *, clock: Callable[[], float]) -> None:
        self._reader = reader
        self._clock = clock

    async def of(self, sids: Sequence[str]) -> dict[str, Activity]:
        """Return what gateways saw of these sessions, by sid, as far as that is known."""
        found: dict[str, Activity] = {}
        try:
            async with asyncio.timeout(READ_SECONDS):
                for first in range(0, len(sids), ACTIVITIES_AT_ONCE):
                    some = sids[first : first + ACTIVITIES_AT_ONCE]
                    found |= await self._reader.activities_of(some, now=self._clock())
        except (BusUnavailable, TimeoutError) as error:
            log.info("it is not known who is connected", extra={"why": str(error)})
        return found


NOTICE_SECONDS: Final = 2.0
"""For how long a call that revokes is held up where Redis does not answer."""


class Notices:
    """Sends notices of revocations.

    Args:
        redis: Where gateways listen.
        keys: This installation's names.
        signer: Signs them, where gateways believe nothing that is not signed.
    """

    def __init__(self, redis: Redis, keys: Keys, *, signer: TableSigner | None = None) -> None:
        self._redis = redis
        self._keys = keys
        self._signer = signer

    async def tell(self, event: GrantRevoked, *, term: int) -> None:
        """Tell gateways of *event*, which is in the store by now; never fail.

        Args:
            event: The revocation.
            term: The leader's, as the store knows it. A store that is behind what Redis knows is
                not this installation's, or an old copy: nothing is told then.
        """
        try:
            async with asyncio.timeout(NOTICE_SECONDS):
                publisher = Publisher(self._redis, self._keys, term=term, signer=self._signer)
                await publisher.notice(event)
        except PublishRefused as refused:
            log.info("a revocation waits for the leader", extra={"why": refused.reason})
        except (BusUnavailable, TimeoutError) as error:
            log.warning("a revocation could not be told yet", extra={"why": str(error)})
