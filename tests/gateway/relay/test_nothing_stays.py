"""Connections that come and go leave no object of the gateway behind."""

from __future__ import annotations

import asyncio
import gc
from collections import Counter
from collections.abc import Awaitable, Callable
from pathlib import Path

from tests.gateway.relay.harness import (
    SWITCH,
    Peer,
    Rig,
    answer,
    request,
    rig,
    status_of,
    upgrade,
)
from tests.gateway.relay.secured import secured
from tests.gateway.relay.test_tls import connect

ROUNDS = 5
Connect = Callable[[], Awaitable[Peer]]


async def requested(r: Rig, connected: Connect) -> None:
    """Get a page on a connection of its own."""
    browser = await connected()
    browser.send(request())
    app = await r.app.connection()
    await app.head()
    app.send(answer(b"x" * 100_000, "Connection: close"))
    await browser.answer()
    browser.close()
    app.close()


async def tunnelled(r: Rig, connected: Connect, *, abort: bool) -> None:
    """Open a WebSocket, and close or reset it."""
    browser = await connected()
    browser.send(upgrade())
    app = await r.app.connection()
    await app.head()
    app.send(SWITCH + b"\x82\x02hi")
    assert status_of(await browser.head()) == 101
    assert await browser.exactly(4) == b"\x82\x02hi"
    if abort:
        browser.writer.transport.abort()
    else:
        browser.close()
    await app.rest()
    app.close()


async def refused(connected: Connect) -> None:
    """Send a request without a credential, and a malformed one."""
    for raw in (request(credential=None), b"GET / HTTP/1.1\r\nX : 1\r\n\r\n"):
        browser = await connected()
        browser.send(raw)
        await browser.head()
        browser.close()


async def play(r: Rig, connected: Connect) -> None:
    """Let one connection of each kind come and go."""
    await requested(r, connected)
    await tunnelled(r, connected, abort=False)
    await tunnelled(r, connected, abort=True)
    await refused(connected)


async def settled(r: Rig) -> Counter[str]:
    """Return the number of living objects by type, once all connections are gone."""
    r.peers.clear()
    async with asyncio.timeout(5):
        while r.path.open or len(r.live):
            await asyncio.sleep(0.01)
    await asyncio.sleep(0.05)
    gc.collect()
    names = (f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.get_objects())
    return Counter(name for name in names if name.startswith("gateway."))


async def compare(r: Rig, connected: Connect) -> None:
    """Assert that rounds after the first leave nothing behind."""
    await play(r, connected)
    await play(r, connected)
    before = await settled(r)
    for _ in range(ROUNDS):
        await play(r, connected)
    after = await settled(r)
    assert {name: n for name, n in (after - before).items() if n >= ROUNDS} == {}


async def test_connections_leave_no_object_behind() -> None:
    async with rig() as r:
        await compare(r, r.browser)


async def test_tls_connections_leave_no_object_behind(certificate: Path) -> None:
    async with secured(certificate) as (r, address):
        await compare(r, lambda: connect(r, address))
