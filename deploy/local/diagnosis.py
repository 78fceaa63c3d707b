"""Finds out why an app cannot be used, as far as that is possible from this machine.

In a given cluster most failures are outside of Fumarole: a pod is not made or not scheduled, an
image is not pulled, this machine has no route to the pods, or the API server cannot enter a
container. Each sentence names the object and the address to look at.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

from controller.kube.client import Kube
from controller.kube.errors import KubeError
from controller.kube.kinds import PODS
from controller.volcano.names import JOB_CONTAINER, JOB_LABEL
from deploy.local.apps.catalogue import App
from shared.settings import networks

DIAL_SECONDS: Final = 3.0
ANSWERS: Final = "answers from this machine"
REFUSES: Final = "connection refused"
REFUSED_SHELL: Final = "cannot open a shell: "
_NO_ROUTE: Final = (errno.ENETUNREACH, errno.EHOSTUNREACH)

Object = Mapping[str, Any]


class Diagnosis:
    """Explains why a job of this run cannot be used.

    Args:
        kubeconfig: An administrator's kubeconfig of the cluster.
        namespace: The namespace of the run's jobs.
        pod_networks: The networks in which the gateway dials pods.
        hub_log: Returns what the terminal hub has logged.
    """

    def __init__(
        self, *, kubeconfig: Path, namespace: str, pod_networks: str, hub_log: Callable[[], str]
    ) -> None:
        self._kubeconfig = kubeconfig
        self._namespace = namespace
        self._pod_networks = pod_networks
        self._hub_log = hub_log

    async def explain(self, job: str, app: App) -> list[str]:
        """Return the findings, one sentence each; never raises."""
        try:
            async with Kube.connect(self._kubeconfig) as kube:
                pods = await kube.list(PODS, self._namespace, labels=f"{JOB_LABEL}={job}")
        except KubeError as error:
            return [f"the pods of the job cannot be listed: {error}"]
        if not pods:
            told = f"`kubectl -n {self._namespace} describe vcjob j-{job}` says why"
            return [f"no pod was made in {self._namespace}: {told}"]
        found: list[str] = []
        for pod in pods:
            found += await self._of_pod(pod, job, app)
        return found

    async def unreached(self) -> dict[str, str]:
        """Return the pods that run and cannot be reached from this machine: UID and reason.

        A pod that refuses a connection can be reached: its program may only be starting.

        Raises:
            KubeError: If the pods cannot be listed.
        """
        async with Kube.connect(self._kubeconfig) as kube:
            pods = await kube.list(PODS, self._namespace, labels=JOB_LABEL)
        running = [pod for pod in pods if (pod.get("status") or {}).get("phase") == "Running"]
        found = await asyncio.gather(*(self._why_unreached(pod) for pod in running))
        return {
            pod["metadata"]["uid"]: why
            for pod, why in zip(running, found, strict=True)
            if why is not None
        }

    async def _why_unreached(self, pod: Object) -> str | None:
        where, job = _where(pod), pod["metadata"]["labels"][JOB_LABEL]
        address, ports = pod["status"].get("podIP"), _ports(pod)
        if not ports:
            refused = refused_shell(self._hub_log(), job)
            return None if refused is None else f"{where} runs; {self._of_shell(job)}"
        if address is None:
            return None
        said = await self._of_address(where, address, ports[0])
        return None if said.endswith(ANSWERS) or REFUSES in said else said

    async def _of_pod(self, pod: Object, job: str, app: App) -> list[str]:
        where = _where(pod)
        status = pod.get("status") or {}
        if status.get("phase") != "Running":
            why = "; ".join(_reasons(status)) or "no reason is given"
            return [f"{where} is {status.get('phase', 'new')}: {why}"]
        if app.kind == "terminal":
            return [f"{where} runs; {self._of_shell(job)}"]
        return [await self._of_address(where, status.get("podIP"), port_of(app))]

    def _of_shell(self, job: str) -> str:
        said = refused_shell(self._hub_log(), job)
        if said is None:
            return "the hub's log has no refused shell for it"
        return (
            f"the API server refused the hub a shell in it: {said}. The API server calls the "
            "node's kubelet for a shell, and must be able to reach it"
        )

    async def _of_address(self, where: str, address: str | None, port: int) -> str:
        if address is None:
            return f"{where} runs, but has no address yet"
        dialled = f"{where} is dialled at {_host(address)}:{port}"
        if not any(ipaddress.ip_address(address) in one for one in networks(self._pod_networks)):
            return (
                f"{where} has the address {address}, which is not in POD_NETWORKS "
                f"({self._pod_networks}). The gateway dials no other address: set POD_NETWORKS"
            )
        response = await try_to_connect(address, port)
        if response is None:
            return f"{dialled}, and {ANSWERS}"
        return f"{dialled}: {response}"


async def try_to_connect(address: str, port: int, seconds: float = DIAL_SECONDS) -> str | None:
    """Return why no connection to the address is possible from this machine; None if one is."""
    not_routed = (
        "this machine has no route into the network of the cluster's pods. Run this on one of "
        "the cluster's nodes, or add a route or a VPN"
    )
    try:
        async with asyncio.timeout(seconds):
            _, writer = await asyncio.open_connection(address, port)
    except TimeoutError:
        return f"no answer in {seconds:g} s. Most likely {not_routed}, or a NetworkPolicy drops it"
    except ConnectionRefusedError:
        return f"{REFUSES}. The pod is reached, but its program does not listen there (yet)"
    except OSError as error:
        if error.errno in _NO_ROUTE:
            return f"{error.strerror}: {not_routed}"
        return str(error)
    writer.close()
    return None


def port_of(app: App) -> int:
    """Return the port of the app."""
    endpoint = app.job["interactive"][app.opens["endpoint"]]
    return int(endpoint["port"])


def refused_shell(log: str, job: str) -> str | None:
    """Return the last error that the hub got when it asked for a shell in the job."""
    for line in reversed(log.splitlines()):
        _, found, rest = line.partition(REFUSED_SHELL)
        if found and f"job={job!r}" in rest.split():
            return rest.partition(" sid=")[0].strip()
    return None


def _where(pod: Object) -> str:
    name = f"{pod['metadata']['namespace']}/{pod['metadata']['name']}"
    node = pod["spec"].get("nodeName")
    return f"the pod {name} on the node {node}" if node else f"the pod {name}"


def _ports(pod: Object) -> list[int]:
    """Return the ports on which the job's own program serves users."""
    return [
        port["containerPort"]
        for container in pod["spec"]["containers"]
        if container["name"] == JOB_CONTAINER
        for port in container.get("ports") or ()
    ]


def _reasons(status: Object) -> Iterator[str]:
    for condition in status.get("conditions") or ():
        if condition.get("type") == "PodScheduled" and condition.get("status") == "False":
            yield condition.get("message") or condition.get("reason") or "not scheduled"
    containers = [
        *(status.get("initContainerStatuses") or ()),
        *(status.get("containerStatuses") or ()),
    ]
    for one in containers:
        waiting = (one.get("state") or {}).get("waiting")
        if waiting:
            words = (waiting.get("reason"), waiting.get("message"))
            name = one["name"] if one["name"] != JOB_CONTAINER else "its container"
            yield f"{name}: {': '.join(word for word in words if word)}"


def _host(address: str) -> str:
    return f"[{address}]" if ":" in address else address
