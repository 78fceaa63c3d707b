"""Registers a node and runs the Pods that are bound to it."""

import argparse
import asyncio
import logging
import os
import random
import shutil
from pathlib import Path
from typing import Final

from aiohttp import web

from deploy.local.cluster.certificates import Pki, server_context
from deploy.local.cluster.client import PODS, Cache, Client, Object
from deploy.local.cluster.events import EventRecorder
from deploy.local.cluster.kubeconfig import read_kubeconfig
from deploy.local.cluster.kubelet import node as nodes
from deploy.local.cluster.kubelet.addresses import Addresses
from deploy.local.cluster.kubelet.mounts import make_root
from deploy.local.cluster.kubelet.network import PodNetwork
from deploy.local.cluster.kubelet.pod import Node, PodRun
from deploy.local.cluster.kubelet.sandboxes import SandboxFailed, namespaces_available
from deploy.local.cluster.kubelet.server import make_app
from deploy.local.cluster.kubelet.sources import Sources
from deploy.local.cluster.kubelet.storage import Storage
from deploy.local.cluster.program import (
    Stop,
    announce_ready,
    client_parser,
    run_program,
    wait_for_file,
)

_LOG: Final = logging.getLogger("deploy.local.cluster.kubelet")


class Kubelet:
    """The Pods of one node. Each runs in a task of `tasks`."""

    def __init__(self, node: Node, tasks: asyncio.TaskGroup) -> None:
        self._node = node
        self._tasks = tasks
        self._pods: dict[str, PodRun] = {}
        self._lives: set[asyncio.Task[None]] = set()

    def changed(self, change: str, pod: Object) -> None:
        """Take a change of a Pod from the server."""
        uid = pod["metadata"]["uid"]
        running = self._pods.get(uid)
        if change == "DELETED":
            if running is not None:
                running.forget()
        elif running is not None:
            running.update(pod)
        else:
            running = self._pods[uid] = PodRun(pod, self._node)
            running.update(pod)
            life = self._tasks.create_task(self._run(uid, running))
            self._lives.add(life)
            life.add_done_callback(self._lives.discard)

    def source_changed(self, kind: str, namespace: str, name: str) -> None:
        """Record that a ConfigMap or Secret has changed."""
        for running in self._pods.values():
            running.source_changed(kind, namespace, name)

    def end(self) -> None:
        """End all Pods at once. Each cleans up when it is cancelled."""
        for life in self._lives:
            life.cancel()

    def find(self, namespace: str, name: str) -> PodRun | None:
        """Return the Pod of that name."""
        for running in self._pods.values():
            metadata = running.pod["metadata"]
            if (metadata["namespace"], metadata["name"]) == (namespace, name):
                return running
        return None

    def pods(self) -> list[PodRun]:
        """Return all Pods."""
        return list(self._pods.values())

    async def _run(self, uid: str, running: PodRun) -> None:
        try:
            await running.run()
        except Exception:  # noqa: BLE001 - one Pod's failure must not end the others
            _LOG.exception("pod %s", running.pod["metadata"]["name"])
        finally:
            del self._pods[uid]


async def _run(arguments: argparse.Namespace, stop: Stop) -> None:
    chance = random.Random(f"kubelet {arguments.seed}")  # noqa: S311 - chooses behaviour, no secret
    isolated = not arguments.plain and await asyncio.to_thread(namespaces_available)
    if not isolated:
        _LOG.warning("no namespaces here: pods are plain processes that share this network")
    await wait_for_file(arguments.kubeconfig, stop)
    addresses = Addresses(chance)
    folder: Path = arguments.state
    async with Client(read_kubeconfig(arguments.kubeconfig)) as client:
        recorder = EventRecorder(client, "kubelet")
        network = await _start_network(client) if isolated else None
        node = Node(
            client=client,
            name=arguments.node_name,
            folder=folder,
            addresses=addresses,
            storage=Storage(client, folder / "claims"),
            sources=Sources(client),
            isolated=isolated,
            root=make_root(_host_root()),
            record_event=recorder.record_event,
            network=network,
        )
        try:
            await _serve(arguments, node, recorder, stop)
        finally:
            if network is not None:
                await network.close()
            addresses.close()
            await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


async def _start_network(client: Client) -> PodNetwork | None:
    try:
        return await PodNetwork.start(client)
    except (OSError, SandboxFailed) as error:
        _LOG.warning("no network between pods here: %s", error)
        return None


async def _serve(
    arguments: argparse.Namespace, node: Node, recorder: EventRecorder, stop: Stop
) -> None:
    async with asyncio.TaskGroup() as tasks:
        kubelet = Kubelet(node, tasks)
        runner = web.AppRunner(
            make_app(kubelet.find, kubelet.pods), access_log=None, shutdown_timeout=0.2
        )
        await runner.setup()
        tls = server_context(Pki(arguments.pki), "kubelet", clients=True)
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        port = runner.addresses[0][1]
        pods = Cache(
            node.client,
            PODS,
            {"fieldSelector": f"spec.nodeName={node.name}"},
            changed=kubelet.changed,
        )
        background = [
            tasks.create_task(recorder.run()),
            tasks.create_task(pods.follow()),
            tasks.create_task(node.sources.follow(kubelet.source_changed)),
            tasks.create_task(node.storage.run()),
            tasks.create_task(nodes.renew_forever(node.client, node.name)),
        ]
        cpus, memory = nodes.this_machine()
        registered = nodes.make_node(
            node.name,
            port,
            cpus=arguments.cpus or cpus,
            memory_bytes=arguments.memory_bytes or memory,
            pods=arguments.max_pods,
            network=_shown(node.network),
        )
        await nodes.register(node.client, registered)
        await pods.synced.wait()
        if node.network is not None:
            background.append(tasks.create_task(node.network.run()))
            await node.network.synced()
        announce_ready()
        await stop.wait()
        await runner.cleanup()
        kubelet.end()
        for task in background:
            task.cancel()


def _shown(network: PodNetwork | None) -> str:
    if network is None:
        return "none"
    return "filtered" if network.filters else "open"


def _host_root() -> dict[str, str | None]:
    """Return the entries of this machine's root folder: the target of a link, else None."""
    return {
        entry.name: os.readlink(entry.path) if entry.is_symlink() else None
        for entry in os.scandir("/")
    }


def main() -> None:
    """Run until SIGTERM; no process and no folder of a Pod remains."""
    parser = client_parser("The embedded cluster's kubelet: Pods as local processes.")
    parser.add_argument("--state", type=Path, required=True, help="a folder for Pods, removed")
    parser.add_argument("--pki", type=Path, required=True, help="the API server's certificates")
    parser.add_argument("--plain", action="store_true", help="make no namespaces for Pods")
    parser.add_argument("--node-name", default="embedded")
    parser.add_argument("--cpus", type=int, default=64, help="what the node says it has")
    parser.add_argument("--memory-bytes", type=int, default=256 * 2**30)
    parser.add_argument("--max-pods", type=int, default=1000)
    run_program(_run, parser.parse_args())


if __name__ == "__main__":
    main()
