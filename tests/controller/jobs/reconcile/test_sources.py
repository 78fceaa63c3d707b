"""Tests the pauses between resyncs, and a store that is unavailable when a leader starts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from controller.jobs.reconcile import sources as module
from controller.jobs.reconcile.reconciler import Reconciler, ReconcilerMetrics
from controller.jobs.reconcile.sources import rest_after
from controller.jobs.reconcile.workqueue import WorkQueue
from controller.store.database import Store, Transaction
from controller.store.errors import StoreUnavailable
from controller.store.instance import ensure_position
from tests.controller.new_stores import new_sqlite
from tests.controller.running import eventually


class UnavailableStore(Store):
    """A store that does not respond to the first requests."""

    unanswered = 20

    @asynccontextmanager
    async def read(self) -> AsyncIterator[Transaction]:
        if self.unanswered:
            self.unanswered -= 1
            raise StoreUnavailable("away")
        async with super().read() as transaction:
            yield transaction


async def test_a_store_outage_at_the_start_of_a_leader_is_awaited_and_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    monkeypatch.setattr(module, "POLL_SECONDS", 0.01)
    store, began = UnavailableStore(new_sqlite(tmp_path)), asyncio.Event()
    async with store.write() as transaction:
        await ensure_position(transaction, new_identity="me")

    async def at_once() -> None:
        return

    async def background() -> None:
        began.set()

    nothing = cast(Any, SimpleNamespace())
    reconciler = Reconciler(
        store=store,
        informer=cast(Any, SimpleNamespace(complete=at_once, job_ids=list)),
        observer=nothing,
        actions=nothing,
        adoption=cast(Any, SimpleNamespace(settle=at_once)),
        queue=WorkQueue(clock=lambda: 0.0, random=lambda: 0.5),
        job_changed=lambda _job: None,
        metrics=ReconcilerMetrics(CollectorRegistry()),
        background=[background],
    )
    running = asyncio.create_task(reconciler.run())
    beginning = asyncio.create_task(began.wait())
    await asyncio.wait([running, beginning], return_when=asyncio.FIRST_COMPLETED)
    assert began.is_set(), running.exception()
    messages = ["the store cannot be read", "the store is read again"]

    def lines() -> list[str]:
        return [one.getMessage() for one in caplog.records if one.name == module.__name__]

    assert lines() == messages
    store.unanswered = 20

    async def is_logged_again() -> bool:
        return lines() == messages * 2

    await eventually(is_logged_again)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    await store.close()


@pytest.mark.parametrize(
    ("jobs", "each", "round_seconds", "share"),
    [
        (100, 0.003, 6, 0.05),
        (10_000, 0.004, 600, 0.067),
        (20_000, 0.01, 800, 0.25),
        (100_000, 0.005, 2000, 0.25),
    ],
)
def test_a_resync_is_spread_over_ten_minutes_or_a_share_of_time(
    jobs: int, each: float, round_seconds: float, share: float
) -> None:
    took = 20 * each
    took_and_rest = took + rest_after(took, 20 / jobs)
    assert took_and_rest * jobs / 20 == pytest.approx(round_seconds, rel=0.02)
    assert took / took_and_rest == pytest.approx(share, rel=0.02)


def test_a_long_resync_is_followed_soon_by_the_next() -> None:
    assert rest_after(60.0, 0.5) == 5.0
