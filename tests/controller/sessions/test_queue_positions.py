"""Tests queue positions: they are read only for jobs whose start page is open."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence

import pytest

from controller.sessions import queue_positions as module
from controller.sessions.queue_positions import QueuePositions
from controller.store.database import Store
from controller.store.jobs.job_rows import find_job, insert_job, update_job
from shared.reports import Activity
from shared.routes.route import Route
from shared.routes.statuses import Status
from tests.controller.samples import make_record

QUEUED = Status(phase="queued", reason="queued")
JOBS = [f"q{number}" for number in range(3)]


def routed(job: str, status: Status = QUEUED) -> Route:
    """Return the route of a session of *job*."""
    sid = job.translate(str.maketrans("012", "abc")).ljust(26, "z")
    return Route(
        sid=sid, rev=1, job=job, rank=0, kind="web", owner="ada", hosts=(f"{sid}.h",),
        state="starting", status=status,
    )  # fmt: skip


class Pages:
    """Open start pages, as gateways report them."""

    def __init__(self) -> None:
        self.open: dict[str, float] = {}
        self.asked: list[str] = []

    async def activities_of(self, sids: Sequence[str]) -> Mapping[str, Activity]:
        self.asked = list(sids)
        known = self.open.items()
        return {sid: Activity(at=at, waiting_at=at) for sid, at in known if sid in sids}


@pytest.fixture
async def queued(store: Store) -> Store:
    """Store three jobs that wait in one queue, in order."""
    async with store.write() as transaction:
        for number, job in enumerate(JOBS):
            record = make_record(
                id=job, state="IN_QUEUE", reason="queued", queue="batch", created_at=float(number)
            )
            await insert_job(transaction, record, labels={})
    return store


async def test_queue_positions_are_computed_for_watched_jobs(
    queued: Store,
) -> None:
    pages, now = Pages(), 1000.0
    positions = QueuePositions(queued, activities_of=pages.activities_of, clock=lambda: now)
    routes = [routed(job) for job in JOBS] + [routed("run", Status(phase="ready"))]
    assert await positions.look(routes) == []
    assert sorted(pages.asked) == sorted(route.sid for route in routes[:3])
    pages.open = {routes[2].sid: 990.0, routes[0].sid: 900.0}
    assert await positions.look(routes) == ["q2"]
    assert dict(positions) == {"q2": 3}
    assert await positions.look(routes) == []
    async with queued.write() as transaction:
        first = await find_job(transaction, "q0")
        assert first is not None
        await update_job(transaction, first, now=1.0, state="RUNNING", reason=None, message=None)
    assert await positions.look(routes) == ["q2"]
    assert dict(positions) == {"q2": 2}
    # No page is open any more: the last known position stays while the job waits.
    now = 2000.0
    assert await positions.look(routes) == []
    assert dict(positions) == {"q2": 2}
    assert await positions.look(routes[:2]) == []
    assert dict(positions) == {}


async def test_many_watched_jobs_take_turns(queued: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_JOBS", 1)
    monkeypatch.setattr(module, "MOST_SESSIONS", 2)
    routes, pages = [routed(job) for job in JOBS], Pages()
    pages.open = {route.sid: 1000.0 for route in routes}
    positions = QueuePositions(queued, activities_of=pages.activities_of, clock=lambda: 1000.0)
    for _ in range(6):
        await positions.look(routes)
        assert len(pages.asked) == 2
    assert dict(sorted(positions.items())) == {"q0": 1, "q1": 2, "q2": 3}


async def test_other_tasks_run_between_the_queries(
    queued: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.loop_turn.TURN_SECONDS", 0.0)
    turns, seen = 0, list[int]()

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def place(*_: object) -> None:
        seen.append(turns)

    monkeypatch.setattr(module, "queue_place", place)
    routes, pages = [routed(job) for job in JOBS], Pages()
    pages.open = {route.sid: 1000.0 for route in routes}
    positions = QueuePositions(queued, activities_of=pages.activities_of, clock=lambda: 1000.0)
    running = asyncio.create_task(other())
    await positions.look(routes)
    running.cancel()
    assert len(set(seen)) == len(JOBS)
