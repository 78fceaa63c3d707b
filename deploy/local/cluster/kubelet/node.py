"""The Node object: registered at the start, and kept alive by a Lease."""

import asyncio
import logging
import os
import platform
from datetime import UTC, datetime
from typing import Final

from deploy.local.cluster.client import NODES, Client, Object, Refused, Resource

_LOG: Final = logging.getLogger(__name__)
_LEASES: Final = Resource("coordination.k8s.io/v1", "leases")
_LEASE_NAMESPACE: Final = "kube-node-lease"
_RENEW_SECONDS: Final = 10.0
VERSION: Final = "v1.36.2+embedded"


POD_NETWORK_LABEL: Final = "embedded-cluster/pod-network"
"""A label of the Node. ``filtered``: Pods reach each other as NetworkPolicies allow. ``open``:
policies are not enforced. ``none``: each Pod is alone, or has this machine's network.
"""


def make_node(
    name: str, port: int, *, cpus: int, memory_bytes: int, pods: int, network: str
) -> Object:
    """Return the Node whose kubelet listens at *port*."""
    now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    amounts = {
        "cpu": str(cpus),
        "memory": f"{memory_bytes // 1024}Ki",
        "pods": str(pods),
        "ephemeral-storage": "100Gi",
    }
    conditions = [
        ("MemoryPressure", "False", "KubeletHasSufficientMemory"),
        ("DiskPressure", "False", "KubeletHasNoDiskPressure"),
        ("PIDPressure", "False", "KubeletHasSufficientPID"),
        ("Ready", "True", "KubeletReady"),
    ]
    labels = {
        "kubernetes.io/hostname": name,
        "kubernetes.io/os": "linux",
        "kubernetes.io/arch": {"x86_64": "amd64", "aarch64": "arm64"}.get(
            platform.machine(), platform.machine()
        ),
        POD_NETWORK_LABEL: network,
    }
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [
                {
                    "type": kind,
                    "status": value,
                    "reason": reason,
                    "lastHeartbeatTime": now,
                    "lastTransitionTime": now,
                }
                for kind, value, reason in conditions
            ],
            "addresses": [
                {"type": "InternalIP", "address": "127.0.0.1"},
                {"type": "Hostname", "address": name},
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
            "nodeInfo": _node_info(),
        },
    }


def this_machine() -> tuple[int, int]:
    """Return the number of CPUs and the bytes of memory of this machine."""
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return os.cpu_count() or 1, memory


async def register(client: Client, node: Object) -> None:
    """Create the Node, or take over an existing one of its name, and write its status."""
    await client.ensure(NODES, "", {k: v for k, v in node.items() if k != "status"})
    await client.patch(NODES, "", node["metadata"]["name"], {"status": node["status"]}, "status")


async def renew_forever(client: Client, name: str) -> None:
    """Renew the node's Lease until cancelled."""
    lease: Object = {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": _LEASE_NAMESPACE},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40},
    }
    while True:
        try:
            await client.ensure(_LEASES, _LEASE_NAMESPACE, lease)
            now = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
            await client.patch(_LEASES, _LEASE_NAMESPACE, name, {"spec": {"renewTime": now}})
        except (Refused, OSError, TimeoutError) as error:
            _LOG.warning("lease: %s", error)
        await asyncio.sleep(_RENEW_SECONDS)


def _node_info() -> Object:
    return {
        "machineID": "",
        "systemUUID": "",
        "bootID": "",
        "kernelVersion": platform.release(),
        "osImage": "the machine that this runs on",
        "containerRuntimeVersion": "embedded://1",
        "kubeletVersion": VERSION,
        "kubeProxyVersion": "",
        "operatingSystem": "linux",
        "architecture": {"x86_64": "amd64", "aarch64": "arm64"}.get(
            platform.machine(), platform.machine()
        ),
    }
