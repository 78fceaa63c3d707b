"""Starts groups of real Redis servers: a master with a replica, Sentinels, a cluster."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError

from deploy.local.ports import Ports
from deploy.local.redis import redis_program

PORTS = Ports()
START_SECONDS = 20.0


def free_ports(count: int) -> list[int]:
    """Return ports that no other test gets while these tests run."""
    return [PORTS.take() for _ in range(count)]


@dataclass(frozen=True)
class Guard:
    """How servers are reached and who may connect; the default is no TLS and no password.

    Args:
        program: The server program.
        lines: Configuration lines for data servers and for Sentinels.
        client: The test's own connection arguments for redis' client.
    """

    program: str = ""
    lines: str = ""
    sentinel_lines: str = ""
    client: Mapping[str, Any] = field(default_factory=dict)

    def listening(self, port: int) -> list[str]:
        """Return the arguments with which a server takes *port*."""
        if self.client.get("ssl"):
            return ["--port", "0", "--tls-port", str(port)]
        return ["--port", str(port)]


OPEN = Guard()


class Node:
    """A server on a TCP port, with a folder of its own."""

    def __init__(
        self, folder: Path, port: int, *options: str, sentinel: str = "", guard: Guard = OPEN
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.port = port
        self._options = options
        self._sentinel = sentinel
        self._guard = guard
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it."""
        guard = self._guard
        configuration = self.folder / "server.conf"
        command = [guard.program or redis_program(), str(configuration)]
        command += [*guard.listening(self.port), "--bind", "127.0.0.1", "--dir", str(self.folder)]
        if self._sentinel:
            configuration.write_text(self._sentinel + guard.sentinel_lines)
            command.append("--sentinel")
        else:
            configuration.write_text(guard.lines)
            command += ["--save", "", "--maxmemory-policy", "noeviction"]
            command += ["--repl-diskless-sync-delay", "0", *self._options]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)

    def kill(self) -> None:
        """End it at once."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    @property
    def pid(self) -> int:
        """The process' number."""
        assert self._process is not None
        return self._process.pid

    async def ask(self, *command: str | int) -> Any:
        """Return the node's reply to one command."""
        client = Redis(
            host="127.0.0.1",
            port=self.port,
            protocol=2,
            decode_responses=True,
            **self._guard.client,
        )
        try:
            return await client.execute_command(*command)  # type: ignore[no-untyped-call]  # of redis
        finally:
            await client.aclose()

    async def until(self, wanted: str, *command: str | int) -> None:
        """Wait until a reply contains *wanted*."""
        async with asyncio.timeout(START_SECONDS):
            while True:
                try:
                    if wanted in str(await self.ask(*command)):
                        return
                except (RedisError, OSError):
                    pass
                await asyncio.sleep(0.05)


@asynccontextmanager
async def running(nodes: Sequence[Node]) -> AsyncIterator[None]:
    """Run the nodes."""
    try:
        for node in nodes:
            node.start()
        for node in nodes:
            await node.until("True", "PING")
        yield
    finally:
        for node in nodes:
            node.kill()


@asynccontextmanager
async def sentinel_site(folder: Path, *, guard: Guard = OPEN) -> AsyncIterator[Site]:
    """Run a master, its replica and a Sentinel that promotes the replica soon after a death."""
    one, two, sentinel_port = free_ports(3)
    master = Node(folder / "a", one, guard=guard)
    replica = Node(folder / "b", two, "--replicaof", f"127.0.0.1 {one}", guard=guard)
    watch = (
        f"sentinel monitor main 127.0.0.1 {one} 1\n"
        "sentinel down-after-milliseconds main 400\n"
        "sentinel failover-timeout main 2000\n"
    )
    sentinel = Node(folder / "s", sentinel_port, sentinel=watch, guard=guard)
    async with running([master, replica]):
        await replica.until("'up'", "INFO", "replication")
        async with running([sentinel]):
            await sentinel.until(str(two), "SENTINEL", "REPLICAS", "main")
            yield Site(
                master, replica, sentinel, f"redis+sentinel://127.0.0.1:{sentinel_port}/main"
            )


@asynccontextmanager
async def cluster_site(folder: Path, slot: int, *, guard: Guard = OPEN) -> AsyncIterator[Site]:
    """Run a cluster: a master with *slot* and its replica, and a master with the other slots."""
    ports = free_ports(6)
    nodes = [
        Node(
            folder / name, port, "--cluster-enabled", "yes", "--cluster-port", str(bus),
            "--cluster-node-timeout", "1000", "--cluster-require-full-coverage", "no", guard=guard,
        )
        for name, port, bus in zip("abc", ports[:3], ports[3:], strict=True)
    ]  # fmt: skip
    master, replica, other = nodes
    async with running(nodes):
        await master.ask("CLUSTER", "ADDSLOTS", slot)
        await other.ask("CLUSTER", "ADDSLOTSRANGE", *_all_but(slot))
        for node, port, bus in zip(nodes[1:], ports[1:3], ports[4:], strict=True):
            del node
            await master.ask("CLUSTER", "MEET", "127.0.0.1", port, bus)
        await replica.until(str(other.port), "CLUSTER", "NODES")
        await replica.until(str(master.port), "CLUSTER", "NODES")
        name = await master.ask("CLUSTER", "MYID")
        await replica.until("", "CLUSTER", "REPLICATE", name)
        await replica.until("'up'", "INFO", "replication")
        await other.until(f" {slot}", "CLUSTER", "NODES")
        for node in nodes:
            await node.until("cluster_state:ok", "CLUSTER", "INFO")
            await _knows(node, nodes)
        # The URL names the node that does not serve the slot, so clients ask that node first.
        yield Site(master, replica, other, f"redis+cluster://127.0.0.1:{other.port}")


async def _knows(node: Node, nodes: Sequence[Node]) -> None:
    """Wait until *node* has a link to each other one; it learns of most by gossip."""
    async with asyncio.timeout(START_SECONDS):
        while True:
            lines = str(await node.ask("CLUSTER", "NODES"))
            known = all(f":{one.port}" in lines for one in nodes)
            if known and "handshake" not in lines and "disconnected" not in lines:
                return
            await asyncio.sleep(0.05)


def _all_but(slot: int) -> list[int]:
    below = [0, slot - 1] if slot > 0 else []
    return below + ([slot + 1, 16383] if slot < 16383 else [])


class Site:
    """Servers that belong together, and the URL of the group."""

    def __init__(self, master: Node, replica: Node, other: Node, url: str) -> None:
        self.master = master
        self.replica = replica
        self.other = other
        self.url = url

    async def caught_up(self) -> None:
        """Wait until the replica has all data of the master."""
        written = (await self.master.ask("INFO", "replication"))["master_repl_offset"]
        async with asyncio.timeout(START_SECONDS):
            while (await self.replica.ask("INFO", "replication"))["slave_repl_offset"] < written:
                await asyncio.sleep(0.02)
