"""Fixtures for controller tests: a private store, a manual clock, and embedded clusters."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from controller.kube.client import Kube
from controller.store.database import Store
from controller.store.instance import ensure_position
from deploy.local.cluster import EmbeddedCluster
from tests.controller.new_stores import new_sqlite


class Clock:
    """A clock in Unix seconds that advances only when a test sets it."""

    def __init__(self, now: float = 1_750_000_000.0) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store_url(tmp_path: Path) -> str:
    return new_sqlite(tmp_path)


@pytest.fixture
async def store(store_url: str) -> AsyncIterator[Store]:
    opened = Store(store_url)
    await opened.open()
    async with opened.write() as transaction:
        await ensure_position(transaction, new_identity="test")
    yield opened
    await opened.close()


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    """Run a cluster for the tests of one module, which share its event loop."""
    async with EmbeddedCluster() as running_cluster:
        yield running_cluster


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def admin(cluster: EmbeddedCluster) -> AsyncIterator[Kube]:
    """Provide the administrator's client of the module's cluster."""
    async with Kube.connect(cluster.kubeconfig("admin")) as kube:
        yield kube


@pytest.fixture
async def own_cluster() -> AsyncIterator[EmbeddedCluster]:
    """Run a cluster for one test."""
    async with EmbeddedCluster() as running_cluster:
        yield running_cluster
