"""Tests that a store of b9911c7 is migrated in place, with every row and column kept.

It has the schema of 0.1.0 (0005), the oldest that is migrated.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext

from controller.store import tables
from controller.store.database import Store
from controller.store.migrations import SCHEMA_TABLE, VERSION_TABLES, migrate
from tests.controller.postgres import Postgres
from tests.recorded.names import recorded
from tests.recorded.opening import restore_postgres, restore_sqlite
from tests.recorded.recording import Recording


@pytest.fixture(params=["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("postgres"))])
async def store(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    recording = Recording.read(request.param)
    if request.param == "postgresql":
        server: Postgres = request.getfixturevalue("postgres")
        url = await asyncio.to_thread(restore_postgres, recording, server)
    else:
        url = restore_sqlite(recording, tmp_path / "store.db")
    store = Store(url)
    yield store
    await store.close()


async def test_no_row_and_no_column_is_lost(store: Store, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    before = await rows_of(store)
    assert before["jobs"]
    assert all(before[name] for name in recorded("columns")), before
    await store.open()
    await store.open()  # a second time changes nothing
    after = await rows_of(store)
    for name, columns in recorded("columns").items():
        assert len(after[name]) == len(before[name])
        kept = [{key: row[key] for key in columns} for row in after[name]]
        assert kept == before[name], name
    async with store.read() as transaction:
        # b9911c7 reads its own schema version, so a rollback to it is possible.
        version = await transaction.scalar(sa.text("SELECT version_num FROM alembic_version"))
    assert version == "0005"
    assert "alembic" not in caplog.text  # it would log two lines for each column


async def test_the_migration_makes_exactly_the_tables_of_a_new_store(store: Store) -> None:
    async with store.read() as transaction:
        assert await transaction.run_sync(differences)
    await store.open()
    async with store.read() as transaction:
        assert await transaction.run_sync(differences) == []


async def test_a_store_of_a_schema_between_two_releases_gets_what_it_lacks(store: Store) -> None:
    await store.open()
    async with store.write() as transaction:
        for lost in (
            "DROP TABLE webhooks",
            "DROP INDEX ix_tombstones_at",
            "DROP INDEX ix_jobs_batch",
            "ALTER TABLE jobs DROP COLUMN batch",
            "UPDATE schema_version SET version_num = '0014'",
        ):
            await transaction.execute(sa.text(lost))
    await store.open()
    async with store.read() as transaction:
        assert await transaction.run_sync(differences) == []


async def test_an_attempt_whose_successor_is_decided_has_used_no_retries(store: Store) -> None:
    async with store.write() as transaction:
        query = "SELECT id FROM jobs JOIN attempts a ON id = job_id AND jobs.attempt = a.attempt"
        decided, *others = (await transaction.scalars(sa.text(query))).all()
        decide = sa.text("UPDATE jobs SET renewal = 'retry' WHERE id = :id")
        await transaction.execute(decide, {"id": decided})
    assert others
    await store.open()
    async with store.read() as transaction:
        used = sa.select(tables.attempts.c.job_id).where(tables.attempts.c.used == 0)
        assert (await transaction.scalars(used)).all() == [decided]


def differences(connection: sa.Connection) -> list[object]:
    def ours(_object: object, name: str | None, *_: object) -> bool:
        return name != SCHEMA_TABLE

    context = MigrationContext.configure(connection, opts={"include_object": ours})
    return list(compare_metadata(context, tables.metadata))


async def test_the_migration_only_adds_so_that_the_previous_version_keeps_working(
    store: Store,
) -> None:
    async with store.write() as transaction:
        await transaction.run_sync(_adds_only)


def _adds_only(connection: sa.Connection) -> None:
    before = _shape(connection)
    migrate(connection)
    after = _shape(connection)
    for table, columns in before.items():
        assert columns.items() <= after[table].items(), table
        for name in after[table].keys() - columns.keys():
            # The previous version inserts rows without this column.
            assert after[table][name][1], (table, name)


def _shape(connection: sa.Connection) -> dict[str, dict[str, tuple[str, bool]]]:
    """Return each table's columns: their types, and whether a row may omit them."""
    looked = sa.inspect(connection)
    return {
        table: {
            one["name"]: (str(one["type"]), one["nullable"] or one["default"] is not None)
            for one in looked.get_columns(table)
        }
        for table in looked.get_table_names()
        if table not in VERSION_TABLES
    }


async def rows_of(store: Store) -> dict[str, list[dict[str, object]]]:
    """Return the rows of each table, with all its current columns."""
    found: dict[str, list[dict[str, object]]] = {}
    async with store.read() as transaction:
        for name in recorded("columns"):
            table = await transaction.run_sync(partial(_table, name))
            rows = await transaction.execute(sa.select(table).order_by(*table.primary_key.columns))
            found[name] = [dict(row._mapping) for row in rows]
    return found


def _table(name: str, connection: sa.Connection) -> sa.Table:
    return sa.Table(name, sa.MetaData(), autoload_with=connection)
