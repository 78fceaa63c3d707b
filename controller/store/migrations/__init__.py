"""How a database becomes what this version needs. Runs at every start, within one transaction.

Migrations only add (from 0006 on; a test sees to it), so that the version before runs beside a
schema that is one ahead: during an upgrade, and after a rollback.
"""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory

_FOLDER: Final = Path(__file__).parent
MOST_AHEAD: Final = 1

log = logging.getLogger(__name__)


class SchemaTooNew(ValueError):
    """A later version has changed this database in ways that this one does not know."""


def migrate(connection: sa.Connection) -> None:
    """Apply what is missing, within the transaction of *connection*.

    Raises:
        SchemaTooNew: If the database is two migrations ahead of this version, or more.
    """
    # It tells at every start that there was nothing to do.
    logging.getLogger("alembic").setLevel(logging.WARNING)
    config = make_config(connection)
    scripts = ScriptDirectory.from_config(config)
    head = scripts.get_current_head() or ""
    current = MigrationContext.configure(connection).get_current_revision()
    known = {script.revision for script in scripts.walk_revisions()}
    if current is None or current in known:
        command.upgrade(config, "head")
        return
    if not (current.isdecimal() and 0 < int(current) - int(head) <= MOST_AHEAD):
        text = f"the store's schema is {current}, of a later version; this one knows {head}"
        raise SchemaTooNew(text)
    log.warning("the store's schema is of the next version", extra={"schema": current})


def make_config(connection: sa.Connection) -> Config:
    """Return Alembic's configuration for *connection*; there is no ini file."""
    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
