"""The network that the Pods of a node share: links, a packet filter, names and Services.

The node has a network of its own, held by a sandbox without containers. A link joins every Pod's
network to it, so that Pods reach each other by address, on any port. Everything that decides runs
in the kubelet's process, with sockets that belong to the node's network: the packet filter, a name
server, and a listener at each Service's address for the Pods behind it.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from ipaddress import IPv4Network
from typing import Any, Final, Self

from deploy.local.cluster.client import NAMESPACES, NETWORK_POLICIES, SERVICES, Cache, Client
from deploy.local.cluster.kubelet import firewall, links, names
from deploy.local.cluster.kubelet.addresses import NETWORK
from deploy.local.cluster.kubelet.firewall import Attempt
from deploy.local.cluster.kubelet.policies import allows
from deploy.local.cluster.kubelet.sandboxes import Sandbox
from deploy.local.cluster.kubelet.services import ServiceProxies

Object = dict[str, Any]
NODE_ADDRESS: Final = "127.128.0.1"
NAME_SERVER: Final = "127.128.0.10"
_SERVICE_NETWORK: Final = IPv4Network("127.128.0.0/10")
_LOOPBACK_BITS: Final = 10
_NAMES_PORT, _QUERY_BYTES = 53, 4096
_NAME_SERVER_POD: Final[Object] = {
    "metadata": {"namespace": "kube-system", "labels": {"k8s-app": "kube-dns"}},
    "spec": {"containers": []},
}
"""The labels of the name server for policies, as in most clusters."""

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Cable:
    """A Pod's connection to the network. Pass it to `PodNetwork.detach`."""

    address: str
    index: int


class PodNetwork:
    """The network of the Pods of one node. `start` makes it, `run` keeps it up to date."""

    def __init__(self, client: Client, node: Sandbox, routes: socket.socket) -> None:
        self._node = node
        self._routes = routes
        self._pods: dict[str, Callable[[], Object]] = {}
        self._cables = 0
        self._policies = Cache(client, NETWORK_POLICIES, changed=_ignore)
        self._namespaces = Cache(client, NAMESPACES, changed=_ignore)
        self._services = Cache(client, SERVICES, changed=lambda *_: self.proxies.look_again())
        self.proxies = ServiceProxies(node, self._allows)
        self._queue: socket.socket | None = None

    @classmethod
    async def start(cls, client: Client) -> Self:
        """Make the node's network.

        Raises:
            OSError: If the kernel does not allow it.
            SandboxFailed: If its sandbox does not start.
        """
        node = await Sandbox.start(isolated=True)
        try:
            routes = await _netlink(node)
            links.narrow_loopback(routes, _LOOPBACK_BITS)
            links.add_address(routes, links.LOOPBACK, NODE_ADDRESS, _SERVICE_NETWORK.prefixlen)
            links.bring_up(routes, links.LOOPBACK, node=True)
            network = cls(client, node, routes)
            await network._filter()
        except BaseException:  # cancellation too: nothing else would end the sandbox
            await node.close()
            raise
        return network

    @property
    def filters(self) -> bool:
        """Whether NetworkPolicies are enforced between Pods."""
        return self._queue is not None

    async def run(self) -> None:
        """Follow Services and policies, and answer name queries, until cancelled."""
        server = await self._node.socket(socket.AF_INET, socket.SOCK_DGRAM)
        server.bind((NAME_SERVER, _NAMES_PORT))
        loop = asyncio.get_running_loop()
        loop.add_reader(server, self._answer_names, server)
        try:
            async with asyncio.TaskGroup() as tasks:
                for cache in (self._policies, self._namespaces, self._services):
                    tasks.create_task(cache.follow())
                tasks.create_task(self.proxies.run(self._known_services, self._present))
        finally:
            loop.remove_reader(server)
            server.close()

    async def synced(self) -> None:
        """Return when all objects that decisions need have been read once."""
        for cache in (self._policies, self._namespaces, self._services):
            await cache.synced.wait()

    async def close(self) -> None:
        """Take the network down."""
        if self._queue is not None:
            asyncio.get_running_loop().remove_reader(self._queue)
            self._queue.close()
        self._routes.close()
        await self._node.close()

    async def attach(self, sandbox: Sandbox, address: str, pod: Callable[[], Object]) -> Cable:
        """Join a Pod's network to the others. Inside, it has *address* from now on.

        Raises:
            OSError: If the kernel refuses.
            SandboxFailed: If the Pod's sandbox is gone.
        """
        self._cables += 1
        with await _netlink(sandbox) as routes:
            inside, outside = links.join(routes, self._routes, f"pod{self._cables}")
            links.narrow_loopback(routes, _LOOPBACK_BITS)
            links.bring_up(routes, inside)
            links.add_address(routes, inside, address, 32)
            for network in (NETWORK, _SERVICE_NETWORK):
                links.add_route(routes, network, inside)
        links.bring_up(self._routes, outside, node=True)
        only = IPv4Network(f"{address}/32")
        links.add_route(self._routes, only, outside, source=NODE_ADDRESS)
        self._pods[address] = pod
        return Cable(address, outside)

    def detach(self, cable: Cable) -> None:
        """Remove a Pod's link, so that its address is free at once."""
        self._pods.pop(cable.address, None)
        try:
            links.remove_link(self._routes, cable.index)
        except OSError as error:
            _LOG.info("cable of %s: %s", cable.address, error)  # it went with the Pod's network

    def pods_changed(self) -> None:
        """Record that a Pod's readiness or labels may have changed."""
        self.proxies.look_again()

    # --- deciding ---

    def _allows(self, attempt: Attempt) -> bool:
        source, target = self._pods.get(attempt.source), self._pods.get(attempt.target)
        if attempt.target == NAME_SERVER:
            return self._lets(source and source(), _NAME_SERVER_POD, attempt)
        return self._lets(source and source(), target and target(), attempt)

    def _lets(self, source: Object | None, target: Object | None, attempt: Attempt) -> bool:
        labels = {
            name: value["metadata"].get("labels") or {}
            for (_, name), value in self._namespaces.objects.items()
        }
        return allows(
            self._policies.objects.values(),
            labels,
            source,
            target,
            protocol=attempt.protocol,
            port=attempt.port,
        )

    def _known_services(self) -> Mapping[tuple[str, str], Object]:
        return self._services.objects

    def _present(self) -> list[Object]:
        return [pod() for pod in self._pods.values()]

    def _resolve(self, name: str) -> list[str] | None:
        return names.addresses_of(name, self._services.objects, self._present())

    # --- acting ---

    async def _filter(self) -> None:
        """Decide about new connections from now on. If that is impossible, none is held back."""
        kind = (socket.AF_NETLINK, socket.SOCK_RAW, firewall.NETFILTER)
        queue = await self._node.socket(*kind)
        try:
            # The reader must exist before the kernel holds back packets.
            firewall.answer_attempts(queue, self._allows)
            with await self._node.socket(*kind) as filters:
                firewall.install(filters)
        except OSError as error:
            _LOG.warning("NetworkPolicies are not enforced here: %s", error)
            asyncio.get_running_loop().remove_reader(queue)
            queue.close()
        else:
            self._queue = queue

    def _answer_names(self, server: socket.socket) -> None:
        with contextlib.suppress(OSError):  # nothing more to read, or the client is gone
            while True:
                query, (address, port) = server.recvfrom(_QUERY_BYTES)
                if not self._allows(Attempt(address, NAME_SERVER, "UDP", _NAMES_PORT)):
                    continue
                said = names.answer(query, self._resolve)
                if said is not None:
                    server.sendto(said, (address, port))


async def _netlink(sandbox: Sandbox) -> socket.socket:
    return await sandbox.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0)


def _ignore(change: str, value: Object) -> None:
    """Do nothing: the present objects are read when a decision needs them."""
