"""Tests that secrets in every possible place appear in no log, at the most verbose level."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest_asyncio
from redis.asyncio import Redis

from shared.bus import connect
from shared.link import Seal
from tests.gateway.bus.following import published, sid_of
from tests.gateway.conftest import World
from tests.gateway.http import make_request
from tests.gateway.process import GatewayProcess
from tests.gateway.upstreams import listening_on
from tests.programs import RedisServer, redis_program

REDIS_PASSWORD = "canary-redis-password"
VNC_PASSWORD = "canary-vnc-password"
HTML = {"Accept": "text/html"}
UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}


@pytest_asyncio.fixture
async def guarded(tmp_path: Path) -> AsyncIterator[tuple[World, Redis]]:
    """Run a gateway at the most verbose level, with a Redis that requires a password."""
    with RedisServer(redis_program(), tmp_path) as server:
        path = server.url.removeprefix("unix://")
        url = f"unix://:{REDIS_PASSWORD}@{path}"
        first = connect(server.url)
        await first.config_set("requirepass", REDIS_PASSWORD)
        await first.aclose()
        client = connect(url)
        publisher = await published(client)
        async with GatewayProcess(
            tmp_path, url, FUMAROLE_LOG_LEVEL="DEBUG", FUMAROLE_LOG_LINES_PER_SECOND="100000"
        ) as gateway:
            yield World(gateway, publisher), client
        await client.aclose()


def credentials(world: World, sid: str, cookie: str) -> list[dict[str, str]]:
    """Return headers with secrets, in places where credentials are read and where they are not."""
    token = world.gateway.signer.token(sid)
    secret = cookie.partition("=")[2]
    return [
        {"Cookie": cookie},
        {"Cookie": f"{cookie}x"},
        {"Cookie": f"{cookie}; {cookie}"},
        {"Cookie": "app=canary-app-cookie; " + cookie},
        {"Fumarole-Token": token},
        {"Fumarole-Token": token + "x"},
        {"Fumarole-Token": "canary-no-token"},
        {"Authorization": f"Bearer {token}"},
        {"Authorization": f"Bearer {token[:-4]}"},
        {"Authorization": "Bearer canary-app-bearer", "Cookie": cookie},
        {"Authorization": "Basic Y2FuYXJ5LWJhc2lj", "Cookie": cookie},
        {"Referer": f"https://x.example/?token={token}", "Cookie": cookie},
        {"Sec-WebSocket-Protocol": token, "Cookie": cookie},
        {"User-Agent": token},
        {"Host": f"{secret}.apps.localhost:1"},
        {"Transfer-Encoding": secret},
        {"Content-Length": token},
        {"Connection": f"cookie, {token}", "Cookie": cookie},
        {f"X-{secret.replace('.', '-')}": "1", "Cookie": cookie},
    ]


async def ask_everything(world: World, sid: str, cookie: str) -> bytes:
    """Send secrets in every possible place, and return all responses."""
    gateway, said = world.gateway, b""
    token = gateway.signer.token(sid)
    for headers in credentials(world, sid, cookie):
        for more in ({}, HTML, UPGRADE | {"Origin": gateway.origin(sid)}):
            for method, path in (("GET", f"/?token={token}"), ("POST", f"/{token}")):
                connection = await gateway.connect()
                raw = make_request(method, path, {"Host": gateway.host(sid), **headers, **more})
                with suppress(OSError, TimeoutError, EOFError):
                    await connection.send(raw)
                    response = await connection.answer(method)
                    if response.status >= 400:
                        said += response.body + str(response.headers).encode()
                await connection.close()
    for body in (token, json.dumps({"token": token + "x"}), json.dumps({"token": [token]}), "{"):
        for content_type in ("application/json", "application/x-www-form-urlencoded", token):
            head = {"Content-Type": content_type}
            response = await gateway.ask(sid, "POST", "/.fumarole/open", head, body.encode())
            said += response.body + str(response.headers).encode()
    return said


async def test_planted_secrets_appear_in_no_output(
    guarded: tuple[World, Redis], tmp_path: Path
) -> None:
    world, client = guarded
    gateway = world.gateway

    async def nonsense(reader: object, writer: object) -> None:
        # An app whose malformed response contains a secret of its own.
        writer.write(b"HTTP/1.1 200 OK\r\nX: canary-app-secret\n\r\n")  # type: ignore[attr-defined]  # a stream's
        writer.close()  # type: ignore[attr-defined]  # a stream's

    async with listening_on(nonsense) as port:
        sid = await world.publish(port=port)
        token = gateway.signer.token(sid)
        opened = await gateway.post_token(sid, token)
        cookie = opened.headers["set-cookie"].partition(";")[0]
        said = await ask_everything(world, sid, cookie)
        desktop, sealed = await publish_desktop(world, port)
        desktop_cookie = await gateway.open(desktop, kind="vnc")
        head = {"Cookie": desktop_cookie, "Origin": gateway.origin(desktop)}
        said += (
            await gateway.ask(
                desktop,
                "GET",
                "/.fumarole/connect",
                head | UPGRADE | {"Sec-WebSocket-Protocol": "binary"},
            )
        ).body
        # A sealed value cannot be opened under another revision; the response must not contain it.
        await world.change(desktop, port=port, kind="vnc", rev=9, sealed=sealed)
        said += (
            await gateway.ask(
                desktop,
                "GET",
                "/.fumarole/connect",
                head | UPGRADE | {"Sec-WebSocket-Protocol": "binary"},
            )
        ).body
    # First Redis does not know us any more, then it has another password.
    await client.config_set("requirepass", "canary-other-password")
    await client.client_kill_filter(_type="normal", skipme=True)
    for _ in range(3):
        said += (await gateway.post_token(sid, gateway.signer.token(sid))).body
    said += (await gateway.ask_ops("/metrics")).body
    said += (await gateway.ask_ops("/readyz")).body
    for host in (sid, desktop):
        said += (await gateway.ask_ops(f"/debug/routes?host={host}.apps.localhost")).body
    log = gateway.log()
    assert '"message": "listening"' in log
    said += log.encode()
    planted = [token, cookie.partition("=")[2], desktop_cookie.partition("=")[2], sealed]
    planted += [token.rpartition(".")[2], token.split(".")[1]]
    planted += [VNC_PASSWORD, REDIS_PASSWORD, "canary", "Y2FuYXJ5LWJhc2lj"]
    planted += [(tmp_path / name).read_text() for name in ("link", "grant")]
    planted += [base64.b64decode((tmp_path / name).read_text()).hex() for name in ("link", "grant")]
    planted += [str(gateway.signer.jwk()["x"])]
    found = [secret[:20] for secret in planted if secret.encode() in said]
    assert not found


async def publish_desktop(world: World, port: int) -> tuple[str, str]:
    """Publish a desktop with a sealed password; return its sid and the sealed text."""
    sid = sid_of(77_777_777)
    seal = Seal(world.gateway.link_key)
    sealed = seal.seal({"vnc_password": VNC_PASSWORD}, sid=sid, rev=1, random=os.urandom)
    await world.change(sid, port=port, kind="vnc", rev=1, sealed=sealed)
    return sid, sealed
