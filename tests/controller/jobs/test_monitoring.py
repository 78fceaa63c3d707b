from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest

from controller.jobs.lifecycle import Seen
from controller.jobs.monitoring import AGAIN_SECONDS, Monitoring
from controller.jobs.pipeline import Pipeline
from controller.jobs.plugin import JobFromServer, JobPlugin
from controller.store.database import Store
from controller.store.jobs import find_job, insert_job, move_job
from controller.store.leadership import raise_term
from controller.store.progress import due_jobs, set_due
from tests.controller.conftest import Clock
from tests.controller.samples import make_context, make_job, make_record, make_seen


class Counting(JobPlugin):
    """Wants to see each job again after as many seconds as it is told."""

    name: ClassVar[str] = "counting"
    batches: ClassVar[list[list[str]]] = []
    answer: ClassVar[Any] = None

    async def on_job_monitoring(
        self, job_batch: Sequence[JobFromServer]
    ) -> Mapping[str, float | None]:
        self.batches.append([one.job.id for one in job_batch])
        if isinstance(self.answer, Exception):
            raise self.answer
        return {one.job.id: self.answer for one in job_batch}


@pytest.fixture
async def monitoring(store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> Monitoring:
    monkeypatch.setattr(Counting, "batches", [])
    monkeypatch.setattr(Counting, "answer", None)
    async with store.write() as transaction:
        term = await raise_term(transaction)
        for job_id in ("a", "b", "c"):
            await insert_job(transaction, make_record(id=job_id), labels={})

    async def see(job_id: str) -> Seen | None:
        async with store.read() as transaction:
            record = await find_job(transaction, job_id)
        return None if record is None else make_seen(record)

    def show(seen: Seen) -> JobFromServer:
        return JobFromServer(
            job=make_job(id=seen.record.id), namespace="jobs", uid="", attempt=1, phase="",
            started_at=None, pods=(),
        )  # fmt: skip

    pipeline = Pipeline([Counting(make_context())], instance="test", namespace="jobs")
    return Monitoring(store=store, term=term, pipeline=pipeline, see=see, show=show, clock=clock)


async def due_at(store: Store, clock: Clock, seconds: float) -> list[str]:
    async with store.read() as transaction:
        found = await due_jobs(transaction, now=clock() + seconds, limit=99)
    return found.get("counting", [])


async def make_due(store: Store, clock: Clock, *ids: str, plugin: str = "counting") -> None:
    async with store.write() as transaction:
        for place, job_id in enumerate(ids):
            await set_due(transaction, job_id, plugin, at=clock() - 10 + place)


async def test_jobs_that_are_due_come_in_one_batch_and_not_again(
    monitoring: Monitoring, store: Store, clock: Clock
) -> None:
    await make_due(store, clock, "b", "a")
    assert not await monitoring.look()
    assert Counting.batches == [["b", "a"]]
    assert await due_at(store, clock, 10**9) == []


async def test_when_a_plugin_wants_a_job_again_it_gets_it_then(
    monitoring: Monitoring, store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Counting, "answer", clock() + 500)
    await make_due(store, clock, "a")
    await monitoring.look()
    assert await due_at(store, clock, 499) == []
    assert await due_at(store, clock, 500) == ["a"]


@pytest.mark.parametrize("failure", [ZeroDivisionError(), None])
async def test_a_job_that_was_forgotten_or_failed_with_comes_again(
    monitoring: Monitoring,
    store: Store,
    clock: Clock,
    monkeypatch: pytest.MonkeyPatch,
    failure: Exception | None,
) -> None:
    if failure is not None:
        monkeypatch.setattr(Counting, "answer", failure)
    else:
        monkeypatch.setattr(Counting, "on_job_monitoring", _forgets)
    await make_due(store, clock, "a")
    await monitoring.look()
    assert await due_at(store, clock, AGAIN_SECONDS - 1) == []
    assert await due_at(store, clock, AGAIN_SECONDS) == ["a"]


async def _forgets(_self: Any, _batch: Any) -> dict[str, float | None]:
    return {}


async def test_a_job_that_is_over_or_gone_is_not_shown_again(
    monitoring: Monitoring, store: Store, clock: Clock
) -> None:
    await make_due(store, clock, "a", "b")
    async with store.write() as transaction:
        await move_job(transaction, make_record(id="a"), now=1.0, outcome="SUCCESS")
    await monitoring.look()
    assert Counting.batches == [["b"]]
    assert await due_at(store, clock, 10**9) == []


async def test_a_plugin_that_was_taken_out_keeps_no_job_waiting(
    monitoring: Monitoring, store: Store, clock: Clock
) -> None:
    await make_due(store, clock, "a", plugin="gone")
    await monitoring.look()
    assert not await monitoring.look()
    async with store.read() as transaction:
        assert await due_jobs(transaction, now=10**12, limit=9) == {}


async def test_a_full_batch_is_followed_by_the_next_at_once(
    monitoring: Monitoring, store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.jobs.monitoring.BATCH", 2)
    await make_due(store, clock, "a", "b", "c")
    assert await monitoring.look()
    assert not await monitoring.look()
    assert Counting.batches == [["a", "b"], ["c"]]
