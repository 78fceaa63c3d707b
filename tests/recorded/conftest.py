"""What the tests of recordings share: a PostgreSQL of their own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.controller.postgres import Postgres, running_postgres


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL of this session's own; tests that use it are marked ``needs("postgres")``."""
    with running_postgres() as server:
        yield server
