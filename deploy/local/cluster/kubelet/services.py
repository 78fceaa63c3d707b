"""Services' addresses: a listener for each port with Pods behind it, for Pods and this machine.

It works as kube-proxy's userspace mode did. A connection is accepted at the Service's address, in
the Pods' network and on this machine, and carried to one of its Pods, chosen by chance. Only TCP. A
port without a ready Pod has no listener, so a connection to it is refused.
"""

import asyncio
import contextlib
import logging
import random
import socket
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import Any, Final

from deploy.local.cluster.kubelet.firewall import Attempt, Judge
from deploy.local.cluster.kubelet.names import endpoints, target_port
from deploy.local.cluster.kubelet.relay import carry
from deploy.local.cluster.kubelet.sandboxes import Sandbox, SandboxFailed

Object = dict[str, Any]
Services = Callable[[], Mapping[tuple[str, str], Object]]
Pods = Callable[[], list[Object]]
Place = tuple[str, int]
_LOG: Final = logging.getLogger(__name__)
_SETTLE_SECONDS: Final = 0.05
_AGAIN_SECONDS: Final = 1.0
_DIAL_SECONDS: Final = 5.0


class ServiceProxies:
    """Listens at Services' addresses, in the network of *node* and outside, while `run` runs."""

    def __init__(self, node: Sandbox, judge: Judge) -> None:
        self._node = node
        self._judge = judge
        self._enqueue = asyncio.Event()
        self._listeners: dict[Place, asyncio.Server] = {}
        self._outside: dict[Place, asyncio.Server | None] = {}
        self._behind: dict[Place, list[Place]] = {}
        self._connections: set[asyncio.Task[None]] = set()

    def look_again(self) -> None:
        """Record that Services or Pods have changed."""
        self._enqueue.set()

    async def run(self, services: Services, pods: Pods) -> None:
        """Follow the Services until cancelled; then close all listeners."""
        try:
            while True:
                await self._enqueue.wait()
                await asyncio.sleep(_SETTLE_SECONDS)
                self._enqueue.clear()
                self._behind = backends(services(), pods())
                await self._listen()
        finally:
            for listener in (*self._listeners.values(), *self._outside.values()):
                if listener is not None:
                    listener.close()
            for connection in list(self._connections):
                connection.cancel()
            await asyncio.gather(*self._connections, return_exceptions=True)

    async def _listen(self) -> None:
        for place in self._listeners.keys() - self._behind.keys():
            self._listeners.pop(place).close()
        for place in self._behind.keys() - self._listeners.keys():
            try:
                self._listeners[place] = await self._open(place)
            except (OSError, SandboxFailed) as error:
                _LOG.warning("cannot listen at %s:%d: %s", *place, error)
                asyncio.get_running_loop().call_later(_AGAIN_SECONDS, self._enqueue.set)

        for place in self._outside.keys() - self._behind.keys():
            if (listener := self._outside.pop(place)) is not None:
                listener.close()
        for place in self._behind.keys() - self._outside.keys():
            self._outside[place] = await self._open_outside(place)

    async def _open_outside(self, place: Place) -> asyncio.Server | None:
        """Listen on this machine, beside other nodes that have Pods of the Service."""
        try:
            return await asyncio.start_server(
                lambda reader, writer: self._accept(place, reader, writer), *place, reuse_port=True
            )
        except OSError as error:
            # Another program listens at 0.0.0.0, or the port is privileged.
            _LOG.warning("cannot listen at %s:%d: %s", *place, error)
            return None

    async def _open(self, place: Place) -> asyncio.Server:
        listening = await self._node.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listening.bind(place)
            return await asyncio.start_server(
                lambda reader, writer: self._accept(place, reader, writer), sock=listening
            )
        except BaseException:  # cancellation too: nothing else would close it
            listening.close()
            raise

    def _accept(
        self, place: Place, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        task = asyncio.create_task(self._carry(place, reader, writer))
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)

    async def _carry(
        self, place: Place, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        source = writer.get_extra_info("peername")[0]
        behind = self._behind.get(place)
        target = random.choice(behind) if behind else None  # noqa: S311 - which Pod is no secret
        if target is None or not self._judge(Attempt(source, target[0], "TCP", target[1])):
            writer.transport.abort()
            return
        inner = None
        with contextlib.suppress(OSError, SandboxFailed, TimeoutError):
            async with asyncio.timeout(_DIAL_SECONDS):
                inner = await self._node.connect(*target)
        if inner is None:
            writer.transport.abort()
        else:
            await carry(reader, writer, inner)


def backends(
    services: Mapping[tuple[str, str], Object], pods: list[Object]
) -> dict[Place, list[Place]]:
    """Return, for each address and port of a Service, the Pods' addresses and ports. No I/O."""
    labelled: dict[tuple[str, str, str], list[Object]] = defaultdict(list)
    for pod in pods:
        for label, value in (pod["metadata"].get("labels") or {}).items():
            labelled[pod["metadata"]["namespace"], label, value].append(pod)
    found: dict[Place, list[Place]] = {}
    for (namespace, _), service in services.items():
        address, selector = service["spec"].get("clusterIP"), service["spec"].get("selector")
        if not address or address == "None" or not selector:
            continue
        # With many Services and Pods, only Pods that have the rarest label are compared.
        candidates = [labelled.get((namespace, *pair), []) for pair in selector.items()]
        behind = endpoints(service, sorted(candidates, key=len)[0])
        for port in service["spec"].get("ports") or []:
            if (port.get("protocol") or "TCP") != "TCP":
                continue
            places = [(pod["status"]["podIP"], target_port(port, pod)) for pod in behind]
            known = [(ip, number) for ip, number in places if number is not None]
            if known:
                found[address, port["port"]] = known
    return found
