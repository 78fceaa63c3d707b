"""Tests how the demo uses a user's own cluster: gateway addresses, names, and cleanup."""

from __future__ import annotations

import ipaddress
from pathlib import Path

from controller.kube.client import Kube
from controller.kube.kinds import NAMESPACES
from deploy.local.cluster_use import (
    delete_namespace,
    embedded,
    given,
    make_namespace,
    own_addresses,
)


def test_gateway_addresses_are_single_addresses_reachable_by_pods() -> None:
    for one in map(ipaddress.ip_network, own_addresses()):
        assert one.num_addresses == 1
        assert not one.is_loopback
        assert not one.is_link_local


def test_a_foreign_cluster_is_used_under_a_unique_instance_name() -> None:
    kubeconfig = Path("config")
    uses = [given(kubeconfig), given(kubeconfig), embedded(kubeconfig)]
    assert len({use.namespace for use in uses}) == 3
    assert len({use.instance for use in uses}) == 3
    assert dict(uses[0].settings)["FUMAROLE_CONTROLLER_FAIR_SHARE"] == "off"


async def test_the_namespace_of_a_run_is_deleted_afterwards(
    embedded_cluster_kubeconfig: Path,
) -> None:
    use = given(embedded_cluster_kubeconfig)
    async with Kube.connect(embedded_cluster_kubeconfig) as kube:
        before = {one["metadata"]["name"] for one in await kube.list(NAMESPACES)}
        await make_namespace(use)
        after = {one["metadata"]["name"] for one in await kube.list(NAMESPACES)}
        assert after - before == {use.namespace}
        await delete_namespace(use)
        await delete_namespace(use)
        for one in await kube.list(NAMESPACES):
            ours = one["metadata"]["name"] == use.namespace
            assert ours == ("deletionTimestamp" in one["metadata"])
