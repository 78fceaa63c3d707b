"""New stores for tests: copies of one that the migrations have made once, since they take time."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Final

import pytest
import sqlalchemy as sa

from controller.store.migrations import migrate
from tests.controller.postgres import Postgres

BOTH: Final = ["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("postgres"))]
"""The parameters of a fixture that makes a store of each kind."""


def new_store(request: pytest.FixtureRequest, folder: Path, *, empty: bool = False) -> str:
    """Return the URL of a store of the kind that the fixture's parameter names; *empty*, no tables.

    It goes with the fixture: a database of PostgreSQL is hundreds of files, and a server with
    those of all tests takes half a minute to be removed.
    """
    if request.param == "sqlite":
        return f"sqlite:///{folder}/store.db" if empty else new_sqlite(folder)
    postgres: Postgres = request.getfixturevalue("postgres")
    url = postgres.new_database() if empty else postgres.new_store()
    request.addfinalizer(lambda: postgres.drop(url))
    return url


def new_sqlite(folder: Path) -> str:
    """Return the URL of a store in *folder*; it has its tables and no rows in them."""
    path = folder / "store.db"
    path.write_bytes(_migrated())
    return f"sqlite:///{path}"


@cache
def _migrated() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "store.db"
        engine = sa.create_engine(f"sqlite:///{path}")
        with engine.begin() as connection:
            migrate(connection)
        engine.dispose()
        return path.read_bytes()
