"""Writes reports every two seconds; a Redis that is slow or away costs a turn and no more."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from itertools import islice
from typing import TYPE_CHECKING, Final

from shared.bus import ReportWriter
from shared.errors import BusUnavailable
from shared.reports import REPORT_SECONDS, GatewayReport, encode_report

if TYPE_CHECKING:
    from gateway.bus.follower import Follower
    from gateway.reports.activity import Activities, SessionActivity
    from gateway.reports.failures import RecentFailures

PATIENCE_SECONDS: Final = 1.0
"""For Redis in one turn; what was not written then waits for the next."""
WRITES: Final = 2000
"""Activities that one turn writes at most."""
_AT_ONCE: Final = 100
"""In one round trip: encoded and sent in about 2 ms."""
_LOOKS: Final = 2000
"""Activities that are looked at before the loop turns: about 2 ms."""

log = logging.getLogger(__name__)


class Reporter:
    """Reports what this process sees.

    Args:
        writer: Writes into Redis.
        follower: Says how far this process has followed.
        activities: What happens in sessions.
        failures: What went wrong with them.
        version: Of this program.
        wall: Unix seconds.
    """

    def __init__(
        self,
        *,
        writer: ReportWriter,
        follower: Follower,
        activities: Activities,
        failures: RecentFailures,
        version: str,
        wall: Callable[[], float],
    ) -> None:
        self._writer = writer
        self._follower = follower
        self._activities = activities
        self._failures = failures
        self._version = version
        self._wall = wall
        self._waiting: deque[SessionActivity] = deque()
        self._failing = False
        self.written = 0
        """Activities, so far."""
        self.skipped = 0
        """Turns in which not all that was due could be written."""

    @property
    def waiting(self) -> int:
        """How many activities wait to be written."""
        return len(self._waiting)

    async def run(self) -> None:
        """Report until cancelled."""
        while True:
            await asyncio.sleep(REPORT_SECONDS)
            await self.turn()

    async def turn(self) -> None:
        """Report once; never fails, and takes little more than :data:`PATIENCE_SECONDS`."""
        await self._look()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self._writer.write(encode_report(self._report()))
                await self._write_activities()
        except (BusUnavailable, TimeoutError) as error:
            self.skipped += 1
            if not self._failing:
                log.info("reports are not written", extra={"why": str(error) or "too slow"})
            self._failing = True
        else:
            self._failing = False

    def _report(self) -> GatewayReport:
        table = self._follower.table
        return GatewayReport(
            at=self._wall(),
            version=self._version,
            epoch=None if table is None else table.epoch,
            seq=0 if table is None else table.seq,
            lag_seconds=round(self._follower.lag_seconds, 3),
            failing=self._failures.recent(),
        )

    async def _look(self) -> None:
        """Have what changed wait to be written, each once, and let the loop turn in between."""
        activities = iter(self._activities.all())
        while some := tuple(islice(activities, _LOOKS)):
            now = self._wall()
            for activity in some:
                if not activity.waits and activity.look(now):
                    activity.waits = True
                    self._waiting.append(activity)
            await asyncio.sleep(0)

    async def _write_activities(self) -> None:
        left = WRITES
        while self._waiting and left > 0:
            some = [self._waiting.popleft() for _ in range(min(_AT_ONCE, len(self._waiting), left))]
            left -= len(some)
            await self._write(some)

    async def _write(self, some: list[SessionActivity]) -> None:
        now = self._wall()
        for activity in some:
            activity.look(now)
            activity.waits = False
        try:
            await self._writer.write_activities({one.sid: one.tell(now) for one in some})
        except BaseException:
            # Also where the time was over: they are found changed again at the next look.
            for activity in some:
                activity.untold()
            raise
        self.written += len(some)
        self._activities.written(some, now)
