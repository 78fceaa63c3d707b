"""A cluster for the cases: the one that ``KUBECONFIG`` names, else an embedded one."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from kubernetes_asyncio import client, config

from deploy.local.cluster import EmbeddedCluster
from tests.conformance.calls import Kube, eventually


@pytest.fixture(scope="module")
def embedded() -> Iterator[EmbeddedCluster | None]:
    """The embedded cluster of this module, or None where ``KUBECONFIG`` names another."""
    if os.environ.get("KUBECONFIG"):
        yield None
        return
    cluster = EmbeddedCluster()
    asyncio.run(cluster.start())
    yield cluster
    asyncio.run(cluster.stop())


@pytest.fixture(scope="module")
def kubeconfig(embedded: EmbeddedCluster | None) -> Path:
    """The administrator's kubeconfig."""
    return embedded.kubeconfig("admin") if embedded else Path(os.environ["KUBECONFIG"])


@pytest.fixture(autouse=True)
def _tell_the_seed(embedded: EmbeddedCluster | None) -> None:
    """Put the seed where pytest shows it: beside the failure."""
    if embedded is not None:
        print(f"FUMAROLE_CLUSTER_SEED={embedded.seed}")


@pytest.fixture
async def kube(kubeconfig: Path) -> AsyncIterator[Kube]:
    """The APIs of the cluster, as the administrator."""
    configuration = client.Configuration()
    await config.load_kube_config(str(kubeconfig), client_configuration=configuration)
    async with client.ApiClient(configuration) as api:
        yield Kube(api)


@pytest.fixture
async def namespace(kube: Kube) -> AsyncIterator[str]:
    """A namespace of this test alone, with its ServiceAccount."""
    name = f"case-{secrets.token_hex(4)}"
    await kube.core.create_namespace({"metadata": {"name": name}})

    async def has_account() -> bool:
        accounts = await kube.core.list_namespaced_service_account(name)
        return any(account.metadata.name == "default" for account in accounts.items)

    await eventually(has_account)
    yield name
    await kube.core.delete_namespace(name)
