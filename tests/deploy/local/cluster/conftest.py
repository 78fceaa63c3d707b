"""An embedded cluster for the tests of a module."""

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
    """A running cluster of this module's own."""
    made = EmbeddedCluster()
    asyncio.run(made.start())
    yield made
    asyncio.run(made.stop())


@pytest.fixture
async def client(cluster: EmbeddedCluster) -> AsyncIterator[Client]:
    """The administrator's client; the seed is printed for whoever reads a failure."""
    print(f"FUMAROLE_CLUSTER_SEED={cluster.seed}")
    async with Client(read_kubeconfig(cluster.kubeconfig("admin"))) as made:
        yield made


@pytest.fixture
async def namespace(client: Client) -> AsyncIterator[str]:
    """A namespace of this test alone, with its ServiceAccount."""
    name = f"test-{secrets.token_hex(4)}"
    await client.create(NAMESPACES, "", {"metadata": {"name": name}})
    async with asyncio.timeout(10):
        while await client.get(ACCOUNTS, name, "default") is None:
            await asyncio.sleep(0.02)
    yield name
    await client.delete(NAMESPACES, "", name)
