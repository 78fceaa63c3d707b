"""Migrations to this version's schema. They run at every start, within one transaction.

A new database gets the current tables at once. An existing one is at least of 0.1.0, whose schema
is 0005: older ones were never released, and have no migrations.

Migrations only add (from 0006 on; a test checks this), so that an older version can run beside a
newer schema, during an upgrade and after a rollback. A rollback may go back one release, however
many migrations that is. So a database stores two versions:

- ``schema_version``: its schema, from which Alembic continues.
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
from functools import cache
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.exc import DBAPIError
from sqlalchemy.ext.asyncio import AsyncEngine

from controller.store import postgresql, tables
from controller.store.errors import TableIsBusy

_FOLDER: Final = Path(__file__).parent
SCHEMA_TABLE: Final = "schema_version"
VERSION_TABLES: Final = (SCHEMA_TABLE, "alembic_version")
OLDEST_READER: Final = "0005"
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
    """Create the tables, or apply the missing migrations, in the transaction of *connection*.

    Raises:
        SchemaTooNew: If a later version's schema excludes this version.
        ValueError: If the schema is older than that of any release.
    """
    # Alembic logs at every start that there is nothing to do.
    logging.getLogger("alembic").setLevel(logging.WARNING)
    scripts = _scripts()
    known = {script.revision for script in scripts.walk_revisions()}
    head = scripts.get_current_head() or ""
    position = MigrationContext.configure(connection, opts={"version_table": SCHEMA_TABLE})
    readers = MigrationContext.configure(connection)
    current, oldest = position.get_current_revision(), readers.get_current_revision()
    if oldest is None and current is None:
        _create_tables(connection)
        position.stamp(scripts, head)
        readers.stamp(scripts, OLDEST_READER)
        return
    if oldest is not None and oldest < OLDEST_READER:
        raise ValueError(f"the store's schema is {oldest}, older than that of any release")
    if oldest is not None and oldest not in known:
        # Versions without schema_version wrote their own schema here; the next one only adds.
        if current not in known | {None} or not _is_next(oldest, head):
            later = max(oldest, current or "")
            text = f"the store's schema is {later}, of a later version; this one knows {head}"
            raise SchemaTooNew(text)
        current = oldest
    elif current is None and oldest is not None:
        position.stamp(scripts, oldest)
        current = oldest
    if current is not None and current not in known:
        log.warning("the store's schema is of a later version", extra={"schema": current})
        return
    if current != head:
        command.upgrade(make_config(connection), "head")
    if oldest is None:
        readers.stamp(scripts, OLDEST_READER)


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


def _create_tables(connection: sa.Connection) -> None:
    """Create all tables, and the rows that exist once."""
    tables.metadata.create_all(connection, checkfirst=False)
    leadership = {"id": 1, "term": 0, "holder": "", "seen_at": 0.0}
    connection.execute(sa.insert(tables.leadership).values(leadership))
    maintenance = {"id": 1, "mode": "running", "since": 0.0}
    connection.execute(sa.insert(tables.maintenance).values(maintenance))
    counters = [{"name": name, "value": 0} for name in _COUNTERS]
    connection.execute(sa.insert(tables.counters), counters)


def _is_next(schema: str, head: str) -> bool:
    return schema.isdecimal() and int(schema) == int(head) + 1


def of_job(**options: Any) -> sa.Column[str]:
    """Return a job_id column for a new table whose rows are deleted with their job."""
    of = sa.ForeignKey("jobs.id", ondelete="CASCADE")
    return sa.Column("job_id", sa.String(40), of, **options)


@cache
def _scripts() -> ScriptDirectory:
    """Return the migrations, read once."""
    return ScriptDirectory.from_config(_config())


def make_config(connection: sa.Connection) -> Config:
    """Return Alembic's configuration for *connection*, without an ini file."""
    config = _config()
    config.attributes["connection"] = connection
    return config


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    return config
