"""Fixtures: an embedded cluster for the tests of a module."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator

import pytest

from deploy.local.cluster import EmbeddedCluster
from deploy.local.cluster.client import NAMESPACES, Client, Resource
from deploy.local.cluster.kubeconfig import read_kubeconfig

ACCOUNTS = Resource("v1", "serviceaccounts")


@pytest.fixture(scope="module")
def cluster() -> Iterator[EmbeddedCluster]:
    """Run a cluster for one module."""
    made = EmbeddedCluster()
    asyncio.run(made.start())
    yield made
    asyncio.run(made.stop())


@pytest.fixture
async def client(cluster: EmbeddedCluster) -> AsyncIterator[Client]:
    """Provide the administrator's client; the seed is printed for a failure's reader."""
    print(f"FUMAROLE_CLUSTER_SEED={cluster.seed}")
    async with Client(read_kubeconfig(cluster.kubeconfig("admin"))) as made:
        yield made


@pytest.fixture
async def namespace(client: Client) -> AsyncIterator[str]:
    """Create a namespace for one test, with its ServiceAccount."""
    name = f"test-{secrets.token_hex(4)}"
    await client.create(NAMESPACES, "", {"metadata": {"name": name}})
    async with asyncio.timeout(10):
        while await client.get(ACCOUNTS, name, "default") is None:
            await asyncio.sleep(0.02)
    yield name
    await client.delete(NAMESPACES, "", name)
