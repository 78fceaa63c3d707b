"""Fixtures for store tests: each test runs on SQLite and on PostgreSQL."""

from __future__ import annotations

from typing import Any

import pytest
import sqlalchemy as sa

from controller.store.database import Store
from tests.controller.new_stores import run_on_both

Statements = list[tuple[str, Any]]


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    run_on_both(metafunc)


@pytest.fixture
async def statements(store: Store) -> Statements:
    """Return the list to which the store's further statements are added, with their values."""
    given: Statements = []

    def note(_c: Any, _cursor: Any, statement: str, values: Any, *_: Any) -> None:
        given.append((statement, values))

    sa.event.listen(store._engine.sync_engine, "before_cursor_execute", note)
    return given
