"""How a database becomes what this version needs. Runs at every start, within one transaction.

Migrations only add (from 0006 on; a test sees to it), so that an older version runs beside a newer
schema: during an upgrade, and after a rollback. What may go back is a release, however many
migrations it was behind, so a database says two things:

- ``schema_version``: its schema, which Alembic goes on from.
- ``alembic_version``: the schema of an older version that may still use it. It is left as that
  version wrote it; 0005, the last schema before migrations only added, where none did. A version
  that does not know the database's schema uses it if it knows this one. Those of 0.1.0 that have no
  ``schema_version`` read this one alone, and find what they know.

A later version that has to take something away raises ``alembic_version`` to the oldest schema
whose programs do without it.
"""

from __future__ import annotations

import logging
from functools import cache
from pathlib import Path
from typing import Any, Final

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

_FOLDER: Final = Path(__file__).parent
SCHEMA_TABLE: Final = "schema_version"
VERSION_TABLES: Final = (SCHEMA_TABLE, "alembic_version")
OLDEST_READER: Final = "0005"

log = logging.getLogger(__name__)


class SchemaTooNew(ValueError):
    """A later version has changed this database in ways that this one does not know."""


def migrate(connection: sa.Connection) -> None:
    """Apply what is missing, within the transaction of *connection*.

    Raises:
        SchemaTooNew: If a later version's database is not for this one to use any more.
    """
    # It tells at every start that there was nothing to do.
    logging.getLogger("alembic").setLevel(logging.WARNING)
    scripts = _scripts()
    known = {script.revision for script in scripts.walk_revisions()}
    head = scripts.get_current_head() or ""
    position = MigrationContext.configure(connection, opts={"version_table": SCHEMA_TABLE})
    readers = MigrationContext.configure(connection)
    current, oldest = position.get_current_revision(), readers.get_current_revision()
    if oldest is not None and oldest not in known:
        # Versions without schema_version wrote their own schema here; one more only added.
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
    if oldest is None or oldest < OLDEST_READER:
        readers.stamp(scripts, OLDEST_READER)


def _is_next(schema: str, head: str) -> bool:
    return schema.isdecimal() and int(schema) == int(head) + 1


def of_job(**options: Any) -> sa.Column[str]:
    """Return the column of a new table by which its rows go with their job."""
    of = sa.ForeignKey("jobs.id", ondelete="CASCADE")
    return sa.Column("job_id", sa.String(40), of, **options)


@cache
def _scripts() -> ScriptDirectory:
    """Return the migrations, which are read once."""
    return ScriptDirectory.from_config(_config())


def make_config(connection: sa.Connection) -> Config:
    """Return Alembic's configuration for *connection*; there is no ini file."""
    config = _config()
    config.attributes["connection"] = connection
    return config


def _config() -> Config:
    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    return config
