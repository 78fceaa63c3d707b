from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import pytest

from controller.store import notifications
from controller.store.database import Store
from controller.store.instance import ensure_position, raise_revision, read_store_metadata
from controller.store.jobs.job_rows import insert_job
from controller.store.notifications import UpdateNotifications, listen_for_changes
from tests.controller.postgres import Postgres
from tests.controller.samples import make_record

pytestmark = pytest.mark.needs("postgres")


@pytest.fixture
async def other(store_url: str, store: Store) -> AsyncIterator[Store]:
    """Return the store of another process."""
    opened = Store(store_url)
    yield opened
    await opened.close()


class NotificationCounter:
    """Counts notifications."""

    def __init__(self) -> None:
        self.count = 0
        self._news = asyncio.Event()

    def __call__(self) -> None:
        self.count += 1
        self._news.set()

    async def something(self, seconds: float = 20.0) -> None:
        """Wait for a notification since the last call."""
        async with asyncio.timeout(seconds):
            await self._news.wait()
        self._news.clear()


@asynccontextmanager
async def hearing(store: Store) -> AsyncIterator[NotificationCounter]:
    heard = NotificationCounter()
    task = asyncio.create_task(listen_for_changes(store, heard))
    try:
        yield heard
    finally:
        task.cancel()
        await asyncio.wait([task])


@pytest.fixture
def store_url(postgres: Postgres) -> Iterator[str]:
    """Return a PostgreSQL store: SQLite has no notifications."""
    url = postgres.new_store()
    yield url
    postgres.drop(url)


async def write(store: Store) -> None:
    async with store.write() as transaction:
        await raise_revision(transaction)


async def fail(store: Store) -> None:
    async with store.write() as transaction:
        await raise_revision(transaction)
        raise ZeroDivisionError


async def test_commits_of_other_processes_are_notified_at_once(store: Store, other: Store) -> None:
    async with hearing(store) as heard:
        await heard.something()  # earlier notifications were not received
        await write(store)
        async with other.write() as transaction:
            await raise_revision(transaction)
            await asyncio.sleep(0.1)
            assert heard.count == 1, "it was told of what was not there yet"
        await heard.something(2.0)
        assert heard.count == 2


async def test_a_rollback_sends_no_notification(store: Store, other: Store) -> None:
    async with hearing(store) as heard:
        await heard.something()
        with pytest.raises(ZeroDivisionError):
            await fail(other)
        await write(other)
        await heard.something(2.0)
        assert heard.count == 2


async def test_a_broken_listener_reconnects_and_reports_missed_changes(
    store: Store, other: Store, postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(notifications, "PROBE_SECONDS", 0.2)
    monkeypatch.setattr(notifications, "AGAIN_SECONDS", 0.1)
    async with hearing(store) as heard:
        await heard.something()
        await asyncio.to_thread(postgres.restart)
        await heard.something()
        await write(other)
        await heard.something(5.0)


async def test_a_read_transaction_sees_one_snapshot(store: Store, other: Store) -> None:
    # Otherwise the revision, read last, could belong to a change that the rows lack.
    async with store.read() as transaction:
        before = await read_store_metadata(transaction)
        await write(other)
        assert await read_store_metadata(transaction) == before
    async with store.write() as transaction:
        assert (await ensure_position(transaction, new_identity="x")).revision > before.revision


async def write_update(store: Store, job_id: str, *, fails: bool = False) -> None:
    async with store.write() as transaction:
        await insert_job(transaction, make_record(id=job_id), labels={})
        if fails:
            raise KeyError


async def test_a_committed_update_wakes_followers_in_all_processes(
    store: Store, other: Store
) -> None:
    here, there = UpdateNotifications(store), UpdateNotifications(other)
    task = asyncio.create_task(there.listen())
    try:
        async with asyncio.timeout(60):
            connected = there.next
            await connected.wait()  # notifications before the subscription were not received
            mine, its = here.next, there.next
            with pytest.raises(KeyError):
                await write_update(store, "never", fails=True)
            async with store.write() as transaction:
                await raise_revision(transaction)
            assert not mine.is_set()
            await write_update(store, "j1")
            assert mine.is_set()
            await its.wait()
            assert here.next is not mine
            assert not here.next.is_set()
    finally:
        task.cancel()
        await asyncio.wait([task])
