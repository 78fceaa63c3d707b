"""Tests the behaviour of a running gateway that tests/contract does not cover."""

from __future__ import annotations

import asyncio
import signal
import socket
import ssl
from pathlib import Path

import pytest

from gateway.core.access.opening import MAX_BODY_BYTES
from shared.bus import connect
from tests.gateway.bus.following import published
from tests.gateway.conftest import World
from tests.gateway.http import code_of
from tests.gateway.process import GatewayProcess
from tests.gateway.test_tls import Pair
from tests.programs import RedisServer, redis_program


async def test_silent_tls_clients_do_not_delay_shutdown(tmp_path: Path) -> None:
    pair = Pair(tmp_path / "tls")
    settings = {
        "FUMAROLE_GATEWAY_TLS_CERT_FILE": str(pair.certificate),
        "FUMAROLE_GATEWAY_TLS_KEY_FILE": str(pair.key),
        "FUMAROLE_GATEWAY_DRAIN_SECONDS": "60",
    }
    with RedisServer(redis_program(), tmp_path) as server:
        client = connect(server.url)
        await published(client)
        await client.aclose()
        async with GatewayProcess(tmp_path, server.url, **settings) as gateway:
            context = ssl.create_default_context(cafile=pair.certificate)
            plain = socket.create_connection(gateway.public)
            # Not asyncio's TLS, which would answer the gateway's close_notify.
            with await asyncio.to_thread(context.wrap_socket, plain, server_hostname="localhost"):
                gateway.signal(signal.SIGTERM)
                assert await gateway.wait(seconds=20) == 0


ODD_HEADS = {
    "more fields than aiohttp takes": [*(f"X-{n}: 1" for n in range(120)), *["Accept: */*"] * 120],
    "a field twice": ["User-Agent: a", "User-Agent: b", "ETag: a", "ETag: b", "Server: x"],
    "a type twice": ["Content-Type: text/plain", "Content-Type: text/plain"],
    "a draft's key": ["Sec-WebSocket-Key1: x"],
    "an unknown expectation": ["Expect: pigs"],
}


@pytest.mark.parametrize("fields", ODD_HEADS.values(), ids=ODD_HEADS)
async def test_any_head_gets_a_gateway_response_for_a_page(world: World, fields: list[str]) -> None:
    sid = await world.publish()
    connection = await world.gateway.connect()
    lines = ["POST /.fumarole/open HTTP/1.1", f"Host: {world.gateway.host(sid)}", *fields]
    await connection.send("\r\n".join([*lines, "Content-Length: 2", "", "{}"]).encode())
    response = await connection.answer()
    assert (response.status, code_of(response)) == (400, "bad_request")
    assert response.headers["server"] == "fumarole"
    await connection.close()


async def test_an_oversize_content_length_is_refused_before_the_body_arrives(
    world: World,
) -> None:
    sid = await world.publish()
    connection = await world.gateway.connect()
    lines = ["POST /.fumarole/open HTTP/1.1", f"Host: {world.gateway.host(sid)}"]
    lines += [f"Content-Length: {MAX_BODY_BYTES + 1}", "", ""]
    await connection.send("\r\n".join(lines).encode())
    response = await connection.answer()
    assert (response.status, code_of(response)) == (413, "body_too_large")
    await connection.close()


@pytest.mark.parametrize(("version", "told"), [("1.0", False), ("1.1", True)])
async def test_a_page_sends_100_continue_only_to_http_1_1(
    world: World, version: str, told: bool
) -> None:
    sid = await world.publish()
    connection = await world.gateway.connect()
    lines = [f"POST /.fumarole/open HTTP/{version}", f"Host: {world.gateway.host(sid)}"]
    lines += ["Expect: 100-continue", "Content-Length: 2", "", ""]
    await connection.send("\r\n".join(lines).encode())
    if told:
        assert (await connection.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 100 ")
    await connection.send(b"{}")
    assert code_of(await connection.answer()) == "bad_request"
    await connection.close()
