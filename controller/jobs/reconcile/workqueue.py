"""A queue of keys: each at most once, never worked on twice at a time, later after a failure.

It is client-go's work queue with delays and rate-limited retries. :meth:`WorkQueue.enqueue` is the
one way to have a job looked at again, whoever wants that, now or later.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from shared.errors import FumaroleError

BACKGROUND_TURN: Final = 10
"""One key in so many is one of the background though others are ready: none waits for ever."""
FIRST_PAUSE_SECONDS: Final = 0.2
LONGEST_PAUSE_SECONDS: Final = 60.0

Reason = Literal["asked", "cluster", "store", "resync", "plugin", "step", "due", "waits", "failed"]
"""Why a job is looked at: the API was asked for something; a watch or another process' write showed
a change; everything is looked at now and then; a plugin's call has ended; a step was done; its time
has come; it waits for something; a step has failed."""


@dataclass(frozen=True, slots=True)
class Requeue:
    """The job is looked at again ``after`` so many seconds."""

    after: float
    reason: Reason


class RequeueAfter(FumaroleError):
    """The step cannot be done yet, and that is no failure: look again after ``seconds``."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"look again in {seconds} s")
        self.seconds = seconds


class WorkQueue:
    """Hands out keys to workers.

    A key that is enqueued while it is worked on is handed out once more afterwards, so that no
    change goes unseen. Whoever took a key must call :meth:`done` or :meth:`failed` with it.

    Keys that only a resync enqueues are in the background: one that has changed overtakes all of
    them (as in controller-runtime's priority queue, which does so for a first list and a resync).

    Args:
        clock: Monotonic seconds.
        random: From 0 to 1, so that what failed together is not tried again together.
        count: Counts why keys are enqueued.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float],
        random: Callable[[], float],
        count: Callable[[Reason], None] = lambda _: None,
    ) -> None:
        self._count = count
        self._clock = clock
        self._random = random
        self._ready: dict[str, float] = {}
        self._background: dict[str, float] = {}
        self._taken = 0
        self._no_background = asyncio.Event()
        self._no_background.set()
        self._busy: set[str] = set()
        self._again: set[str] = set()
        self._later: list[tuple[float, int, str]] = []
        self._due: dict[str, float] = {}
        self._order = itertools.count()
        self._failures: dict[str, int] = {}
        self._changed = asyncio.Event()

    def __len__(self) -> int:
        return len(self._ready) + len(self._background)

    @property
    def waiting_seconds(self) -> float:
        """For how long the key has been ready that waits longest; 0 where none is."""
        firsts = [next(iter(some.values())) for some in (self._ready, self._background) if some]
        return self._clock() - min(firsts) if firsts else 0.0

    def enqueue(self, key: str, reason: Reason, *, after: float = 0.0) -> None:
        """Have *key* handed out as soon as a worker is free, or *after* so many seconds.

        What is enqueued twice is handed out once, at the earlier time.
        """
        self._count(reason)
        if after > 0.0:
            self._enqueue_later(key, after)
        elif reason == "resync":
            self._enqueue_in_background(key)
        else:
            self._enqueue_now(key)

    def _enqueue_now(self, key: str) -> None:
        self._due.pop(key, None)
        if key in self._busy:
            self._again.add(key)
        else:
            self._leave_background(key)
            self._ready.setdefault(key, self._clock())
            self._changed.set()

    def _enqueue_in_background(self, key: str) -> None:
        if key not in self._busy and key not in self._ready:
            self._background.setdefault(key, self._clock())
            self._no_background.clear()
            self._changed.set()

    async def background_done(self) -> None:
        """Return when no key is in the background."""
        await self._no_background.wait()

    def _enqueue_later(self, key: str, seconds: float) -> None:
        at = self._clock() + seconds
        if at >= self._due.get(key, float("inf")):
            return
        self._due[key] = at
        heapq.heappush(self._later, (at, next(self._order), key))
        self._changed.set()

    async def take(self) -> str:
        """Return the next key, when there is one."""
        while True:
            self._move_due()
            if (key := self._next()) is not None:
                self._busy.add(key)
                return key
            await self._wait()

    def _next(self) -> str | None:
        self._taken += 1
        in_turn = self._taken % BACKGROUND_TURN == 0
        for keys in (self._background, self._ready) if in_turn else (self._ready, self._background):
            for key in keys:
                self._ready.pop(key, None)
                self._leave_background(key)
                return key
        return None

    def _leave_background(self, key: str) -> None:
        self._background.pop(key, None)
        if not self._background:
            self._no_background.set()

    def done(self, key: str) -> None:
        """Say that *key* has been worked on."""
        self._failures.pop(key, None)
        self._release(key)

    def failed(self, key: str, *, at_least: float = 0.0) -> float:
        """Say that *key* is to be tried again; return after how many seconds it will be."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        longest = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(failures, 16))
        pause = max(at_least, longest * (0.5 + self._random() / 2))
        # A change meanwhile may be the cure, but must not turn the pauses into a hot loop.
        self._again.discard(key)
        self._release(key)
        self.enqueue(key, "failed", after=pause)
        return pause

    def _release(self, key: str) -> None:
        self._busy.discard(key)
        if key in self._again:
            self._again.discard(key)
            self._enqueue_now(key)

    def _move_due(self) -> None:
        now = self._clock()
        while self._later and self._later[0][0] <= now:
            at, _, key = heapq.heappop(self._later)
            if self._due.get(key) == at:
                self._enqueue_now(key)

    async def _wait(self) -> None:
        self._changed.clear()
        pause = self._later[0][0] - self._clock() if self._later else None
        try:
            async with asyncio.timeout(pause):
                await self._changed.wait()
        except TimeoutError:
            return
