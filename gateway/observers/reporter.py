"""Reports of this process to the controller, for display: docs/proxy-events.md, "Reports".

::

    ConnectionRegistry, relay ──▶ Activities (counters by session) ──▶ Reporter ──▶ Redis
    relay ──▶ RecentFailures (the last of each session) ─────────────▶    (every 2 s)

The hot path adds to a counter and, for input by a person, sets a flag: it reads no clock and makes
no call. If Redis is slow or away, one round of reports is skipped.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from gateway.bus.follower import Follower
from gateway.core.access.access_right import AccessRight, ActivityCounter
from shared.bounded import BoundedDict
from shared.bus import ReportWriter
from shared.errors import BusUnavailable
from shared.log import Outage
from shared.reports import (
    ACTIVITY_KEPT_SECONDS,
    MOST_FAILING,
    MOST_SUBS,
    REPORT_SECONDS,
    Activity,
    Failure,
    GatewayReport,
    encode_report,
    rounded,
)

log = logging.getLogger(__name__)


_PAGE: Final = "page"
_RENEWED_SECONDS: Final = ACTIVITY_KEPT_SECONDS / 2
"""An idle connection is reported again before Redis forgets it."""
MOST_LEFT: Final = 20_000
"""The maximum number of sessions without a connection whose last activity is not written yet."""


@dataclass(slots=True, eq=False)
class SessionActivity(ActivityCounter):
    """The activity of one session in this process.

    ``up`` counts bytes towards the app. ``input`` is set when a person types or clicks.
    ``waiting_at`` is set while a start page of the session is open.
    """

    sid: str
    up: int = 0
    down: int = 0
    input: bool = False
    subs: dict[str | None, int] = field(default_factory=dict)
    """The number of connections by user; None stands for clients on public links."""
    queued: bool = False
    """Whether the activity is queued to be written."""
    waiting_at: float | None = None
    _seen: int = 0
    _input_at: float | None = None
    _output_at: float | None = None
    _written_state: tuple[object, ...] = ()
    _written_at: float = 0.0

    def update(self, now: float) -> bool:
        """Take over the counters at the time *now*; return whether there is news to write."""
        if self.input:
            self.input = False
            self._input_at = rounded(now)
        if self.down != self._seen:
            self._seen = self.down
            self._output_at = rounded(now)
        return self._state() != self._written_state or (
            bool(self.subs) and now - self._written_at >= _RENEWED_SECONDS
        )

    def _state(self) -> tuple[object, ...]:
        return self._input_at, self._output_at, frozenset(self.subs), self.waiting_at

    def encode(self, now: float) -> bytes:
        """Return the encoded activity, and count it as written."""
        self._written_state, self._written_at = self._state(), now
        subs = sorted(sub for sub in self.subs if sub is not None)
        return encode_report(
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

    def mark_unwritten(self) -> None:
        """Note that the last encoded activity was not written."""
        self._written_state = ()


class Activities:
    """The activities of sessions that have connections or had some recently.

    An observer of :class:`gateway.live.ConnectionRegistry`.
    """

    def __init__(self) -> None:
        self._sessions: dict[str, SessionActivity] = {}
        self._left: BoundedDict[str, SessionActivity] = BoundedDict(MOST_LEFT)
        """Sessions without a connection, in the order in which their last connection closed."""
        self._waiting: BoundedDict[str, float] = BoundedDict(MOST_LEFT)
        """When a start page of each session was last open, oldest first."""

    def __len__(self) -> int:
        """Return the number of tracked sessions."""
        return len(self._sessions) + len(self._left)

    def attached(self, kind: str, access_right: AccessRight) -> None:
        """Count the bytes of a new connection by *access_right* from now on."""
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
        """Handle a closed connection; its counters are still reported."""
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
            self._left[activity.sid] = activity

    def waiting(self, sid: str, now: float) -> None:
        """Note that a start page of *sid* is open.

        Start pages poll every second. The time is reported in steps of ten seconds.
        """
        at = rounded(now)
        if self._waiting.pop(sid, None) != at:
            activity = self._sessions.get(sid) or self._left.get(sid)
            if activity is None:
                activity = self._left[sid] = SessionActivity(sid)
            activity.waiting_at = at
        self._waiting[sid] = at

    def all(self) -> list[SessionActivity]:
        """Return all tracked activities."""
        return [*self._sessions.values(), *self._left.values()]

    def written(self, activities: Iterable[SessionActivity], now: float) -> None:
        """Forget those of *activities* without a connection that have no further news."""
        for activity in activities:
            if self._left.get(activity.sid) is activity and not activity.update(now):
                del self._left[activity.sid]


KEPT_SECONDS: Final = 600.0


class RecentFailures:
    """The last failure of each session."""

    def __init__(self, *, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._failures: BoundedDict[str, Failure] = BoundedDict(MOST_FAILING)

    def note(self, sid: str, code: str, reason: str = "") -> None:
        """Note that the app, desktop or terminal of *sid* failed with *code*, and the reason."""
        self._failures.pop(sid, None)
        self._failures[sid] = Failure(code, self._wall(), reason)

    def recent(self) -> Mapping[str, Failure]:
        """Return the failures of the last ten minutes, and forget older ones."""
        oldest = self._wall() - KEPT_SECONDS
        for sid, failure in tuple(self._failures.items()):
            if failure.at >= oldest:
                break
            del self._failures[sid]
        return dict(self._failures)


PATIENCE_SECONDS: Final = 1.0
"""The deadline of Redis for one round; the rest is written in the next round."""
LAST_SECONDS: Final = 0.5
"""The deadline at shutdown. A report that stays in Redis expires within ten seconds."""
WRITES: Final = 2000
"""The maximum number of activities written in one round."""
_AT_ONCE: Final = 100
"""Activities written in one round trip: encoding takes about 2 ms."""
_LOOKS: Final = 2000
"""Activities examined between two yields to the loop: about 2 ms."""


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Reporter:
    """Writes the reports of this process to Redis."""

    writer: ReportWriter
    follower: Follower
    activities: Activities
    failures: RecentFailures
    version: str
    """The version of this program."""
    wall: Callable[[], float]
    written: int = 0
    """The number of activities written so far."""
    skipped: int = 0
    """The number of rounds that did not write all that was due."""
    _queue: deque[SessionActivity] = field(init=False, default_factory=deque)
    _failure: str | None = None
    _outage: Outage = field(
        init=False,
        default_factory=lambda: Outage(
            log, begins="cannot write reports to Redis", ends="reports are written to Redis again"
        ),
    )

    @property
    def problems(self) -> Sequence[str]:
        """Why the last round was not written; empty if it was.

        Redis can be read and take no writes, as when it is out of memory. Then the route table is
        current, but no token can be marked as used, and no session can be opened.
        """
        why = self._failure
        return () if why is None else (f"reports cannot be written to Redis: {why}",)

    @property
    def waiting(self) -> int:
        """The number of activities that are queued to be written."""
        return len(self._queue)

    async def run(self) -> None:
        """Report until cancelled; then write a last report and remove this process from Redis."""
        try:
            while True:
                await asyncio.sleep(REPORT_SECONDS)
                await self.report_once()
        finally:
            with suppress(BusUnavailable, TimeoutError):
                async with asyncio.timeout(LAST_SECONDS):
                    await self._queue_news()
                    await self._write_activities()
                    await self.writer.leave()

    async def report_once(self) -> None:
        """Write one round of reports; never fails, takes about :data:`PATIENCE_SECONDS` at most."""
        await self._queue_news()
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                await self.writer.write(encode_report(self._report()))
                await self._write_activities()
        except (BusUnavailable, TimeoutError) as error:
            self.skipped += 1
            self._failure = str(error) or "timed out"
            self._outage.failed(self._failure)
        else:
            self._failure = None
            self._outage.passed()

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

    async def _queue_news(self) -> None:
        """Queue the activities that have news, each once; yields to the loop in between."""
        activities = iter(self.activities.all())
        while some := tuple(islice(activities, _LOOKS)):
            now = self.wall()
            for activity in some:
                if not activity.queued and activity.update(now):
                    activity.queued = True
                    self._queue.append(activity)
            await asyncio.sleep(0)

    async def _write_activities(self) -> None:
        left = WRITES
        while self._queue and left > 0:
            some = [self._queue.popleft() for _ in range(min(_AT_ONCE, len(self._queue), left))]
            left -= len(some)
            await self._write(some)

    async def _write(self, some: list[SessionActivity]) -> None:
        now = self.wall()
        for activity in some:
            activity.update(now)
            activity.queued = False
        try:
            await self.writer.write_activities({one.sid: one.encode(now) for one in some})
        except BaseException:
            # Also on a timeout. The next round finds them changed again.
            for activity in some:
                activity.mark_unwritten()
            raise
        self.written += len(some)
        self.activities.written(some, now)
