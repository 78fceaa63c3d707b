"""What this process reports to the controller, for display: docs/proxy-events.md, "Reports".

::

    Live, relay ──▶ Activities (counts, by session) ──────▶ Reporter ──▶ Redis, every 2 s
    relay ──▶ RecentFailures (the last of each session) ──▶

On the hot path there is an addition and, for what a person does, a flag: no clock, no call. A Redis
that is slow or away costs a turn and no more.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from gateway.bus.follower import Follower
from gateway.core.access.access_right import AccessRight
from shared.bus import ReportWriter
from shared.errors import BusUnavailable
from shared.reports import (
    ACTIVITY_KEPT_SECONDS,
    MOST_FAILING,
    MOST_SUBS,
    REPORT_SECONDS,
    Activity,
    Failure,
    GatewayReport,
    encode_activity,
    encode_report,
    rounded,
)

log = logging.getLogger(__name__)


_PAGE: Final = "page"
_RENEWED_SECONDS: Final = ACTIVITY_KEPT_SECONDS / 2
"""Somebody who is connected and idle must not be forgotten."""
MOST_LEFT: Final = 20_000
"""Sessions without a connection whose last activity could not be written yet."""


@dataclass(slots=True, eq=False)
class SessionActivity:
    """One session at this process.

    ``up`` is towards the app; ``input`` is set by what people do, ``waiting_at`` by pages on which
    a start is waited for.
    """

    sid: str
    up: int = 0
    down: int = 0
    input: bool = False
    subs: dict[str | None, int] = field(default_factory=dict)
    """Users, by how many connections; None is somebody on a public link."""
    waits: bool = False
    """Whether it waits to be written."""
    waiting_at: float | None = None
    _seen: int = 0
    _input_at: float | None = None
    _output_at: float | None = None
    _told: tuple[object, ...] = ()
    _told_at: float = 0.0

    def look(self, now: float) -> bool:
        """Note what has happened since the last look; say whether that is to be told."""
        if self.input:
            self.input = False
            self._input_at = rounded(now)
        if self.down != self._seen:
            self._seen = self.down
            self._output_at = rounded(now)
        return self._state() != self._told or (
            bool(self.subs) and now - self._told_at >= _RENEWED_SECONDS
        )

    def _state(self) -> tuple[object, ...]:
        return self._input_at, self._output_at, frozenset(self.subs), self.waiting_at

    def tell(self, now: float) -> bytes:
        """Return what is to be written, and take it as told."""
        self._told, self._told_at = self._state(), now
        subs = sorted(sub for sub in self.subs if sub is not None)
        return encode_activity(
            Activity(
                at=rounded(now),
                last_input_at=self._input_at,
                last_output_at=self._output_at,
                bytes_in=self.up,
                bytes_out=self.down,
                subs=tuple(subs[:MOST_SUBS]),
                waiting_at=self.waiting_at,
            )
        )

    def untold(self) -> None:
        """It could not be written."""
        self._told = ()


class Activities:
    """The activities of sessions that have connections, or had until lately.

    An observer of :class:`gateway.live.Live`.
    """

    def __init__(self) -> None:
        self._sessions: dict[str, SessionActivity] = {}
        self._left: dict[str, SessionActivity] = {}
        """Those without a connection, in the order in which the last one left."""
        self._waiting: dict[str, float] = {}
        """When a start was last waited for, in the order of that."""

    def __len__(self) -> int:
        """Return how many sessions are tracked."""
        return len(self._sessions) + len(self._left)

    def attached(self, kind: str, access_right: AccessRight) -> None:
        """A connection by *access_right* is open: its bytes are counted from now on."""
        if kind == _PAGE:
            return
        sid = access_right.sid
        activity = self._sessions.get(sid)
        if activity is None:
            activity = self._left.pop(sid, None) or SessionActivity(sid)
            self._sessions[sid] = activity
        user = access_right.user
        activity.subs[user] = activity.subs.get(user, 0) + 1
        access_right.activity = activity

    def detached(self, kind: str, access_right: AccessRight, reason: str | None) -> None:
        """It has closed; what was counted is still to be told."""
        activity = self._sessions.get(access_right.sid)
        if kind == _PAGE or activity is None:
            return
        user = access_right.user
        left = activity.subs.get(user, 0) - 1
        if left > 0:
            activity.subs[user] = left
            return
        activity.subs.pop(user, None)
        if not activity.subs:
            del self._sessions[activity.sid]
            self._leave(activity)

    def waiting(self, sid: str, now: float) -> None:
        """Note that somebody has the page open on which the start of *sid* is waited for.

        Pages ask every second; what is told is when, in steps of ten.
        """
        at = rounded(now)
        if self._waiting.pop(sid, None) != at:
            activity = self._sessions.get(sid) or self._left.get(sid)
            if activity is None:
                activity = SessionActivity(sid)
                self._leave(activity)
            activity.waiting_at = at
        self._waiting[sid] = at
        if len(self._waiting) > MOST_LEFT:
            del self._waiting[next(iter(self._waiting))]

    def _leave(self, activity: SessionActivity) -> None:
        self._left[activity.sid] = activity
        if len(self._left) > MOST_LEFT:
            del self._left[next(iter(self._left))]

    def all(self) -> list[SessionActivity]:
        """Return all that may have to be told."""
        return [*self._sessions.values(), *self._left.values()]

    def written(self, activities: Iterable[SessionActivity], now: float) -> None:
        """Forget those that nobody is connected to, and of which all has been told."""
        for activity in activities:
            if self._left.get(activity.sid) is activity and not activity.look(now):
                del self._left[activity.sid]


KEPT_SECONDS: Final = 600.0


class RecentFailures:
    """Remembers what went wrong with sessions."""

    def __init__(self, *, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._failures: dict[str, Failure] = {}

    def note(self, sid: str, code: str) -> None:
        """The app, desktop or terminal of the session *sid* failed with *code*."""
        self._failures.pop(sid, None)
        if len(self._failures) >= MOST_FAILING:
            del self._failures[next(iter(self._failures))]
        self._failures[sid] = Failure(code, self._wall())

    def recent(self) -> Mapping[str, Failure]:
        """Return the failures of the last ten minutes, and forget older ones."""
        oldest = self._wall() - KEPT_SECONDS
        for sid, failure in tuple(self._failures.items()):
            if failure.at >= oldest:
                break
            del self._failures[sid]
        return dict(self._failures)


PATIENCE_SECONDS: Final = 1.0
"""For Redis in one turn; what was not written then waits for the next."""
LAST_SECONDS: Final = 0.5
"""At the end, which nobody may hold up: a report that stays is forgotten in ten seconds."""
WRITES: Final = 2000
"""Activities that one turn writes at most."""
_AT_ONCE: Final = 100
"""In one round trip: encoded and sent in about 2 ms."""
_LOOKS: Final = 2000
"""Activities that are looked at before the loop turns: about 2 ms."""


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Reporter:
    """Reports what this process sees."""

    writer: ReportWriter
    follower: Follower
    activities: Activities
    failures: RecentFailures
    version: str
    """Of this program."""
    wall: Callable[[], float]
    written: int = 0
    """Activities, so far."""
    skipped: int = 0
    """Turns in which not all that was due could be written."""
    _waiting: deque[SessionActivity] = field(init=False, default_factory=deque)
    _failing: bool = False

    @property
    def waiting(self) -> int:
        """How many activities wait to be written."""
        return len(self._waiting)

    async def run(self) -> None:
        """Report until cancelled, then once more, and that this process is gone."""
        try:
            while True:
                await asyncio.sleep(REPORT_SECONDS)
                await self.turn()
        finally:
            with suppress(BusUnavailable, TimeoutError):
                async with asyncio.timeout(LAST_SECONDS):
                    await self._look()
                    await self._write_activities()
                    await self.writer.leave()

    async def turn(self) -> None:
        """Report once; never fails, and takes little more than :data:`PATIENCE_SECONDS`."""
        await self._look()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self.writer.write(encode_report(self._report()))
                await self._write_activities()
        except (BusUnavailable, TimeoutError) as error:
            self.skipped += 1
            if not self._failing:
                log.info("reports are not written", extra={"why": str(error) or "too slow"})
            self._failing = True
        else:
            self._failing = False

    def _report(self) -> GatewayReport:
        table = self.follower.table
        return GatewayReport(
            at=self.wall(),
            version=self.version,
            epoch=None if table is None else table.epoch,
            seq=0 if table is None else table.seq,
            lag_seconds=round(self.follower.lag_seconds, 3),
            failing=self.failures.recent(),
        )

    async def _look(self) -> None:
        """Have what changed wait to be written, each once, and let the loop turn in between."""
        activities = iter(self.activities.all())
        while some := tuple(islice(activities, _LOOKS)):
            now = self.wall()
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
        now = self.wall()
        for activity in some:
            activity.look(now)
            activity.waits = False
        try:
            await self.writer.write_activities({one.sid: one.tell(now) for one in some})
        except BaseException:
            # Also where the time was over: they are found changed again at the next look.
            for activity in some:
                activity.untold()
            raise
        self.written += len(some)
        self.activities.written(some, now)
