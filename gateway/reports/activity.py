"""What happens in each session, counted where bytes pass and looked at every two seconds.

On the hot path there is an addition and, for what a person does, a flag: no clock, no call.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from shared.reports import (
    ACTIVITY_KEPT_SECONDS,
    MOST_SUBS,
    Activity,
    encode_activity,
    rounded,
)

if TYPE_CHECKING:
    from gateway.core.access.access_right import AccessRight

_PAGE: Final = "page"
_RENEWED_SECONDS: Final = ACTIVITY_KEPT_SECONDS / 2
"""Somebody who is connected and idle must not be forgotten."""
MOST_LEFT: Final = 20_000
"""Sessions without a connection whose last activity could not be written yet."""


class SessionActivity:
    """One session at this process.

    ``up`` is towards the app; ``input`` is set by what people do, ``waiting_at`` by pages on which
    a start is waited for.
    """

    __slots__ = ("_input_at", "_output_at", "_seen", "_told", "_told_at", "down", "input", "sid",
                 "subs", "up", "waiting_at", "waits")  # fmt: skip

    def __init__(self, sid: str) -> None:
        self.sid = sid
        self.up = 0
        self.down = 0
        self.input = False
        self.subs: Counter[str | None] = Counter()
        """Users, by how many connections; None is somebody on a public link."""
        self.waits = False
        """Whether it waits to be written."""
        self.waiting_at: float | None = None
        self._seen = 0
        self._input_at: float | None = None
        self._output_at: float | None = None
        self._told: tuple[object, ...] = ()
        self._told_at = 0.0

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
        activity.subs[access_right.user] += 1
        access_right.activity = activity

    def detached(self, kind: str, access_right: AccessRight, reason: str | None) -> None:
        """It has closed; what was counted is still to be told."""
        activity = self._sessions.get(access_right.sid)
        if kind == _PAGE or activity is None:
            return
        user = access_right.user
        activity.subs[user] -= 1
        if activity.subs[user] <= 0:
            del activity.subs[user]
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
