"""Fixtures for controller tests: a private store, a manual clock, and embedded clusters."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from controller.kube.client import Kube
from controller.store.database import Store
from controller.store.instance import ensure_position
from deploy.local.cluster import EmbeddedCluster
from shared.bus import connect
from tests.clock import Clock
from tests.controller.kube.api_server import Script, serving
from tests.controller.new_stores import new_store, run_on_both
from tests.controller.running import Controller, Routes, running
from tests.programs import RedisServer


@pytest.fixture
def clock() -> Clock:
    return Clock()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run tests with the marker ``both_stores`` on SQLite and on PostgreSQL."""
    if metafunc.definition.get_closest_marker("both_stores"):
        run_on_both(metafunc)


@pytest.fixture
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of a new store: SQLite, unless the test has the marker ``both_stores``."""
    return new_store(request, tmp_path)


@pytest.fixture
def empty_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Return the URL of an unused database, chosen likewise."""
    return new_store(request, tmp_path, empty=True)


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


@pytest_asyncio.fixture(loop_scope="module")
async def module_redis(redis_server: RedisServer) -> AsyncIterator[Redis]:
    """Provide a client of the module's Redis in the event loop of the module's cluster."""
    client = connect(redis_server.url)
    yield client
    await client.aclose()


@pytest_asyncio.fixture(loop_scope="module")
async def controller(
    cluster: EmbeddedCluster, redis_server: RedisServer, tmp_path: Path
) -> AsyncIterator[Controller]:
    """Run a controller for one test, as an installation of its own in the module's cluster."""
    one = Controller(
        tmp_path / "controller",
        kubeconfig=cluster.kubeconfig("controller"),
        redis_url=redis_server.url,
        instance=f"i{abs(hash(str(tmp_path))) % 10**8}",
    )
    async with running(one):
        yield one


@pytest.fixture
def routes(module_redis: Redis, controller: Controller) -> Routes:
    return Routes(module_redis, controller.instance)


@pytest.fixture
async def kube(script: Script, tmp_path: Path) -> AsyncIterator[Kube]:
    """Provide a client of an API server that plays the test's ``script``."""
    async with serving(script, tmp_path) as client:
        yield client


@pytest.fixture
async def own_cluster() -> AsyncIterator[EmbeddedCluster]:
    """Run a cluster for one test."""
    async with EmbeddedCluster() as running_cluster:
        yield running_cluster
