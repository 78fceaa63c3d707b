"""The data path at each step of overload."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core.limits.overload import Step
from tests.gateway.relay.harness import (
    BASE,
    PORT,
    Rig,
    answer,
    code_of,
    request,
    rig,
    status_of,
    table_of,
)
from tests.gateway.relay.http.test_admission import claims
from tests.gateway.relay.http.test_page_connection import STATIC, with_pages

PUBLIC = {"hosts": [f"{'a' * 26}.{BASE}", "demo.example.org"], "public": True}
LINK = request(host=f"demo.example.org:{PORT}", credential=None)


def at(r: Rig, step: Step) -> None:
    r.path.parts.overload.step = step


async def overloaded(r: Rig, raw: bytes) -> None:
    """Check that *raw*, on a new connection, gets a Retry-After and the connection closes."""
    browser = await r.browser()
    browser.send(raw)
    head, body = await browser.answer()
    assert (status_of(head), code_of(body)) == (503, "gateway_overloaded")
    assert b"\r\nRetry-After: " in head
    assert b"\r\nConnection: close\r\n" in head
    assert await browser.rest() == b""


async def served(r: Rig, raw: bytes) -> None:
    browser, app, _ = await r.joined(raw)
    app.send(answer(b"ok", "Connection: close"))
    assert status_of((await browser.answer())[0]) == 200


@pytest.mark.parametrize("step", [Step.UNAUTHENTICATED, Step.IDLE])
async def test_unauthenticated_connections_are_shed_first(step: Step) -> None:
    async with rig(route_changes=PUBLIC) as r:
        browser, app, _ = await r.joined(LINK)
        app.send(answer())
        await browser.answer()
        at(r, step)
        for raw in (LINK, request(credential=None), request(host="nowhere.example")):
            await overloaded(r, raw)
        assert r.app.count == 1
        await served(r, request())
        # What is open goes on, by a public link too, also after the table has changed.
        assert r.world.table is not None
        r.world.table.version = object()
        browser.send(LINK)
        await app.head()
        app.send(answer())
        assert status_of((await browser.answer())[0]) == 200


async def test_a_connection_that_may_present_a_credential_is_not_shed() -> None:
    async with with_pages() as (r, pages):
        at(r, Step.UNAUTHENTICATED)
        r.gate.tokens["good"] = claims()
        await served(r, request(credential="Fumarole-Token: good"))
        # A good grant for a session that is not known yet: it is looked for.
        known, r.world.table = r.world.table, table_of()

        def found() -> None:
            r.world.table = known

        r.world.repaired = found
        await served(r, request())
        assert r.world.repairs == 1
        # Of pages, those of people who are known; their looks are the same for everybody.
        await overloaded(r, request("/.fumarole/", credential=None))
        assert pages.asked == []
        assert (await r.ask(request("/.fumarole/")))[0] == 200
        assert (await r.ask(request(STATIC, credential=None)))[0] == 200


async def test_at_the_last_step_requests_are_shed_and_tunnels_continue() -> None:
    async with rig() as r:
        browser, app = await r.tunnel()
        kept, _, _ = await r.joined(request())
        other = await r.app.connection() if not r.app.connections.empty() else None
        assert other is None
        at(r, Step.REQUESTS)
        await overloaded(r, request())
        browser.send(b"\x82\x82mask\x00\x00")
        assert await app.exactly(8)
        app.send(b"\x82\x02ok")
        assert await browser.exactly(4) == b"\x82\x02ok"
        at(r, Step.NONE)
        await served(r, request())
        kept.close()


async def test_at_the_last_step_a_keep_alive_connection_gets_503() -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(request())
        app.send(answer())
        await browser.answer()
        at(r, Step.REQUESTS)
        browser.send(request())
        head, body = await browser.answer()
        assert (status_of(head), code_of(body)) == (503, "gateway_overloaded")
        assert await browser.rest() == b""
        assert await app.silent()


async def test_idle_and_stalled_connections_are_shed_and_busy_ones_kept() -> None:
    async with rig() as r:
        busy, working, _ = await r.joined(request("/busy"))
        idle, app, _ = await r.joined(request())
        app.send(answer())
        await idle.answer()
        unheard = await r.browser()
        tunnel, other = await r.tunnel()
        stalled, pouring = await r.tunnel()
        stalled.stall()
        for _ in range(200):
            pouring.send(b"\x82\x7e\xff\xff" + bytes(65535))
        async with asyncio.timeout(20):
            while not len(r.path.closer.stalls.watched):
                await asyncio.sleep(0.01)
        await asyncio.sleep(1.0)
        assert r.path.shed_idle(stalled_seconds=60.0) >= 2
        assert await idle.rest() == b""
        assert await unheard.rest() == b""
        async with asyncio.timeout(30):
            while len(r.path.closer.stalls.watched):
                r.path.shed_idle(stalled_seconds=0.3)
                await asyncio.sleep(0.1)
        await pouring.gone()
        assert len(r.path.pool) == 0
        working.send(answer(b"done"))
        assert (await busy.answer())[1] == b"done"
        tunnel.send(b"\x82\x82mask\x00\x00")
        assert await other.exactly(8)
