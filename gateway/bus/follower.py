"""Follows the bus: subscribes to events, and runs the head poller and the repairer."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from dataclasses import KW_ONLY, dataclass
from typing import Final

from gateway.bus.head_poller import FIRST_RETRY_SECONDS, HeadPoller, next_retry
from gateway.bus.holder import RouteTableHolder
from gateway.bus.repairer import Repairer
from shared.bus import BusReader
from shared.errors import BusUnavailable
from shared.log import Outage
from shared.routes.route import RouteReader

DEAF_SECONDS: Final = 10.0
"""After this time without a message the follower subscribes again. Heartbeats come every second,
and a dead connection may report no error."""
PRUNE_SECONDS: Final = 600.0
BURST_SECONDS: Final = 0.001
"""For events that have arrived together, in one turn of the loop."""

log = logging.getLogger(__name__)


@dataclass(eq=False, repr=False)
class Follower(RouteTableHolder):
    """A route table that is kept in step with Redis while :meth:`run` runs."""

    reader: BusReader
    routes: RouteReader
    _: KW_ONLY
    random: Callable[[], float]

    async def run(self) -> None:
        """Follow the bus until cancelled."""
        poller = HeadPoller(holder=self, reader=self.reader)
        repairer = Repairer(holder=self, reader=self.reader, routes=self.routes, random=self.random)
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._listen())
            tasks.create_task(poller.run())
            tasks.create_task(repairer.run())
            tasks.create_task(self._prune())

    async def _listen(self) -> None:
        pause = FIRST_RETRY_SECONDS
        outage = Outage(log, begins="no subscription to Redis", ends="subscribed to Redis again")
        while True:
            try:
                async with self.reader.subscribe() as messages:
                    outage.passed()
                    self.clock.subscribed(self.monotonic())
                    self.catch_up.request_look()
                    pause = FIRST_RETRY_SECONDS
                    await self._take_all(messages)
            except BusUnavailable as error:
                outage.failed(error)
            finally:
                self.clock.unsubscribed(self.monotonic())
            await asyncio.sleep(pause * (0.5 + self.random()))
            pause = next_retry(pause)

    async def _take_all(self, messages: AsyncIterator[bytes]) -> None:
        """Apply events until none comes for long; a burst of them takes many short turns.

        Reading a message that has arrived does not suspend, and hundreds fit into one read.
        """
        until = self.monotonic() + BURST_SECONDS
        while True:
            try:
                async with asyncio.timeout(DEAF_SECONDS):
                    message = await anext(messages)
            except TimeoutError:
                self.note("silent")
                return
            self.take(message)
            if self.monotonic() >= until:
                await asyncio.sleep(0)
                until = self.monotonic() + BURST_SECONDS

    async def _prune(self) -> None:
        while True:
            await asyncio.sleep(PRUNE_SECONDS)
            self.prune()
