"""How the programs use their cluster: the embedded one, or one that is somebody's and stays so.

In a cluster that was given everything is in a namespace that is made for this run and deleted with
it, under an instance's name of its own: a Fumarole that is there already is not touched.
"""

from __future__ import annotations

import ipaddress
import secrets
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import psutil

from controller.kube.client import Kube
from controller.kube.kinds import NAMESPACES
from deploy.local.cluster import POD_NETWORK

PRIVATE_NETWORKS: Final = "10.0.0.0/8,172.16.0.0/12,192.168.0.0/16"
"""Where a real cluster's pods usually are (RFC 1918); this machine must be able to reach them."""

_TOOLS: Final = Path(__file__).parent / "apps/tools.yaml"
_OWNERS: Final = Path(__file__).parent / "apps/owners.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterUse:
    """What the programs are told of their cluster.

    ``kubeconfig`` is the controller's, ``pod_networks`` are those in which pods are reached,
    ``settings`` are what the controller needs to know of this cluster beside these.
    """

    kubeconfig: Path
    pod_networks: str
    instance: str
    namespace: str
    settings: tuple[tuple[str, str], ...] = ()


def embedded(kubeconfig: Path) -> ClusterUse:
    """Return how the embedded cluster is used, which is this run's alone."""
    return ClusterUse(
        kubeconfig=kubeconfig,
        pod_networks=POD_NETWORK,
        instance="demo",
        namespace="default",
        settings=(
            ("FUMAROLE_CONTROLLER_METRICS_SECONDS", "5"),
            ("FUMAROLE_CONTROLLER_OWNERS_FILE", str(_OWNERS)),
            ("FUMAROLE_CONTROLLER_TOOLS_FILE", str(_TOOLS)),
            ("FUMAROLE_CONTROLLER_VOLUMES", "home=home"),
        ),
    )


def given(kubeconfig: Path, pod_networks: str | None = None) -> ClusterUse:
    """Return how somebody's cluster is used: the gateway is no pod of it, but on this machine."""
    name = f"fumarole-local-{secrets.token_hex(4)}"
    return ClusterUse(
        kubeconfig=kubeconfig,
        pod_networks=pod_networks or PRIVATE_NETWORKS,
        instance=name,
        namespace=name,
        settings=(
            ("FUMAROLE_CONTROLLER_METRICS_SECONDS", "15"),
            # Owners' namespaces and queues would outlive the run.
            ("FUMAROLE_CONTROLLER_FAIR_SHARE", "off"),
            ("FUMAROLE_CONTROLLER_GATEWAY_NETWORKS", ",".join(own_addresses()) or "none"),
            # Images whose user is root, as most are, would not be let start otherwise.
            ("FUMAROLE_CONTROLLER_RUN_AS_USER", "1000"),
        ),
    )


def own_addresses() -> list[str]:
    """Return this machine's own addresses, each as a network: from one of them it dials pods."""
    return sorted({str(ipaddress.ip_network(one)) for one in _addresses()})


async def make_namespace(use: ClusterUse) -> None:
    """Make the namespace of this run.

    Raises:
        KubeError: If the API server refuses or is not reached.
    """
    async with Kube.connect(use.kubeconfig) as kube:
        await kube.create(NAMESPACES, {"metadata": {"name": use.namespace}})


async def delete_namespace(use: ClusterUse) -> None:
    """Have the namespace of this run deleted, and with it everything that was made in it.

    Raises:
        KubeError: If the API server refuses or is not reached.
    """
    async with Kube.connect(use.kubeconfig) as kube:
        await kube.delete(NAMESPACES, use.namespace)


def _addresses() -> Iterator[ipaddress.IPv4Address | ipaddress.IPv6Address]:
    for each in psutil.net_if_addrs().values():
        for one in each:
            try:
                address = ipaddress.ip_address(one.address)
            except ValueError:
                continue  # a MAC address
            if not address.is_loopback and not address.is_link_local:
                yield address
