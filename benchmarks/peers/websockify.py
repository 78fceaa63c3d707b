"""websockify, the bridge between noVNC and desktops; it forks a process per connection."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.peers import Ground, Peer, Proxy, free_port, proxy_of


@asynccontextmanager
async def _start(ground: Ground) -> AsyncIterator[Proxy]:
    port = free_port()
    command = [ground.programs.found["websockify"], f"127.0.0.1:{port}"]
    command.append(f"127.0.0.1:{ground.backend.rfb_port}")
    async with proxy_of("websockify", ground, command, port) as proxy:
        yield proxy


BARE = Peer(name="websockify", label="websockify", program="websockify", start=_start, desktop=True)
