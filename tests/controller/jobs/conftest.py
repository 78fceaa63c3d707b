"""Fixtures of the tests that create objects of jobs on an embedded cluster."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from controller.jobs.cluster.job_objects import JobObjects
from tests.controller.jobs.two_accounts import TwoAccounts, open_two_accounts


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def both() -> AsyncIterator[TwoAccounts]:
    async with open_two_accounts() as accounts:
        yield accounts


@pytest.fixture
def instance(request: pytest.FixtureRequest) -> str:
    # Each test is a separate installation in the shared cluster.
    return f"t{abs(hash(request.node.name)) % 10**9}"


@pytest.fixture
def objects(both: TwoAccounts, instance: str) -> JobObjects:
    return JobObjects(both.kube, instance=instance)
