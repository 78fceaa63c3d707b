"""Tests that a store of b9911c7 is migrated in place, with every row and column kept."""

from __future__ import annotations

import asyncio
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa

from controller.store.database import Store
from tests.controller.postgres import Postgres
from tests.recorded.names import recorded
from tests.recorded.opening import restore_postgres, restore_sqlite
from tests.recorded.recording import Recording


@pytest.mark.parametrize(
    "kind", ["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("postgres"))]
)
async def test_no_row_and_no_column_is_lost(
    kind: str, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    recording = Recording.read(kind)
    if kind == "postgresql":
        server: Postgres = request.getfixturevalue("postgres")
        url = await asyncio.to_thread(restore_postgres, recording, server)
    else:
        url = restore_sqlite(recording, tmp_path / "store.db")
    store = Store(url)
    try:
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
    finally:
        await store.close()


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
