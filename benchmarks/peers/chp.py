"""configurable-http-proxy, the proxy of JupyterHub."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.peers import Ground, Peer, Proxy, free_port, proxy_of


@asynccontextmanager
async def _start(ground: Ground) -> AsyncIterator[Proxy]:
    port = free_port()
    command = [ground.programs.found["node"], ground.programs.found["configurable-http-proxy"]]
    command += ["--ip", "127.0.0.1", "--port", str(port), "--api-ip", "127.0.0.1"]
    command += ["--api-port", str(free_port()), "--log-level", "error"]
    command += ["--default-target", f"http://127.0.0.1:{ground.backend.port}"]
    async with proxy_of("chp", ground, command, port) as proxy:
        yield proxy


BARE = Peer(
    name="chp",
    label="configurable-http-proxy",
    program="configurable-http-proxy",
    start=_start,
    notes="it asks nobody either: a hub's apps do that themselves",
)
