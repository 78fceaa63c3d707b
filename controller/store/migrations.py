"""The migration to this version's schema. It runs at every start, within one transaction.

A new database gets the current tables at once. An existing one is at least of 0.1.0, whose schema
is 0005: older ones were never released, and are refused. Missing tables, columns and indexes are
added. All others stay as they are, so that an older version can run beside a newer schema, during
an upgrade and after a rollback. A rollback may go back one release, however many schemas that is.
So a database stores two versions:

- ``schema_version``: its schema.
- ``alembic_version``: the schema of the oldest version that may still use it. It is left as that
  version wrote it; 0005, the last schema before migrations only added, if none did. A version that
  does not know the database's schema uses it if it knows this one. Versions of 0.1.0 without
  ``schema_version`` read only this one, and find what they know.

A later version that must remove something raises ``alembic_version`` to the oldest schema whose
programs do without it.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

import sqlalchemy as sa
from alembic.ddl.base import AddColumn
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from controller.store import postgresql, tables
from controller.store.errors import TableIsBusy

SCHEMA: Final = "0021"
"""This version's schema. Every change of the tables raises it. A column that is added to a table
may be null or has a default of the server, since older versions insert rows without it."""
OLDEST_READER: Final = "0005"
SCHEMA_TABLE: Final = "schema_version"
_READERS_TABLE: Final = "alembic_version"
VERSION_TABLES: Final = (SCHEMA_TABLE, _READERS_TABLE)
_COUNTERS: Final = (
    "updates",
    "updates_forgotten",
    "usage",
    "usage_forgotten",
    "usage_acknowledged",
)

TRIES: Final = 20
PAUSE_SECONDS: Final = 3.0

log = logging.getLogger(__name__)


class SchemaTooNew(ValueError):
    """A later version has changed this database so that this version cannot use it."""


def migrate(connection: sa.Connection) -> None:
    """Create the tables, or add what is missing, in the transaction of *connection*.

    Raises:
        SchemaTooNew: If a later version's schema excludes this version.
        ValueError: If the schema is older than that of any release, or of another program.
    """
    stored, oldest = _read(connection, SCHEMA_TABLE), _read(connection, _READERS_TABLE)
    current = _schema_of(stored, oldest)
    if current is None:
        tables.metadata.create_all(connection, checkfirst=False)
        _insert_first_rows(connection)
    elif current > SCHEMA:
        log.warning("the store's schema is of a later version", extra={"schema": current})
        return
    elif current < SCHEMA:
        _add_missing(connection, current)
    if stored != SCHEMA:
        _write(connection, SCHEMA_TABLE, SCHEMA)
    if oldest is None:
        _write(connection, _READERS_TABLE, OLDEST_READER)


def _schema_of(stored: str | None, oldest: str | None) -> str | None:
    """Return the schema of a store with these two versions; raise if it excludes this version."""
    if oldest is None:
        return stored
    if oldest < OLDEST_READER:
        raise ValueError(f"the store's schema is {oldest}, older than that of any release")
    if oldest <= SCHEMA:
        return stored or oldest
    # Versions without schema_version wrote their own schema here; the next one only adds.
    if (stored or "") > SCHEMA or oldest != f"{int(SCHEMA) + 1:04}":
        later = max(oldest, stored or "")
        text = f"the store's schema is {later}, of a later version; this one knows {SCHEMA}"
        raise SchemaTooNew(text)
    return oldest


async def migrate_postgresql(engine: AsyncEngine) -> None:
    """Migrate while other processes use the database; wait for tables that they have locked.

    Raises:
        TableIsBusy: If a table is still locked after a minute or two.
        ValueError: As :func:`migrate` does.
    """
    for left in reversed(range(TRIES)):
        try:
            await _try_to_migrate(engine)
            return
        except TableIsBusy:
            if not left:
                raise
        await asyncio.sleep(PAUSE_SECONDS)


async def _try_to_migrate(engine: AsyncEngine) -> None:
    async with engine.begin() as connection:
        await connection.execute(postgresql.set_locally(postgresql.WITHOUT_LIMITS))
        await connection.execute(postgresql.LOCK_MIGRATION)
        await connection.execute(postgresql.WAIT_BRIEFLY)
        try:
            await connection.run_sync(migrate)
        except DBAPIError as error:
            if not postgresql.waited_in_vain(error):
                raise
            raise TableIsBusy("a table that the migration changes is in use") from None


def _insert_first_rows(connection: sa.Connection) -> None:
    """Insert the rows that exist once."""
    leadership = {"id": 1, "term": 0, "holder": "", "seen_at": 0.0}
    connection.execute(sa.insert(tables.leadership).values(leadership))
    maintenance = {"id": 1, "mode": "running", "since": 0.0}
    connection.execute(sa.insert(tables.maintenance).values(maintenance))
    counters = [{"name": name, "value": 0} for name in _COUNTERS]
    connection.execute(sa.insert(tables.counters), counters)


def _add_missing(connection: sa.Connection, schema: str) -> None:
    """Add the tables, columns and indexes that a database of this older *schema* lacks."""
    there = sa.inspect(connection)
    known = there.get_table_names()
    if tables.leadership.name not in known:
        raise ValueError(f"{_READERS_TABLE} is of another program: the store's tables are not here")
    for table in tables.metadata.sorted_tables:
        if table.name in known:
            _add_to_table(connection, there, table)
        else:
            table.create(connection)
    if schema < "0006":
        # If another attempt is about to follow, that decision has counted the retries.
        attempts, jobs = tables.attempts.c, tables.jobs.c
        follows = sa.exists().where(
            jobs.id == attempts.job_id, jobs.attempt == attempts.attempt, jobs.renewal.is_not(None)
        )
        connection.execute(sa.update(tables.attempts).where(follows).values(used=0))


def _add_to_table(connection: sa.Connection, there: sa.Inspector, table: sa.Table) -> None:
    columns = {one["name"] for one in there.get_columns(table.name)}
    indexes = {one["name"] for one in there.get_indexes(table.name)}
    for column in table.columns:
        if column.name not in columns:
            connection.execute(AddColumn(table.name, column))
    for index in sorted(table.indexes, key=lambda index: str(index.name)):
        if index.name not in indexes:
            index.create(connection)


def _versions(table: str) -> sa.Table:
    return sa.Table(table, sa.MetaData(), sa.Column("version_num", sa.String(32), primary_key=True))


def _read(connection: sa.Connection, table: str) -> str | None:
    if not sa.inspect(connection).has_table(table):
        return None
    version: str | None = connection.scalar(sa.select(_versions(table)))
    return version


def _write(connection: sa.Connection, table: str, version: str) -> None:
    versions = _versions(table)
    versions.create(connection, checkfirst=True)
    connection.execute(sa.delete(versions))
    connection.execute(sa.insert(versions).values(version_num=version))
