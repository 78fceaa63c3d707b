from __future__ import annotations

import asyncio

import pytest
import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Store
from controller.store.errors import LeadershipLost, StoreUnavailable
from controller.store.leadership import raise_term
from controller.store.position import ensure_position, raise_revision, read_position
from tests.controller.postgres import Postgres


async def test_the_migrations_make_exactly_the_tables_of_the_code(store: Store) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    def differences(connection: sa.Connection) -> list[object]:
        return list(compare_metadata(MigrationContext.configure(connection), tables.metadata))

    async with store.read() as transaction:
        assert await transaction.run_sync(differences) == []


async def test_two_processes_can_open_a_new_store_at_the_same_time(store_url: str) -> None:
    stores = [Store(store_url) for _ in range(4)]
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
                assert (await read_position(transaction)).revision == raised

    try:
        await asyncio.gather(count_up(store), count_up(other))
        async with other.read() as transaction:
            assert (await read_position(transaction)).revision == 40
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
        assert (await read_position(transaction)).revision == 0


async def test_a_leader_whose_term_is_over_writes_nothing(store: Store) -> None:
    async with store.write() as transaction:
        first = await raise_term(transaction)
    async with store.lead(first) as transaction:
        await raise_revision(transaction)
    async with store.write() as transaction:
        await raise_term(transaction)
    with pytest.raises(LeadershipLost):
        async with store.lead(first) as transaction:
            await raise_revision(transaction)
    async with store.read() as transaction:
        assert (await read_position(transaction)).revision == 1


async def test_a_store_keeps_the_identity_it_was_made_with(store: Store) -> None:
    async with store.write() as transaction:
        assert (await ensure_position(transaction, new_identity="other")).identity == "test"


async def test_foreign_keys_are_enforced(store: Store) -> None:
    with pytest.raises(sa.exc.IntegrityError):
        async with store.write() as transaction:
            await transaction.execute(
                sa.insert(tables.job_labels).values(job_id="missing", name="a", value="b")
            )


async def test_what_a_failing_statement_was_given_is_not_in_its_error(store: Store) -> None:
    with pytest.raises(sa.exc.IntegrityError) as caught:
        async with store.write() as transaction:
            await transaction.execute(
                sa.insert(tables.job_labels).values(job_id="x", name="a", value="canary")
            )
    assert "canary" not in str(caught.value)


@pytest.mark.needs("postgres")
async def test_a_database_that_goes_away_is_unavailable_and_then_there_again(
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
async def test_a_leader_that_is_stopped_in_a_transaction_keeps_nobody_from_leading(
    postgres: Postgres,
) -> None:
    url = postgres.new_database()
    stopped, other = Store(url), Store(url)
    await stopped.open()
    async with stopped.write() as transaction:
        term = await raise_term(transaction)
    try:
        with pytest.raises(StoreUnavailable):
            await _lead_while(stopped, term, other)
    finally:
        await stopped.close()
        await other.close()


async def _lead_while(stopped: Store, term: int, other: Store) -> None:
    async with stopped.lead(term) as held:
        # It holds the row, and does nothing more.
        async with asyncio.timeout(60), other.write() as transaction:
            assert await raise_term(transaction) == term + 1
        await raise_revision(held)
