"""Everything about the store is tried on both databases."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.controller.new_stores import BOTH, new_store


@pytest.fixture(params=BOTH)
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return new_store(request, tmp_path)


@pytest.fixture(params=BOTH)
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A database that nothing has used yet."""
    return new_store(request, tmp_path, empty=True)
