"""HAProxy, bare."""

from __future__ import annotations

import resource
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from benchmarks.peers import Ground, Peer, Proxy, free_port, proxy_of, template


@asynccontextmanager
async def _start(ground: Ground) -> AsyncIterator[Proxy]:
    port = free_port()
    # Two descriptors a connection, and some for itself.
    maxconn = (resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 200) // 2
    config = template("haproxy.cfg", ground, port=port, maxconn=maxconn)
    command = [ground.programs.found["haproxy"], "-db", "-f", str(config)]
    async with proxy_of("haproxy", ground, command, port) as proxy:
        yield proxy


BARE = Peer(name="haproxy", label="HAProxy", program="haproxy", start=_start, grows=True)
