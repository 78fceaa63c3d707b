"""The data path at each step of overload."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core.limits.overload import Step
from tests.gateway.relay.harness import (
    BASE,
    FROM_HERE,
    PORT,
    Peer,
    Rig,
    answer,
    code_of,
    cookie,
    request,
    rig,
    status_of,
    table_of,
    upgrade,
)
from tests.gateway.relay.http.test_admission import claims
from tests.gateway.relay.http.test_page_connection import STATIC, with_pages
from tests.waiting import until

PUBLIC = {"hosts": [f"{'a' * 26}.{BASE}", "demo.example.org"], "public": True}
LINK = request(host=f"demo.example.org:{PORT}", credential=None)


def at(r: Rig, step: Step) -> None:
    r.path.overload.step = step


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


def test_a_client_that_buffers_much_does_not_close_the_door_to_visitors() -> None:
    assert Step.BUFFERS < Step.UNAUTHENTICATED


async def test_visitors_are_served_while_only_buffers_are_shed() -> None:
    async with rig(route_changes=PUBLIC) as r:
        at(r, Step.BUFFERS)
        await served(r, LINK)


CHUNK = b"8000\r\n" + bytes(0x8000) + b"\r\n"
OTHER = cookie(sub="bob", jti="t2")


def buffered(r: Rig) -> int:
    return sum(one.buffered_bytes() for one in r.path._all_connections())


async def stalled_tunnel(r: Rig) -> tuple[Peer, Peer]:
    """Return a tunnel of Ada whose browser takes nothing, with all that the gateway buffers."""
    before = buffered(r)
    browser, app = await r.tunnel()
    browser.stall()
    for _ in range(200):
        app.send(b"\x82\x7e\xff\xff" + bytes(65535))
    await until(lambda: buffered(r) >= before + (128 << 10))
    return browser, app


async def test_tunnels_of_a_client_over_its_share_are_ended_and_others_kept() -> None:
    async with rig() as r:
        stalled = [await stalled_tunnel(r) for _ in range(3)]
        mine, app = await r.tunnel()  # of the same user, and small
        other, others_app = await r.tunnel(upgrade(credential=f"Cookie: {OTHER}"))
        most = max(one.buffered_bytes() for one in r.path._all_connections())
        assert await r.path.shed_buffers(3 * most) == 0
        assert await r.path.shed_buffers(most) == 2
        await until(lambda: buffered(r) <= most)
        assert len(r.live) == 3
        for browser, end in ((mine, app), (other, others_app)):
            browser.send(b"\x82\x82mask\x00\x00")
            assert await end.exactly(8)
        assert len(stalled) == 3


async def test_a_stalled_tunnel_that_is_ended_gets_1013_if_its_browser_reads_again() -> None:
    async with rig() as r:
        browser, app = await r.tunnel()
        app.stall()
        piece = b"\x82\xfe\xff\xffmask" + bytes(65535)
        browser.send(piece * 400)
        await until(lambda: buffered(r) >= 128 << 10)
        assert await r.path.shed_buffers(1000) == 1
        assert await browser.exactly(4) == b"\x88\x19\x03\xf5"


async def test_a_response_that_is_not_read_is_reset_to_free_its_buffer() -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(request())
        browser.stall()
        app.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + CHUNK * 800)
        await until(lambda: buffered(r) >= 128 << 10)
        assert await r.path.shed_buffers(100 << 10) == 1
        await until(lambda: buffered(r) == 0)
        await app.gone()


async def test_an_upload_that_the_app_does_not_read_gets_503() -> None:
    async with rig() as r:
        chunked = request("/", FROM_HERE, "Transfer-Encoding: chunked", method="POST")
        browser, app, _ = await r.joined(chunked)
        app.stall()
        browser.send(CHUNK * 800)
        await until(lambda: buffered(r) >= 128 << 10)
        assert await r.path.shed_buffers(1000) == 1
        head, body = await browser.answer()
        assert (status_of(head), code_of(body)) == (503, "gateway_overloaded")


async def test_heads_that_do_not_end_are_reset_by_address() -> None:
    async with rig() as r:
        raw = request("/", *(f"Cookie: a={'x' * 8000}" for _ in range(30)))[:-4]
        here = [await r.browser() for _ in range(3)]
        there = await r.browser("127.0.0.2")
        for one in (*here, there):
            one.send(raw)
        await until(lambda: buffered(r) >= 4 * len(raw))
        assert await r.path.shed_buffers(2 * len(raw)) == 1
        await until(lambda: buffered(r) == 3 * len(raw))
        there.send(b"\r\n\r\n")
        app = await r.app.connection()
        await app.head()


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
