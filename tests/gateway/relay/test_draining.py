"""The drain of a gateway: when each connection closes, and that none is left."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

import pytest

from gateway.serving import drain
from tests.gateway.relay.harness import (
    SID,
    SWITCH,
    Peer,
    Rig,
    answer,
    request,
    rig,
    status_of,
    upgrade,
)


def turns(*values: float) -> Callable[[], float]:
    left = iter(values)
    return lambda: next(left)


async def code_of_close(browser: Peer) -> int:
    data = await browser.rest()
    return int.from_bytes(data[2:4], "big")


def draining(r: Rig, seconds: float, random: Callable[[], float]) -> asyncio.Task[None]:
    r.listener.close()
    return asyncio.create_task(drain(r.path, seconds=seconds, random=random))


async def test_a_drain_closes_tunnels_one_by_one_in_its_first_half() -> None:
    async with rig() as r:
        loop = asyncio.get_running_loop()
        tunnels = [await r.tunnel() for _ in range(3)]
        began = loop.time()

        async def left(browser: Peer) -> float:
            assert await code_of_close(browser) == 1001
            browser.close()
            return loop.time() - began

        leaving = [asyncio.create_task(left(browser)) for browser, _ in tunnels]
        task = draining(r, 4.0, turns(*[0.1, 0.5, 0.9]))
        at = sorted([await one for one in leaving])
        assert at[0] < at[1] < at[2]
        assert at[1] - at[0] > 0.5
        assert at[2] - at[1] > 0.5
        await task
        assert loop.time() - began < 3.5
        assert r.path.open == 0


async def test_a_drain_finishes_a_request_and_closes_its_connection() -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(request())
        idle = await r.browser()
        await asyncio.sleep(0.05)
        task = draining(r, 5.0, turns())
        assert await idle.rest() == b""
        await asyncio.sleep(0.1)
        app.send(answer(b"last"))
        head, body = await browser.answer()
        assert (status_of(head), body) == (200, b"last")
        assert b"\r\nConnection: close\r\n" in head
        assert await browser.rest() == b""
        browser.close()
        await asyncio.wait_for(task, 3)


async def test_a_drain_serves_a_request_in_flight_on_an_idle_connection() -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(request())
        app.send(answer(b"first"))
        assert (await browser.answer())[1] == b"first"
        unused = await r.browser()
        task = draining(r, 60.0, turns())
        await asyncio.sleep(0)  # it has begun
        for one in (browser, unused):
            one.send(request())
        for one in (browser, unused):
            app = app if one is browser else await r.app.connection()
            await app.head()
            app.send(answer(b"last"))
            head, body = await one.answer()
            assert (status_of(head), body) == (200, b"last")
            assert b"\r\nConnection: close\r\n" in head
            assert await one.rest() == b""
            one.close()
        await asyncio.wait_for(task, 10)


async def test_connections_in_the_backlog_are_accepted_before_the_listener_closes() -> None:
    async with rig() as r:
        with socket.create_connection(r.address) as waiting:
            waiting.sendall(request(credential=None))
            # The loop has not turned since: nobody has accepted it.
            task = draining(r, 60.0, turns())
            waiting.setblocking(False)
            async with asyncio.timeout(10):
                said = await asyncio.get_running_loop().sock_recv(waiting, 65536)
        assert status_of(said) == 401
        assert b"\r\nConnection: close\r\n" in said
        await asyncio.wait_for(task, 10)


async def test_a_request_can_be_revoked_during_a_drain() -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(request())
        app.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nbegun")
        await browser.until(b"begun")
        task = draining(r, 5.0, turns())
        await asyncio.sleep(0.1)
        r.world.revoke(sid=SID)
        with pytest.raises(ConnectionResetError):
            await browser.rest()
        await asyncio.wait_for(task, 3)


async def test_a_tunnel_opened_during_a_drain_is_closed() -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(upgrade())
        task = draining(r, 2.0, turns(0.2))
        await asyncio.sleep(0.2)
        app.send(SWITCH)
        assert status_of(await browser.head()) == 101
        assert await code_of_close(browser) == 1001
        browser.close()
        await asyncio.wait_for(task, 2.5)


async def test_a_drain_ends_at_its_deadline() -> None:
    async with rig() as r:
        await r.joined(request())
        loop = asyncio.get_running_loop()
        began = loop.time()
        await draining(r, 0.4, turns())
        assert 0.3 < loop.time() - began < 2
        assert r.path.open == 1


async def test_a_drain_waits_for_close_handshakes() -> None:
    async with rig() as r:
        browser, _ = await r.tunnel()
        task = draining(r, 5.0, turns(0.0))
        await browser.exactly(4)
        await asyncio.sleep(0.3)
        # It has its Close and may answer it; the process does not end under it.
        assert not task.done()
        browser.close()
        await asyncio.wait_for(task, 3)


async def test_a_drain_without_connections_ends_at_once() -> None:
    async with rig() as r:
        await asyncio.wait_for(draining(r, 30.0, turns()), 2)
