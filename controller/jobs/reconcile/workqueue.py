"""A work queue of keys, with delays and rate-limited retries, as client-go has it.

Each key is queued at most once, and never processed by two workers at a time.
:meth:`WorkQueue.enqueue` is the only way in, for now or for later.
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
"""One in this number of keys comes from the background even if others are ready: none starves."""
FIRST_PAUSE_SECONDS: Final = 0.2
LONGEST_PAUSE_SECONDS: Final = 60.0
STALE_ENTRIES: Final = 200
"""The maximum number of stale entries in the heap of delayed keys, beyond one for each delayed
key.
"""

Reason = Literal["asked", "cluster", "store", "resync", "plugin", "step", "due", "waits", "failed"]
"""Why a job is enqueued.

- ``asked``: a request of the API.
- ``cluster``: an event of a watch.
- ``store``: a write of another process.
- ``resync``: the periodic resync.
- ``plugin``: a plugin call has ended.
- ``step``: a step was done.
- ``due``: a due time has come.
- ``waits``: the job waits for something.
- ``failed``: a step has failed.
"""


@dataclass(frozen=True, slots=True)
class Requeue:
    """The job is reconciled again ``after`` this number of seconds."""

    after: float
    reason: Reason


class RequeueAfter(FumaroleError):
    """The step cannot be done yet, which is no failure: it is tried again after ``seconds``."""

    def __init__(self, seconds: float) -> None:
        super().__init__(f"look again in {seconds} s")
        self.seconds = seconds


class WorkQueue:
    """Hands out keys to workers.

    A key that is enqueued while a worker processes it is handed out again afterwards, so that no
    change is missed. A worker that took a key must call :meth:`done` or :meth:`failed` with it.

    Keys enqueued only by a resync are in the background. A key that has changed overtakes all of
    them, as in controller-runtime's priority queue.

    Args:
        clock: Monotonic seconds.
        random: A number from 0 to 1: jitter, so that keys that failed together are not retried
            together.
        count: Counts enqueued keys by reason.
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
        """The wait of the oldest ready key; 0 if none is ready."""
        firsts = [next(iter(some.values())) for some in (self._ready, self._background) if some]
        return self._clock() - min(firsts) if firsts else 0.0

    def enqueue(self, key: str, reason: Reason, *, after: float = 0.0) -> None:
        """Hand out *key* as soon as a worker is free, or *after* this number of seconds.

        A key that is enqueued twice is handed out once, at the earlier time.
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
        """Return once no key is in the background."""
        await self._no_background.wait()

    def _enqueue_later(self, key: str, seconds: float) -> None:
        at = self._clock() + seconds
        if at >= self._due.get(key, float("inf")):
            return
        self._due[key] = at
        heapq.heappush(self._later, (at, next(self._order), key))
        if len(self._later) > 2 * len(self._due) + STALE_ENTRIES:
            self._drop_stale()
        self._changed.set()

    def _drop_stale(self) -> None:
        """Drop the entries of the heap whose key was enqueued earlier since."""
        current = (entry for entry in self._later if self._due.get(entry[2]) == entry[0])
        self._later = [*{entry[2]: entry for entry in current}.values()]
        heapq.heapify(self._later)

    async def take(self) -> str:
        """Return the next key, as soon as there is one."""
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
        """Report that *key* was processed."""
        self._failures.pop(key, None)
        self._release(key)

    def failed(self, key: str, *, at_least: float = 0.0) -> float:
        """Enqueue *key* with backoff; return after how many seconds it is handed out."""
        failures = self._failures.get(key, 0)
        self._failures[key] = failures + 1
        longest = min(LONGEST_PAUSE_SECONDS, FIRST_PAUSE_SECONDS * 2.0 ** min(failures, 16))
        pause = max(at_least, longest * (0.5 + self._random() / 2))
        # A change meanwhile may be the fix, but must not turn the backoff into a hot loop.
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
