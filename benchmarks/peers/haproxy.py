"""HAProxy, bare."""

from __future__ import annotations

import resource
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager

from benchmarks.peers import Certificate, Ground, Peer, Proxy, free_port, proxy_of, template


@asynccontextmanager
async def _start(ground: Ground, certificate: Certificate | None = None) -> AsyncIterator[Proxy]:
    port = free_port()
    # Two descriptors for each connection and each pipe, and some for itself.
    maxconn = (resource.getrlimit(resource.RLIMIT_NOFILE)[1] - 300) // 2
    tls = "" if certificate is None else f"ssl crt {certificate.both} alpn http/1.1"
    config = template("haproxy.cfg", ground, port=port, maxconn=maxconn, tls=tls)
    command = [ground.programs.found["haproxy"], "-db", "-f", str(config)]
    async with proxy_of("haproxy", ground, command, port) as proxy:
        yield proxy


def start_tls(ground: Ground, certificate: Certificate) -> AbstractAsyncContextManager[Proxy]:
    """Start a HAProxy that ends TLS."""
    return _start(ground, certificate)


BARE = Peer(name="haproxy", label="HAProxy", program="haproxy", start=_start, grows=True)
