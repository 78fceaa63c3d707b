"""The gateway as a process: what operators see of it, how it starts, lives and ends."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed

from shared.bus import connect
from tests.gateway.browser import open_socket
from tests.gateway.bus.following import make_route, published, sid_of
from tests.gateway.conftest import World
from tests.gateway.http import HTML, Connection, code_of
from tests.gateway.process import ROOT, GatewayProcess
from tests.gateway.test_tls import Pair
from tests.gateway.upstreams import App, echo_sockets, listening_on, web_app
from tests.programs import RedisServer, redis_program

# Operators


async def test_the_ops_listener_tells_health_readiness_and_metrics(world: World) -> None:
    assert (await world.gateway.ask_ops("/healthz")).status == 200
    assert (await world.gateway.ask_ops("/readyz")).status == 200
    await world.gateway.ask(sid_of(8), "GET", "/")
    metrics = (await world.gateway.ask_ops("/metrics")).text
    for line in (
        'fumarole_gateway_bus{state="following"} 1.0',
        "fumarole_gateway_seq ",
        "fumarole_gateway_routes{",
        'fumarole_gateway_refusals_total{code="not_found"}',
    ):
        assert line in metrics
    sid = await world.publish()
    told = await world.gateway.ask_ops(f"/debug/routes?host={sid}.apps.localhost")
    assert json.loads(told.body)["host"]["why"] == "served"


# Its life


@asynccontextmanager
async def alone(folder: Path, **settings: str) -> AsyncIterator[tuple[World, RedisServer]]:
    """A gateway and a Redis of this test's own, to be harmed."""
    with RedisServer(redis_program(), folder) as server:
        client = connect(server.url)
        publisher = await published(client)
        try:
            async with GatewayProcess(folder, server.url, **settings) as gateway:
                yield World(gateway, publisher), server
        finally:
            await client.aclose()


async def test_a_restarted_gateway_knows_its_people_again(tmp_path: Path) -> None:
    async with alone(tmp_path) as (world, _), web_app() as app:
        sid = await world.publish(port=app.port)
        cookie = await world.gateway.open(sid)
        world.gateway.kill()
        # Who is there before the route table waits for it, instead of being refused.
        await world.gateway.start(ready=False)
        answer = await world.gateway.ask(sid, "GET", "/", {"Cookie": cookie})
        assert (answer.status, answer.body) == (200, b"hello")


async def test_sigterm_drains_and_ends_in_time(tmp_path: Path) -> None:
    async with alone(tmp_path) as (world, _), echo_sockets() as port:
        sid = await world.publish(port=port)
        cookie = await world.gateway.open(sid)
        async with open_socket(
            world.gateway, sid, cookie=cookie, protocol="x", path="/ws"
        ) as socket:
            start = time.monotonic()
            world.gateway.signal(signal.SIGTERM)
            with pytest.raises(ConnectionClosed) as closed:
                await socket.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1001
        assert await world.gateway.wait() == 0
        assert time.monotonic() - start < 4
        with pytest.raises(ConnectionRefusedError):
            await world.gateway.connect()


async def test_browsers_that_say_nothing_under_tls_do_not_hold_up_the_end(tmp_path: Path) -> None:
    pair = Pair(tmp_path / "tls")
    settings = {
        "FUMAROLE_GATEWAY_TLS_CERT_FILE": str(pair.certificate),
        "FUMAROLE_GATEWAY_TLS_KEY_FILE": str(pair.key),
        "FUMAROLE_GATEWAY_DRAIN_SECONDS": "60",
    }
    async with alone(tmp_path, **settings) as (world, _):
        context = ssl.create_default_context(cafile=pair.certificate)
        plain = socket.create_connection(world.gateway.public)
        # Not asyncio's, which would answer the gateway's close_notify.
        with await asyncio.to_thread(context.wrap_socket, plain, server_hostname="localhost"):
            world.gateway.signal(signal.SIGTERM)
            assert await world.gateway.wait(seconds=20) == 0


async def test_readiness_falls_first_and_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    async with (
        alone(tmp_path, FUMAROLE_GATEWAY_DRAIN_DELAY_SECONDS="60") as (world, _),
        slow_app() as app,
    ):
        sid = await world.publish(port=app.port)
        cookie = await world.gateway.open(sid)
        connection = await world.gateway.connect()
        head = f"GET / HTTP/1.1\r\nHost: {world.gateway.host(sid)}\r\nCookie: {cookie}\r\n\r\n"
        await connection.send(head.encode())
        async with asyncio.timeout(5):
            while not app.connections:
                await asyncio.sleep(0.01)
        world.gateway.signal(signal.SIGTERM)
        async with asyncio.timeout(5):
            while (await world.gateway.ask_ops("/readyz")).status != 503:
                await asyncio.sleep(0.02)
        # Load balancers have not seen it yet: all is as it was.
        assert (await world.gateway.ask(sid, "GET", "/")).status == 401
        start = time.monotonic()
        world.gateway.signal(signal.SIGTERM)
        assert await world.gateway.wait() == 1
        assert time.monotonic() - start < 1
        await connection.close()


@asynccontextmanager
async def slow_app() -> AsyncIterator[App]:
    """An app that takes a request and never answers."""

    class Slow(App):
        async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            await reader.read(-1)
            writer.close()

    app = Slow()
    async with listening_on(app.handle) as app.port:
        yield app


async def test_a_lost_redis_opens_nothing_serves_what_is_known_and_then_closes(
    tmp_path: Path,
) -> None:
    async with (
        alone(tmp_path, FUMAROLE_GATEWAY_BUS_GRACE_SECONDS="1") as (world, server),
        echo_sockets() as port,
        web_app() as app,
    ):
        sid = await world.publish(port=port)
        page = await world.publish(port=app.port)
        cookie = await world.gateway.open(sid)
        reading = await world.gateway.open(page)
        bearer = {"Fumarole-Token": world.gateway.signer.token(page)}
        assert (await world.gateway.ask(page, "GET", "/", bearer)).status == 200
        async with open_socket(
            world.gateway, sid, cookie=cookie, protocol="x", path="/ws"
        ) as socket:
            server.kill()
            answer = await world.gateway.post_token(sid, world.gateway.signer.token(sid))
            assert (answer.status, code_of(answer)) == (503, "bus_lost")
            known = await world.gateway.ask(page, "GET", "/", {"Cookie": reading})
            assert known.status == 200
            assert (await world.gateway.ask(page, "GET", "/", bearer)).status == 200
            fresh = {"Fumarole-Token": world.gateway.signer.token(page)}
            assert (await world.gateway.ask(page, "GET", "/", fresh)).status == 503
            assert (await world.gateway.ask_ops("/readyz")).status == 200
            with pytest.raises(ConnectionClosed) as closed:
                async with asyncio.timeout(12):
                    await socket.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1012
        lost = await world.gateway.ask(page, "GET", "/", {"Cookie": reading})
        assert (lost.status, code_of(lost)) == (503, "bus_lost")
        assert int(lost.headers["retry-after"]) > 0
        assert (await world.gateway.ask_ops("/readyz")).status == 503


async def test_a_silent_controller_leaves_what_is_open_and_dials_nothing(tmp_path: Path) -> None:
    async with (
        alone(tmp_path, FUMAROLE_GATEWAY_CONTROLLER_GRACE_SECONDS="1") as (world, _),
        echo_sockets() as port,
        web_app() as app,
    ):
        sid = await world.publish(port=port)
        page = await world.publish(port=app.port)
        cookie, reading = await world.gateway.open(sid), await world.gateway.open(page)
        async with open_socket(
            world.gateway, sid, cookie=cookie, protocol="x", path="/ws"
        ) as socket:
            await asyncio.sleep(1.3)
            answer = await world.gateway.ask(page, "GET", "/", {"Cookie": reading})
            assert (answer.status, code_of(answer)) == (503, "controller_silent")
            assert app.connections == 0
            await socket.send("still there")
            assert await socket.recv() == "still there"
            await world.publisher.beat(now=time.time())
            await asyncio.sleep(0.1)
            assert (await world.gateway.ask(page, "GET", "/", {"Cookie": reading})).status == 200


async def test_a_token_from_before_redis_forgot_is_503_for_both_uses(tmp_path: Path) -> None:
    async with alone(tmp_path) as (world, _):
        sid = await world.publish()
        route = make_route(sid, hosts=[f"{sid}.apps.localhost"])
        raw = json.dumps(route).encode()
        await world.publisher.rebuild(
            {sid: raw}, {}, epoch="e2", now=time.time(), since=time.time()
        )
        await world.settled()
        token = world.gateway.signer.token(sid)
        answer = await world.gateway.post_token(sid, token)
        assert (answer.status, code_of(answer)) == (503, "token_unsure")
        answer = await world.gateway.ask(sid, "GET", "/", {"Fumarole-Token": token})
        assert (answer.status, code_of(answer)) == (503, "token_unsure")


async def test_a_gateway_without_a_redis_starts_says_so_and_waits(tmp_path: Path) -> None:
    gateway = GatewayProcess(tmp_path, f"unix://{tmp_path}/redis.sock")
    try:
        await gateway.start(ready=False)
        ready = await gateway.ask_ops("/readyz")
        assert ready.status == 503
        assert "no route table" in ready.text
        assert (await gateway.ask(sid_of(1), "GET", "/")).status == 503
        with RedisServer(redis_program(), tmp_path) as server:
            client = connect(server.url)
            await published(client)
            await client.aclose()
            async with asyncio.timeout(10):
                while (await gateway.ask_ops("/readyz")).status != 200:
                    await asyncio.sleep(0.05)
    finally:
        gateway.kill()


async def test_bad_settings_end_it_with_every_problem(tmp_path: Path) -> None:
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "gateway"],
        env={"PATH": "/usr/bin:/bin", "FUMAROLE_GATEWAY_LISTEN": "nowhere"},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.count("error: FUMAROLE_") >= 7
    assert "Traceback" not in done.stderr


async def test_an_address_that_is_taken_ends_it_with_a_word(tmp_path: Path) -> None:
    taken = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    gateway = GatewayProcess(
        tmp_path, f"unix://{tmp_path}/no", FUMAROLE_GATEWAY_LISTEN=f"127.0.0.1:{port}"
    )
    try:
        with pytest.raises(AssertionError):
            await gateway.start()
        assert await gateway.wait() == 1
        assert "cannot start" in gateway.log()
        assert "Traceback" not in gateway.log()
    finally:
        taken.close()
        await taken.wait_closed()


async def test_no_secret_is_found_in_what_it_wrote(tmp_path: Path) -> None:
    async with alone(tmp_path) as (world, _), web_app() as app:
        sid = await world.publish(port=app.port)
        token = world.gateway.signer.token(sid, jti="canary-jti")
        cookie = (await world.gateway.post_token(sid, token)).headers["set-cookie"]
        value = cookie.partition(";")[0].partition("=")[2]
        seen = b""
        for headers in (
            {"Cookie": f"fumarole={value}x"},
            {"Fumarole-Token": token},
            {"Authorization": f"Bearer {token}"},
            {"Cookie": f"fumarole={value}; fumarole={value}"},
        ):
            for accept in ({}, HTML):
                answer = await world.gateway.ask(sid, "GET", f"/?token={token}", headers | accept)
                seen += answer.body + str(answer.headers).encode()
        seen += (await world.gateway.ask_ops("/metrics")).body
        seen += (await world.gateway.ask_ops(f"/debug/routes?host={sid}.apps.localhost")).body
        # In the audit log it names the grant; it opens nothing.
        assert b"canary-jti" not in seen
        seen += world.gateway.log().encode()
        secrets = [token, value, (tmp_path / "link").read_text()]
        for secret in [*secrets, (tmp_path / "grant").read_text()]:
            assert secret.encode() not in seen


async def test_pages_answer_one_request_and_never_the_next(world: World) -> None:
    sid = await world.publish()
    connection: Connection = await world.gateway.connect()
    head = f"GET /.fumarole/open HTTP/1.1\r\nHost: {world.gateway.host(sid)}\r\n\r\n".encode()
    await connection.send(head + head)
    answer = await connection.answer()
    assert answer.status == 200
    assert answer.headers["connection"] == "close"
    async with asyncio.timeout(5):
        assert await connection.reader.read() == b""
    await connection.close()
