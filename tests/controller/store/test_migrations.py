"""Tests migrations: data of an older version is kept when the tables change."""

from __future__ import annotations

import json
from typing import Any

import pytest
import sqlalchemy as sa
from alembic import command
from alembic.script import ScriptDirectory

from controller.store.database import Store
from controller.store.instance import read_leadership, read_store_metadata
from controller.store.jobs.job_rows import find_job
from controller.store.migrations import OLDEST_READER, SCHEMA_TABLE, VERSION_TABLES, make_config
from controller.store.outbox.update_rows import read_counter, updates_after

POD = {
    "task": "job", "index": 3, "uid": "p3", "node": "n1", "phase": "Failed", "reason": "Error",
    "exit_code": 7, "finished_at": 44.0,
}  # fmt: skip
FIRST: list[tuple[str, dict[str, Any]]] = [
    ("position", {"id": 1, "identity": "me", "term": 7, "revision": 9, "epoch": "e", "seq": 3}),
    ("jobs", {"id": "j1", "owner_user": "ada", "namespace": "jobs", "spec": "{}",
              "desired": "ended", "state": "CANCELING", "attempt": 1, "uid": "u", "created_at": 1.0,
              "revision": 9}),
    ("job_labels", {"job_id": "j1", "name": "a", "value": "b"}),
    ("attempts", {"job_id": "j1", "attempt": 1, "uid": "u", "submitted_at": 1.5,
                  "ended_at": 50.0, "pods": json.dumps([POD])}),
    ("transitions", {"id": 5, "job_id": "j1", "attempt": 1, "at": 2.0, "state": "CANCELING"}),
]  # fmt: skip


def _as_it_was(connection: sa.Connection) -> None:
    command.upgrade(make_config(connection), "0001")
    for name, row in FIRST:
        table = sa.Table(name, sa.MetaData(), autoload_with=connection)
        values = dict(row)
        for column in ("spec", "pods"):
            if column in values:
                values[column] = json.loads(values[column])
        connection.execute(sa.insert(table).values(**values))


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


def _each_adds_only(connection: sa.Connection) -> None:
    config = make_config(connection)
    command.upgrade(config, "0005")
    before = _shape(connection)
    scripts = ScriptDirectory.from_config(config)
    for script in reversed(list(scripts.walk_revisions("0005", "head"))):
        command.upgrade(config, script.revision)
        after = _shape(connection)
        for table, columns in before.items():
            assert columns.items() <= after[table].items(), (script.revision, table)
            for name in after[table].keys() - columns.keys():
                # The previous version inserts rows without this column.
                assert after[table][name][1], (script.revision, table, name)
        before = after


async def test_migrations_only_add_so_that_the_version_before_goes_on_beside_them(
    empty_url: str,
) -> None:
    store = Store(empty_url)
    try:
        async with store.write() as transaction:
            await transaction.run_sync(_each_adds_only)
    finally:
        await store.close()


@pytest.mark.parametrize(
    ("schema", "oldest", "taken"),
    [
        (40, 0, True),  # a later release that only adds, with any number of migrations
        (1, 0, True),
        (40, 40, False),  # it removes something that this version needs
        (1, 1, False),
        (0, 1, True),  # as versions without a table for the schema version
        (0, 2, False),
    ],
)
async def test_a_later_version_says_whether_this_one_may_use_its_store(
    empty_url: str, schema: int, oldest: int, taken: bool
) -> None:
    store = Store(empty_url)
    try:
        await store.open()
        head = int(await version_in(store, SCHEMA_TABLE) or "")
        assert await version_in(store, "alembic_version") == OLDEST_READER
        said = {SCHEMA_TABLE: f"{head + schema:04}"}
        said |= {"alembic_version": f"{head + oldest:04}"} if oldest else {}
        async with store.write() as transaction:
            for table, version in said.items():
                await transaction.execute(sa.text(f"UPDATE {table} SET version_num = '{version}'"))
        if taken:
            await store.open()
        else:
            with pytest.raises(ValueError, match=max(said.values())):
                await store.open()
        for table, version in said.items():
            assert await version_in(store, table) == version
    finally:
        await store.close()


async def version_in(store: Store, table: str) -> str | None:
    async with store.read() as transaction:
        found: str | None = await transaction.scalar(sa.text(f"SELECT version_num FROM {table}"))
        return found


async def test_nothing_is_lost_on_the_way_to_these_tables(empty_url: str) -> None:
    store = Store(empty_url)
    try:
        async with store.write() as transaction:
            await transaction.run_sync(_as_it_was)
        await store.open()
        async with store.read() as transaction:
            assert (await read_leadership(transaction)).term == 7
            position = await read_store_metadata(transaction)
            assert (position.identity, position.revision, position.seq) == ("me", 9, 3)
            assert await read_counter(transaction, "updates") == 5
            assert [one.id for one in await updates_after(transaction, 0, limit=9)] == [5]
            record = await find_job(transaction, "j1")
            assert record is not None
            assert (record.uid, record.end_state, record.end_reason) == ("u", "SUCCESS", "asked")
            assert (record.stopping, record.evictions) == (False, 0)
            labels = await transaction.scalar(sa.text("SELECT count(*) FROM job_labels"))
            assert labels == 1
            run = (await transaction.execute(sa.text("SELECT * FROM runs"))).one()
            assert (run.pod_uid, run.rank, run.exit_code, run.ended_at) == ("p3", 3, 7, 44.0)
    finally:
        await store.close()
