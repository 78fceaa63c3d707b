"""The use of the cluster: the embedded one, or a given one that must stay as it is.

In a given cluster everything is in a namespace that is made for this run and deleted with it. The
instance has a name of its own, so an existing Fumarole is not touched.
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
"""The usual networks of a real cluster's pods (RFC 1918). This machine needs a route to them."""

_TOOLS: Final = Path(__file__).parent / "apps/tools.yaml"
_OWNERS: Final = Path(__file__).parent / "apps/owners.yaml"


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterUse:
    """The parameters of the cluster for the programs.

    ``kubeconfig`` is the controller's. ``pod_networks`` are the networks in which pods are reached.
    ``settings`` are further settings of the controller for this cluster.
    """

    kubeconfig: Path
    pod_networks: str
    instance: str
    namespace: str
    settings: tuple[tuple[str, str], ...] = ()


def embedded(kubeconfig: Path) -> ClusterUse:
    """Return how the embedded cluster is used. It belongs to this run alone."""
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
    """Return the use of a given cluster: the gateway runs on this machine, not in a pod."""
    name = f"fumarole-local-{secrets.token_hex(4)}"
    return ClusterUse(
        kubeconfig=kubeconfig,
        pod_networks=pod_networks or PRIVATE_NETWORKS,
        instance=name,
        namespace=name,
        settings=(
            ("FUMAROLE_CONTROLLER_METRICS_SECONDS", "15"),
            # Namespaces and queues of owners would outlive the run.
            ("FUMAROLE_CONTROLLER_FAIR_SHARE", "off"),
            ("FUMAROLE_CONTROLLER_GATEWAY_NETWORKS", ",".join(own_addresses()) or "none"),
            # Most images run as root. The kubelet would not start them otherwise.
            ("FUMAROLE_CONTROLLER_RUN_AS_USER", "1000"),
        ),
    )


def own_addresses() -> list[str]:
    """Return the addresses of this machine as networks. It dials pods from one of them."""
    return sorted({str(ipaddress.ip_network(one)) for one in _addresses()})


async def make_namespace(use: ClusterUse) -> None:
    """Make the namespace of this run.

    Raises:
        KubeError: If the API server refuses or cannot be reached.
    """
    async with Kube.connect(use.kubeconfig) as kube:
        await kube.create(NAMESPACES, {"metadata": {"name": use.namespace}})


async def delete_namespace(use: ClusterUse) -> None:
    """Delete the namespace of this run, and with it everything that was made in it.

    Raises:
        KubeError: If the API server refuses or cannot be reached.
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
