"""Provides new stores: copies of one migrated store, because migrations take time."""

from __future__ import annotations

import os
import tempfile
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import cache
from pathlib import Path
from typing import Final

import pytest
import sqlalchemy as sa

from controller.store.database import Store
from controller.store.instance import ensure_position, raise_term
from controller.store.migrations import migrate
from tests.controller.postgres import Postgres

BOTH: Final = ["sqlite", pytest.param("postgresql", marks=pytest.mark.needs("postgres"))]
"""The parameters of a fixture that makes a store of each kind."""


def run_on_both(metafunc: pytest.Metafunc) -> None:
    """Run a test once with each kind of store, unless the test chooses the kind itself."""
    chosen = [mark.args[0] for mark in metafunc.definition.iter_markers("parametrize")]
    for name in ("store_url", "empty_url"):
        if name in metafunc.fixturenames and name not in chosen:
            metafunc.parametrize(name, BOTH, indirect=True)


def new_store(request: pytest.FixtureRequest, folder: Path, *, empty: bool = False) -> str:
    """Return the URL of a store of the fixture's kind, by default SQLite.

    *empty* leaves out the tables.

    The store ends with the fixture. A PostgreSQL database has hundreds of files, and removing a
    server with the databases of all tests takes half a minute.
    """
    if getattr(request, "param", "sqlite") == "sqlite":
        return f"sqlite:///{folder}/store.db" if empty else new_sqlite(folder)
    postgres: Postgres = request.getfixturevalue("postgres")
    url = postgres.new_database() if empty else postgres.new_store()
    request.addfinalizer(lambda: postgres.drop(url))
    return url


def new_sqlite(folder: Path) -> str:
    """Return the URL of a store in *folder*, with its tables and without rows."""
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


@asynccontextmanager
async def leading_store(folder: Path, name: str = "store") -> AsyncIterator[tuple[Store, int]]:
    """Yield a new SQLite store with an identity of its own, and the term of its leader."""
    store = Store(f"sqlite:///{folder}/{name}.db")
    await store.open()
    async with store.write() as transaction:
        await ensure_position(transaction, new_identity=os.urandom(4).hex())
        term = await raise_term(transaction)
    yield store, term
    await store.close()
