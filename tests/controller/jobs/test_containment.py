"""Tests that an unexpected error affects only the job that causes it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

import pytest
import sqlalchemy as sa
from prometheus_client import CollectorRegistry

from controller.jobs import containment
from controller.jobs.containment import Containment
from controller.jobs.history.retention import Retention, RetentionPeriods
from controller.jobs.reconcile import sources as module
from controller.jobs.reconcile.reconciler import Reconciler, ReconcilerMetrics
from controller.jobs.reconcile.workqueue import WorkQueue
from controller.kube.errors import Unavailable
from controller.store.database import Store
from controller.store.errors import LeadershipLost, StoreUnavailable
from controller.store.instance import raise_term
from controller.store.jobs.job_rows import insert_job, known_jobs, touch_unsubmitted
from tests.clock import Clock
from tests.controller.running import eventually
from tests.controller.samples import make_record


def test_a_repeated_error_is_counted_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failed: list[Exception] = []
    contained = Containment("not done", failed.append)

    def do(which: str, error: Exception | None) -> None:
        with contained.of(which):
            if error is not None:
                raise error

    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            do("job a", KeyError("x"))
            do("job b", KeyError("x"))
        assert [getattr(one, "of") for one in caplog.records] == ["job a", "job b"]  # noqa: B009
        do("job a", ValueError("another"))
        do("job b", None)
        do("job b", KeyError("x"))
    assert len(caplog.records) == 4
    assert len(failed) == 8


@pytest.mark.parametrize("error", [LeadershipLost("lost"), StoreUnavailable("away")])
def test_a_lost_store_or_leadership_is_not_contained_to_one_job(error: Exception) -> None:
    contained = Containment("not done", lambda _error: pytest.fail("it was counted"))
    with pytest.raises(type(error)), contained.of("job a"):
        raise error


def test_the_memory_of_errors_is_bounded(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(containment, "MOST_KNOWN", 10)
    contained = Containment("not done", lambda _error: None)
    for number in range(30):
        with contained.of(f"job {number}"):
            raise KeyError
    assert len(contained._known) == 10
    assert len(caplog.records) == 30


def make_retention(
    store: Store, term: int, clock: Clock, failed: list[Exception], *there: str, **kept: float
) -> Retention:
    keep = RetentionPeriods(**{"history": 60.0, "tombstone": 100.0} | kept)
    return Retention(
        store.fenced(term),
        keep=keep,
        may_be_there=there.__contains__,
        clock=clock,
        failed=failed.append,
    )


async def test_a_job_that_cannot_be_deleted_does_not_block_others(
    store: Store, clock: Clock
) -> None:
    ids = [f"j{number}" for number in range(5)]
    async with store.write() as transaction:
        term = await raise_term(transaction)
        for job_id in ids:
            over = make_record(id=job_id, state="SUCCESS", outcome="SUCCESS", finished_at=1.0)
            await insert_job(transaction, over, labels={})
        await transaction.execute(
            sa.text(
                "CREATE TRIGGER stays BEFORE DELETE ON jobs WHEN old.id = 'j2' "
                "BEGIN SELECT RAISE(ABORT, 'it stays'); END"
            )
        )
    failed: list[Exception] = []
    retention = make_retention(store, term, clock, failed)
    assert await retention.tidy() == 4
    async with store.read() as transaction:
        assert await known_jobs(transaction, ids) == {"j2"}
    assert len(failed) == 1
    async with store.write() as transaction:
        await transaction.execute(sa.text("DROP TRIGGER stays"))
    assert await retention.tidy() == 1
    async with store.write() as transaction:
        await raise_term(transaction)
    with pytest.raises(LeadershipLost):
        await retention.tidy()


class RecordingObserver:
    """An observer and adoption that find nothing and record the requested jobs."""

    def __init__(self) -> None:
        self.ids: list[str] = []

    async def observe(self, job_id: str) -> None:
        self.ids.append(job_id)

    async def look_at(self, job_id: str) -> None:
        """Find nothing to adopt."""

    async def settle(self) -> None:
        """Return at once: everything is adopted."""

    async def complete(self) -> None:
        """Return at once: the cache is complete."""

    def job_ids(self) -> list[str]:
        return ["there"]

    @property
    def jobs(self) -> RecordingObserver:
        return self


@pytest.fixture
async def looks(store: Store, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[RecordingObserver]:
    monkeypatch.setattr(module, "RESYNC_SECONDS", 0.05)
    monkeypatch.setattr(module, "POLL_SECONDS", 0.05)

    def job_changed(job_id: str) -> None:
        if job_id == "bad":
            raise ZeroDivisionError

    faked: Any = RecordingObserver()
    queue = WorkQueue(clock=asyncio.get_running_loop().time, random=lambda: 0.5)
    reconciler = Reconciler(
        store=store, informer=faked, observer=faked, actions=faked, adoption=faked, queue=queue,
        job_changed=job_changed, metrics=ReconcilerMetrics(CollectorRegistry()),
    )  # fmt: skip
    running = asyncio.create_task(reconciler.run())
    yield faked
    assert not running.done(), running
    running.cancel()
    await asyncio.wait([running])


async def seen(looks: RecordingObserver, *job_ids: str) -> None:
    """Wait until each of the jobs has been observed from now on."""
    looks.ids.clear()

    async def all_of_them() -> bool:
        return set(job_ids) <= set(looks.ids)

    await eventually(all_of_them, seconds=60, what="they are not looked at")


async def test_updates_of_one_job_do_not_block_others(
    store: Store, looks: RecordingObserver
) -> None:
    async with store.write() as transaction:
        for job_id in ("bad", "good"):
            await insert_job(transaction, make_record(id=job_id), labels={})
    await seen(looks, "bad", "good")
    async with store.write() as transaction:
        await touch_unsubmitted(transaction)
    await seen(looks, "bad", "good")


@pytest.mark.parametrize("broken", ["settled_jobs", "unfinished_jobs", "changed_jobs"])
async def test_an_unreadable_row_does_not_stop_the_leader(
    store: Store, looks: RecordingObserver, monkeypatch: pytest.MonkeyPatch, broken: str
) -> None:
    await seen(looks, "there")
    failed: list[int] = []

    async def fails(*_given: object, **_named: object) -> None:
        failed.append(1)
        raise ZeroDivisionError

    monkeypatch.setattr(module, broken, fails)
    if broken == "settled_jobs":
        await seen(looks, "there")  # no single job is identified, so each is observed

    async def has_failed() -> bool:
        return len(failed) > 1

    await eventually(has_failed, seconds=60)
    monkeypatch.undo()
    monkeypatch.setattr(module, "RESYNC_SECONDS", 0.05)
    async with store.write() as transaction:
        await insert_job(transaction, make_record(id="new"), labels={})
    await seen(looks, "new", "there")


async def test_repeated_work_outlives_its_errors_and_logs_an_outage_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    failed: list[Exception] = []
    outage = [StoreUnavailable("away"), StoreUnavailable("away"), Unavailable("away")]
    results = iter([KeyError("x"), *outage, None, LeadershipLost("lost")])

    async def work() -> None:
        if (result := next(results)) is not None:
            raise result

    contained = Containment("not done", failed.append)
    with caplog.at_level(logging.INFO), pytest.raises(LeadershipLost):
        await contained.repeat(work, lambda: 0.0)
    assert [type(one) for one in failed] == [KeyError]
    said = [(one.levelname, one.message) for one in caplog.records]
    assert said == [("ERROR", "not done"), ("WARNING", "not done"), ("INFO", "over: not done")]
