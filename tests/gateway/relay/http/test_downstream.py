"""A downstream connection: its deadlines, what ends early, what persists."""

from __future__ import annotations

import asyncio
import time

import msgspec
import pytest

from gateway.core.access.access_right import BUS_LOST
from gateway.core.downstream.phases import Phase
from gateway.core.limits.values import Limits
from gateway.wheel import TICK_SECONDS
from tests.gateway.relay.harness import (
    BASE,
    FROM_HERE,
    GRANT,
    KEYS,
    NETWORKS,
    PORT,
    SID,
    answer,
    code_of,
    request,
    rig,
    route,
    status_of,
    upgrade,
)


async def test_a_public_route_that_becomes_private_closes_open_connections() -> None:
    public = {"hosts": [f"{SID}.{BASE}", "demo.example.org"], "public": True}
    async with rig(route_changes=public) as r:
        raw = upgrade(host=f"demo.example.org:{PORT}", credential=None)
        browser, _ = await r.tunnel(raw)
        r.world.upsert(route(r.app.port, hosts=public["hosts"]))
        assert (await browser.rest())[2:4] == (4410).to_bytes(2, "big")


async def test_a_new_target_receives_no_request_on_a_pooled_connection() -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(request())
        app.send(answer())
        await browser.answer()
        r.world.upsert(route(r.app.port, target={"id": "pod2"}))
        assert await app.rest() == b""
        browser.send(request("/2"))
        second = await r.app.connection()
        assert (await second.head()).startswith(b"GET /2")


@pytest.mark.parametrize(
    ("happening", "status", "code"),
    [
        ("revoked", 401, "grant_revoked"),
        ("removed", 410, "session_ended"),
        ("moved", 503, "target_changed"),
        ("starting", 503, "session_starting"),
        ("bus", 503, "bus_lost"),
    ],
)
async def test_a_request_in_progress_is_refused_when_its_access_right_ends(
    happening: str, status: int, code: str
) -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(request())
        match happening:
            case "revoked":
                r.world.revoke(sid=SID)
            case "removed":
                r.world.remove()
            case "moved":
                r.world.upsert(route(r.app.port, target={"id": "pod2"}))
            case "starting":
                r.world.upsert(route(r.app.port, state="starting"))
            case _:
                r.live.end_all(BUS_LOST)
        head, body = await browser.answer()
        assert (status_of(head), code_of(body)) == (status, code)
        assert await app.rest() == b""


async def test_a_response_in_progress_is_reset_when_its_access_right_ends() -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(request())
        app.send(b"HTTP/1.1 200 OK\r\n\r\nbegun")
        await browser.until(b"begun")
        r.world.revoke(sid=SID)
        with pytest.raises(ConnectionResetError):
            await browser.rest()
        assert await app.gone() == b""


async def test_a_request_being_dialled_is_refused_when_its_access_right_ends() -> None:
    async with rig(networks=NETWORKS) as r:
        browser = await r.browser()
        browser.send(request())
        while not r.connections or r.connections[0].phase is not Phase.CONNECTING:
            await asyncio.sleep(0)
        r.world.revoke(sid=SID)
        head, body = await browser.answer()
        assert (status_of(head), code_of(body)) == (401, "grant_revoked")
        await asyncio.sleep(0.05)
        assert len(r.path.background_tasks) == 0
        while not r.app.connections.empty():
            assert await (await r.app.connection()).gone() == b""


async def test_after_a_revocation_the_next_request_on_the_connection_is_refused() -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(request())
        app.send(answer())
        await browser.answer()
        r.world.revoke(sid=SID, jti="t1")
        browser.send(request())
        assert status_of((await browser.answer())[0]) == 401
        # What it used is not kept for whoever comes next.
        assert await app.gone() == b""
        newer = msgspec.structs.replace(GRANT, jti="t2")
        browser.send(request("/2", credential=f"Cookie: fumarole={KEYS.sign(newer)}"))
        assert (await (await r.app.connection()).head()).startswith(b"GET /2")


async def test_a_cached_decision_ends_with_the_grant_without_an_event() -> None:
    now = [time.time()]
    async with rig(wall=lambda: now[0]) as r:
        browser, app, _ = await r.joined(request())
        app.send(answer())
        await browser.answer()
        now[0] += 4000
        browser.send(request())
        assert status_of((await browser.answer())[0]) == 401


async def test_an_earlier_deadline_replaces_a_later_one() -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(request())
        (connection,) = r.connections
        wheel = connection.context.wheel
        # As the wheel does with who was waiting for the app when it asked.
        wheel.disarm(connection)
        wheel.arm(connection, connection.deadline)
        app.send(answer())
        await browser.answer()
        assert connection.tick * TICK_SECONDS <= connection.deadline + TICK_SECONDS


@pytest.mark.parametrize("target", ["10.0.0.1", "169.254.169.254", "0.0.0.0", "::ffff:10.0.0.1"])
async def test_a_forbidden_target_is_503_and_never_dialled(target: str) -> None:
    async with rig(route_changes={"target": {"host": target}}) as r:
        status, raw = await r.ask(request())
        assert status == 503
        assert b"target_forbidden" in raw


async def test_a_refused_connection_is_502() -> None:
    async with rig(route_changes={"target": {"port": 1}}) as r:
        status, raw = await r.ask(request())
        assert status == 502
        assert b"app_unreachable" in raw


async def test_no_request_is_served_after_the_bus_grace() -> None:
    async with rig() as r:
        r.world.serving = False
        status, raw = await r.ask(request())
        assert (status, b"bus_lost" in raw) == (503, True)
        r.world.serving, r.world.table = True, None
        assert (await r.ask(request()))[0] == 503


async def test_a_silent_controller_stops_new_dials_but_keeps_open_connections() -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(request())
        app.send(answer())
        await browser.answer()
        r.world.dialling = False
        browser.send(request("/2"))
        assert (await app.head()).startswith(b"GET /2")
        status, raw = await r.ask(request())
        assert (status, b"controller_silent" in raw) == (503, True)


async def test_a_head_that_takes_too_long_is_refused() -> None:
    async with rig(limits=Limits(head_seconds=0.2)) as r:
        browser = await r.browser()
        browser.send(b"GET / HTTP/1.1\r\n")
        head, _ = await browser.answer()
        assert status_of(head) == 408
        assert await browser.rest() == b""


async def test_a_dripping_head_does_not_extend_its_deadline() -> None:
    async with rig(limits=Limits(head_seconds=0.2)) as r:
        browser = await r.browser()
        for byte in b"GET / HTTP/1.1\r\nHost: a\r\n" * 20:
            browser.send(bytes([byte]))
            await asyncio.sleep(0.01)
            if r.path.meters.refusals["head_timeout"]:
                break
        assert r.path.meters.refusals["head_timeout"] == 1


async def test_an_idle_connection_is_closed_after_its_timeout() -> None:
    async with rig(limits=Limits(idle_seconds=0.2)) as r:
        browser = await r.browser()
        assert await browser.rest() == b""
        browser, app, _ = await r.joined(request())
        app.send(answer())
        await browser.answer()
        assert await browser.rest() == b""


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"GET /" + b"a" * 70000, 414),
        (b"GET /" + b"a" * 20000 + b" HTTP/1.1\r\nHost: a\r\n\r\n", 414),
        (b"GET / HTTP/1.1\r\nHost: a\r\nX: " + b"a" * 70000, 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: a\r\n" * 300 + b"\r\n", 431),
        (b"GET / HTTP/1.1\r\nHost: a\r\n" + b"X: aaaaaaaaaa\r\n" * 6000 + b"\r\n", 431),
    ],
)
async def test_oversize_heads_are_431_or_414(raw: bytes, status: int) -> None:
    async with rig() as r:
        browser = await r.browser()
        browser.send(raw)
        assert status_of((await browser.answer())[0]) == status
        assert await browser.gone() == b""


async def test_a_refused_upload_is_drained_so_that_the_response_arrives() -> None:
    async with rig(limits=Limits(linger_seconds=0.5)) as r:
        browser = await r.browser()
        fields = (FROM_HERE, "Content-Length: 100000000")
        browser.send(request("/", *fields, method="POST", credential=None))
        for _ in range(50):
            browser.send(b"x" * 65536)
            await asyncio.sleep(0)
        head, _ = await browser.answer()
        assert status_of(head) == 401
        assert b"Connection: close" in head
        assert await browser.rest() == b""
        assert r.app.count == 0


async def test_a_whole_request_that_is_refused_keeps_the_connection() -> None:
    async with rig() as r:
        browser = await r.browser()
        browser.send(request(credential=None))
        head, _ = await browser.answer()
        assert status_of(head) == 401
        assert b"Connection" not in head
        browser.send(request(method="HEAD", credential=None))
        head = await browser.head()
        assert b"Content-Length: " in head
        browser.send(request("/in"))
        app = await r.app.connection()
        assert (await app.head()).startswith(b"GET /in")


async def test_a_drain_finishes_responses_and_accepts_no_new_requests() -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(request())
        idle = await r.browser()
        await asyncio.sleep(0.01)
        r.path.drain()
        r.path.close_idle()
        assert await idle.rest() == b""
        app.send(answer(b"last"))
        head, body = await browser.answer()
        assert body == b"last"
        assert b"Connection: close" in head
        assert await browser.rest() == b""


async def test_no_task_or_connection_is_left_behind() -> None:
    async with rig() as r:
        for n in range(50):
            browser, app, _ = await r.joined(request() if n % 2 else upgrade())
            (browser if n % 3 else app).reset()
        await asyncio.sleep(0.1)
        assert all(front.upstream is None for front in r.connections)
        for peer in r.peers:
            peer.close()
        await asyncio.sleep(0.1)
        assert not r.connections
        assert len(r.live) == 0
        assert len(r.path.pool) == 0
        assert not r.path.background_tasks
