"""Accepted browsers, also through a trusted proxy and with TLS."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_network
from pathlib import Path

from gateway.core.access.site import Site
from gateway.core.limits.values import Limits
from gateway.relay.listening import Listener
from shared.runtime.listeners import listen
from tests.gateway.relay.harness import (
    BASE,
    PORT,
    Peer,
    Rig,
    answer,
    request,
    rig,
    status_of,
)

PROXY = "127.77.0.1"
BEHIND = Site(scheme="http", base=BASE, port=PORT, trusted_proxies=(ip_network("127.77.0.0/16"),))
QUICK = Limits(head_seconds=0.3, idle_seconds=0.6)


async def asked(r: Rig, browser: Peer, *fields: str, raw: bytes | None = None) -> bytes:
    """Send a request, or *raw*; return the head that the app got."""
    browser.send(raw or request("/", *fields))
    app = await r.app.connection()
    head = await app.head()
    app.send(answer(b"ok", "Connection: close"))
    assert status_of((await browser.answer())[0]) == 200
    return head


async def settled(r: Rig, *, unauthenticated: int) -> None:
    async with asyncio.timeout(5):
        while len(r.path.connection_quota.unauthenticated) > unauthenticated:
            await asyncio.sleep(0.005)
        while len(r.path.connection_quota.unauthenticated) < unauthenticated:
            await asyncio.sleep(0.005)


@asynccontextmanager
async def proxied(limits: Limits | None = None) -> AsyncIterator[Rig]:
    async with rig(site=BEHIND, limits=limits) as r:
        yield r


@asynccontextmanager
async def secured(path: Path, *, limits: Limits | None = None) -> AsyncIterator[Rig]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(path)
    async with proxied(limits) as r:
        r.listener.close()
        r.listener = Listener(r.path, listen("127.0.0.1", 0), tls=lambda: context)
        try:
            yield r
        finally:
            r.listener.close()
