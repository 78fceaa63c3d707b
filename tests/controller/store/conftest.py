"""Fixtures for store tests: each test runs on SQLite and on PostgreSQL."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.controller.new_stores import BOTH, new_store


@pytest.fixture(params=BOTH)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return new_store(request, tmp_path)


@pytest.fixture(params=BOTH)
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an unused database."""
    return new_store(request, tmp_path, empty=True)
