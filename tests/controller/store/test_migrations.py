"""Tests which versions of the schema may be opened."""

from __future__ import annotations

import hashlib

import pytest
import sqlalchemy as sa

from controller.store import tables
from controller.store.database import Store
from controller.store.migrations import OLDEST_READER, SCHEMA, SCHEMA_TABLE


def test_a_change_of_the_tables_raises_the_schema() -> None:
    # A store of the same schema is not compared with the tables, and would not get the change.
    statements = list[str]()

    def note(statement: sa.schema.DDLElement, *_: object, **__: object) -> None:
        statements.append(" ".join(str(statement.compile(dialect=engine.dialect)).split()))

    engine = sa.create_mock_engine("postgresql+asyncpg://", note)
    tables.metadata.create_all(engine, checkfirst=False)
    digest = hashlib.sha256("\n".join(sorted(statements)).encode()).hexdigest()
    assert (SCHEMA, digest[:8]) == ("0021", "1b30c25d")


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
async def test_a_later_schema_states_whether_this_version_may_use_it(
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


async def test_a_store_from_before_the_first_release_is_refused(empty_url: str) -> None:
    store = Store(empty_url)
    try:
        await store.open()
        async with store.write() as transaction:
            await transaction.execute(sa.text("DELETE FROM schema_version"))
            await transaction.execute(sa.text("UPDATE alembic_version SET version_num = '0004'"))
        with pytest.raises(ValueError, match="0004, older than that of any release"):
            await store.open()
    finally:
        await store.close()


async def test_a_database_of_another_program_gets_no_tables(empty_url: str) -> None:
    store = Store(empty_url)
    try:
        async with store.write() as transaction:
            for statement in (
                "CREATE TABLE alembic_version (version_num VARCHAR(32))",
                "INSERT INTO alembic_version VALUES ('0012')",
            ):
                await transaction.execute(sa.text(statement))
        with pytest.raises(ValueError, match="alembic_version is of another program"):
            await store.open()
        async with store.read() as transaction:
            names = await transaction.run_sync(lambda one: sa.inspect(one).get_table_names())
        assert names == ["alembic_version"]
    finally:
        await store.close()
