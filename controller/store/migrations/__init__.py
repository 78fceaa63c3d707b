"""How a database becomes what this version needs. Runs at every start, within one transaction."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Final

import sqlalchemy as sa
from alembic import command
from alembic.config import Config

_FOLDER: Final = Path(__file__).parent


def migrate(connection: sa.Connection) -> None:
    """Apply what is missing, within the transaction of *connection*."""
    # It tells at every start that there was nothing to do.
    logging.getLogger("alembic").setLevel(logging.WARNING)
    command.upgrade(make_config(connection), "head")


def make_config(connection: sa.Connection) -> Config:
    """Return Alembic's configuration for *connection*; there is no ini file."""
    config = Config()
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config
