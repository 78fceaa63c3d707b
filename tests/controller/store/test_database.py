from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any

import pytest
import sqlalchemy as sa

from controller.store import database, postgresql, tables
from controller.store.database import Store
from controller.store.errors import LeadershipLost, StoreUnavailable
from controller.store.instance import (
    ensure_position,
    raise_revision,
    raise_term,
    read_store_metadata,
    refresh_leadership,
)
from tests.controller.postgres import Postgres


async def test_two_processes_can_open_a_new_store_at_the_same_time(empty_url: str) -> None:
    stores = [Store(empty_url) for _ in range(4)]
    try:
        await asyncio.gather(*(one.open() for one in stores))
    finally:
        for one in stores:
            await one.close()


async def test_writers_of_two_processes_wait_for_each_other(store: Store, store_url: str) -> None:
    other = Store(store_url)

    async def count_up(one: Store) -> None:
        for _ in range(20):
            async with one.write() as transaction:
                raised = await raise_revision(transaction)
                await asyncio.sleep(0)
                assert (await read_store_metadata(transaction)).revision == raised

    try:
        await asyncio.gather(count_up(store), count_up(other))
        async with other.read() as transaction:
            assert (await read_store_metadata(transaction)).revision == 40
    finally:
        await other.close()


async def test_a_failed_block_writes_nothing(store: Store) -> None:
    async def fail() -> None:
        async with store.write() as transaction:
            await raise_revision(transaction)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        await fail()
    async with store.read() as transaction:
        assert (await read_store_metadata(transaction)).revision == 0


async def test_a_fenced_leader_writes_nothing(store: Store) -> None:
    async with store.write() as transaction:
        first = await raise_term(transaction)
    async with store.fenced(first).write() as transaction:
        await raise_revision(transaction)
    async with store.write() as transaction:
        await raise_term(transaction)
    with pytest.raises(LeadershipLost):
        async with store.fenced(first).write() as transaction:
            await raise_revision(transaction)
    async with store.read() as transaction:
        assert (await read_store_metadata(transaction)).revision == 1


async def test_a_store_keeps_its_identity(store: Store) -> None:
    async with store.write() as transaction:
        assert (await ensure_position(transaction, new_identity="other")).identity == "test"


async def test_foreign_keys_are_enforced(store: Store) -> None:
    with pytest.raises(sa.exc.IntegrityError):
        async with store.write() as transaction:
            await transaction.execute(
                sa.insert(tables.job_labels).values(job_id="missing", name="a", value="b")
            )


async def test_statement_parameters_are_not_in_its_error(store: Store) -> None:
    with pytest.raises(sa.exc.IntegrityError) as caught:
        async with store.write() as transaction:
            await transaction.execute(
                sa.insert(tables.job_labels).values(job_id="x", name="a", value="canary")
            )
    assert "canary" not in str(caught.value)


@pytest.mark.needs("postgres")
async def test_a_database_outage_is_unavailable_and_recovers(
    postgres: Postgres,
) -> None:
    store = Store(postgres.new_database())
    await store.open()
    try:
        async with store.read() as transaction:
            await transaction.execute(sa.text("SELECT 1"))
        await asyncio.to_thread(postgres.restart)
        with pytest.raises(StoreUnavailable):
            async with store.read() as transaction:
                await transaction.execute(sa.text("SELECT 1"))
        async with store.read() as transaction:
            assert await transaction.scalar(sa.text("SELECT 1")) == 1
    finally:
        await store.close()


@pytest.mark.needs("postgres")
@pytest.mark.parametrize("within_a_statement", [False, True])
async def test_a_leader_suspended_in_a_transaction_does_not_block_its_successor(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, within_a_statement: bool
) -> None:
    # Either the server ends the idle transaction, or the next leader ends the one with the fence.
    if within_a_statement:
        monkeypatch.setattr(postgresql, "_WAIT_FOR_FENCE", sa.text("SET LOCAL lock_timeout = '1s'"))
    else:
        settings: Any = postgresql.CONNECT_ARGUMENTS["server_settings"]
        monkeypatch.setitem(settings, "idle_in_transaction_session_timeout", "1500")
    url = postgres.new_database()
    stopped, other = Store(url), Store(url)
    await stopped.open()
    async with stopped.write() as transaction:
        term = await raise_term(transaction)
    try:
        with pytest.raises(StoreUnavailable):
            await _lead_while(stopped, term, other, within_a_statement=within_a_statement)
    finally:
        await stopped.close()
        await other.close()


async def _lead_while(stopped: Store, term: int, other: Store, *, within_a_statement: bool) -> None:
    async with stopped.fenced(term).write() as held:
        # The transaction holds the row and sends nothing more.
        if within_a_statement:
            driver: Any = (await held.get_raw_connection()).driver_connection
            # Parsed but not executed: the server waits, but does not count this as idle.
            await driver.prepare("SELECT 1")
        async with asyncio.timeout(60), other.write() as transaction:
            assert await raise_term(transaction) == term + 1
        await raise_revision(held)


@pytest.mark.needs("postgres")
async def test_writers_of_a_busy_leader_do_not_starve_others(postgres: Postgres) -> None:
    url = postgres.new_database()
    store, other = Store(url), Store(url)
    written, ends = Counter[str](), asyncio.Event()

    async def write(term: int) -> None:
        while not ends.is_set():
            try:
                async with store.fenced(term).write() as transaction:
                    # As a step with several statements does.
                    await transaction.execute(sa.text("SELECT pg_sleep(0.3)"))
                    written["done"] += 1
            except LeadershipLost:
                written["fenced"] += 1
                return
            except StoreUnavailable:
                await asyncio.sleep(0.01)

    try:
        await store.open()
        async with store.write() as transaction:
            await ensure_position(transaction, new_identity="me")
            term = await raise_term(transaction)
        async with asyncio.TaskGroup() as tasks:
            for _ in range(8):
                tasks.create_task(write(term))
                await asyncio.sleep(0.04)  # so that a write is always in progress
            before = written["done"]
            for _ in range(5):
                async with store.write() as transaction:
                    await refresh_leadership(transaction, now=1.0)
            beside_five, before = written["done"] - before, written["done"]
            async with other.write() as transaction:
                raised = await raise_term(transaction)
            beside_term = written["done"] - before
            async with asyncio.timeout(20):
                while written["fenced"] < 8:
                    await asyncio.sleep(0.05)
            ends.set()
        assert raised == term + 1
        # It waits for none of them. With a shared row lock, it waited until all had ended.
        assert beside_five < 5 * 8
        # It waits for the writes in progress, not for later ones. After its request each writer can
        # do one more, while the new leader opens two or three connections.
        assert beside_term < 5 * 8
        assert written["done"] >= 8
    finally:
        await store.close()
        await other.close()


@pytest.mark.needs("postgres")
async def test_a_migration_may_take_longer_than_a_query(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = dict(postgresql.CONNECT_ARGUMENTS) | {"command_timeout": 0.3}
    defaults = {"limits": limits, "poolclass": None}
    monkeypatch.setattr(database._make_engine, "__kwdefaults__", defaults)

    def slow(connection: sa.Connection) -> None:
        connection.execute(sa.text("SELECT pg_sleep(1)"))

    monkeypatch.setattr(database, "migrate", slow)
    store = Store(postgres.new_database())
    try:
        await store.open()
        with pytest.raises((StoreUnavailable, TimeoutError)):
            async with store.write() as transaction:
                await transaction.execute(sa.text("SELECT pg_sleep(1)"))
    finally:
        await store.close()


async def test_repeated_reads_do_not_block_others(store: Store) -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    for _ in range(1000):
        async with store.read() as transaction:
            await transaction.scalar(sa.select(1))
    beside.cancel()
    assert turns > 3


async def test_a_store_reports_the_time_since_its_last_write(store: Store) -> None:
    await store.probe()
    assert store.seconds_since_write < 5
    with pytest.raises(ZeroDivisionError):
        async with store.write():
            raise ZeroDivisionError
    assert store.seconds_since_write > 0
