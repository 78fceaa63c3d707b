"""Queue positions of the jobs whose start page is open, looked up at an interval."""

from __future__ import annotations

import logging
from bisect import bisect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from controller.jobs.containment import Containment
from controller.loop_turn import LoopTurn
from controller.store.database import Store
from controller.store.jobs.job_rows import find_jobs
from controller.store.jobs.totals import queue_place
from shared.reports import Activity
from shared.routes.route import Route

LOOK_SECONDS: Final = 30.0
OPEN_SECONDS: Final = 30.0
"""A page counts as open for this time: reports are late, and their times are rounded."""
MOST_SESSIONS: Final = 2000
"""Sessions per round. If there are more, a page waits for its round."""
MOST_JOBS: Final = 100
"""Jobs per round. Each costs a query over the jobs that wait in its queue."""

log = logging.getLogger(__name__)


@dataclass(slots=True, eq=False, repr=False)
class QueuePositions(Mapping[str, int]):
    """The last known positions, by job; 1 is next.

    Gateways report which start pages are open. Other jobs keep their last known position, or have
    none, since nobody sees it.
    """

    store: Store
    _: KW_ONLY
    activities_of: Callable[[Sequence[str]], Awaitable[Mapping[str, Activity]]]
    """Returns what gateways report of sessions."""
    clock: Callable[[], float]
    """Unix seconds."""
    _known: dict[str, int] = field(default_factory=dict, init=False)
    """In the order of the look-ups, the oldest first."""
    _last: str = ""

    def __getitem__(self, job_id: str) -> int:
        return self._known[job_id]

    def __iter__(self) -> Iterator[str]:
        return iter(self._known)

    def __len__(self) -> int:
        return len(self._known)

    async def run(
        self,
        published: Callable[[], Iterable[Route]],
        changed: Callable[[str], None],
        failed: Callable[[Exception], None],
    ) -> None:
        """Look up positions until cancelled; *changed* is called with jobs that moved."""

        async def look() -> None:
            for job_id in await self.look(published()):
                changed(job_id)

        contained = Containment("queue positions cannot be read", failed)
        await contained.repeat(look, lambda: LOOK_SECONDS)

    async def look(self, routes: Iterable[Route]) -> list[str]:
        """Look up the positions of jobs whose start page is open; return the jobs with a new one.

        Raises:
            StoreUnavailable: If the store does not respond.
        """
        queued = {route.sid: route.job for route in routes if _is_queued(route)}
        waiting = set(queued.values())
        self._known = {job: place for job, place in self._known.items() if job in waiting}
        jobs = {queued[sid] for sid in await self._open(sorted(queued))}
        order = {job: at for at, job in enumerate(self._known)}
        some = sorted(jobs, key=lambda job: order.get(job, -1))[:MOST_JOBS]
        return await self._look_up(some) if some else []

    async def _open(self, sids: Sequence[str]) -> list[str]:
        since, first = self.clock() - OPEN_SECONDS, bisect(sids, self._last)
        some = [*sids[first:], *sids[:first]][:MOST_SESSIONS]
        activities = await self.activities_of(some) if some else {}
        self._last = some[-1] if some else ""
        return [sid for sid, one in activities.items() if (one.waiting_at or 0.0) >= since]

    async def _look_up(self, jobs: Sequence[str]) -> list[str]:
        changed, turn = list[str](), LoopTurn()
        async with self.store.read() as transaction:
            for job_id, record in (await find_jobs(transaction, jobs)).items():
                place = await queue_place(transaction, record)
                before = self._known.pop(job_id, None)
                if place is not None:
                    self._known[job_id] = place.position
                if self._known.get(job_id) != before:
                    changed.append(job_id)
                # With SQLite a query takes milliseconds of the loop for 10,000 waiting jobs.
                await turn.rest()
        return changed


def _is_queued(route: Route) -> bool:
    return route.status is not None and route.status.phase == "queued"
