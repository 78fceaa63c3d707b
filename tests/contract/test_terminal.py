"""Tests terminals: how a gateway attaches to the hub, and which messages cross."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from websockets.asyncio.server import ServerConnection
from websockets.asyncio.server import serve as serve_websockets
from websockets.exceptions import ConnectionClosed
from websockets.typing import Subprotocol

from tests.contract import frames
from tests.contract.conftest import Serve
from tests.contract.pipe import Pipe
from tests.contract.rig import Rig, Session
from tests.contract.tokens import verify_hs256

PROTOCOL = "fumarole.terminal.v1"
OFFER = ("Sec-WebSocket-Protocol", PROTOCOL)


def attach_key(rig: Rig) -> bytes:
    """Return the key of attach tokens: HKDF (RFC 5869) of the link key, by SHA-256, no salt."""
    text = Path(rig.process.settings["FUMAROLE_LINK_KEY_FILE"]).read_text()
    drawn = hmac.digest(bytes(32), base64.b64decode(text), hashlib.sha256)
    return hmac.digest(drawn, b"fumarole hub attach" + b"\x01", hashlib.sha256)


class Hub:
    """A hub that holds every terminal; it records its input, and sends what a test asks for."""

    def __init__(self) -> None:
        self.port = 0
        self.attached: list[ServerConnection] = []
        self.heard: list[str | bytes] = []

    async def handle(self, connection: ServerConnection) -> None:
        self.attached.append(connection)
        try:
            async for message in connection:
                self.heard.append(message)
        except ConnectionClosed:
            pass

    async def until_heard(self, message: str | bytes) -> None:
        """Wait until the hub has received *message*."""
        async with asyncio.timeout(5):
            while message not in self.heard:
                await asyncio.sleep(0.005)

    async def until_gone(self) -> None:
        """Wait until the gateway has disconnected."""
        async with asyncio.timeout(5):
            await self.attached[-1].wait_closed()


@pytest_asyncio.fixture(loop_scope="session")
async def hub() -> AsyncIterator[Hub]:
    """Run a hub on a loopback address."""
    hub = Hub()
    async with AsyncExitStack() as stack:
        protocols = [Subprotocol(PROTOCOL)]
        made = serve_websockets(hub.handle, "127.0.0.1", 0, subprotocols=protocols)
        server = await stack.enter_async_context(made)
        hub.port = next(iter(server.sockets)).getsockname()[1]
        yield hub


async def terminal(rig: Rig, hub: Hub, **fields: Any) -> Session:
    """Return a terminal session at *hub*."""
    target = {"scheme": "ws", "port": hub.port, "base_path": "/terminals/x"}
    return await rig.session(kind="terminal", target=target, **fields)


async def attached(rig: Rig, session: Session, **claims: Any) -> Pipe:
    """Return a tunnel to the terminal of *session*."""
    own = rig.own(session, await rig.opened(session, **claims))
    stream, response = await rig.upgrade(session, "/.fumarole/connect", [*own, OFFER])
    assert response.status == 101, response
    assert response.get("Sec-WebSocket-Protocol") == PROTOCOL
    return Pipe(stream)


@pytest.mark.parametrize("mode", ["control", "view"])
async def test_each_attach_carries_a_new_token(rig: Rig, hub: Hub, mode: str) -> None:
    session = await terminal(rig, hub)
    seen = set()
    for _ in range(2):
        await attached(rig, session, mode=mode)
        request = hub.attached[-1].request
        assert request is not None
        scheme, _, token = request.headers["Authorization"].partition(" ")
        assert scheme == "Bearer"
        _, claims = verify_hs256(token, attach_key(rig))
        assert claims["aud"] == "fumarole-hub"
        assert (claims["sid"], claims["sub"]) == (session.sid, session.sub)
        assert claims["mode"] == mode
        now = time.time()
        assert now - 5 < claims["exp"] <= now + 11
        seen.add(claims["jti"])
    assert len(seen) == 2


async def test_the_hub_sees_no_credential_of_the_users(rig: Rig, hub: Hub) -> None:
    session = await terminal(rig, hub)
    cookie = await rig.opened(session)
    bearer = rig.token(session)
    for fields in (
        [*rig.own(session, f"{cookie}; a=1")],
        [("Fumarole-Token", bearer), ("Cookie", "a=1")],
        [("Authorization", f"Bearer {bearer}")],
    ):
        await rig.upgrade(session, "/.fumarole/connect", [*fields, OFFER])
    assert len(hub.attached) >= 2
    for connection in hub.attached:
        assert connection.request is not None
        text = str(dict(connection.request.headers.raw_items())) + connection.request.path
        assert cookie.partition("=")[2] not in text
        assert bearer not in text
        assert connection.request.path.startswith("/terminals/x")


async def test_messages_are_relayed_in_both_directions(rig: Rig, hub: Hub) -> None:
    pipe = await attached(rig, await terminal(rig, hub))
    text = '{"type":"resize","cols":80,"rows":24}'
    pipe.write(text.encode(), opcode=frames.TEXT)
    pipe.write(b"echo \xff\x00\r")
    await hub.until_heard(text)
    await hub.until_heard(b"echo \xff\x00\r")
    await hub.attached[0].send('{"type":"attached"}')
    await hub.attached[0].send(b"\x1b[1mhello\xff")
    assert await pipe.text() == '{"type":"attached"}'
    assert await pipe.read(10) == b"\x1b[1mhello\xff"


async def test_large_output_is_relayed_unchanged(rig: Rig, hub: Hub) -> None:
    pipe = await attached(rig, await terminal(rig, hub))
    data = bytes(range(256)) * 256
    sending = asyncio.create_task(asyncio.wait_for(send_often(hub, data, 40), 20))
    assert await pipe.read(len(data) * 40, 20) == data * 40
    await sending


async def send_often(hub: Hub, data: bytes, times: int) -> None:
    for _ in range(times):
        await hub.attached[0].send(data)


async def test_when_the_client_disconnects_the_hub_connection_is_closed(rig: Rig, hub: Hub) -> None:
    pipe = await attached(rig, await terminal(rig, hub))
    pipe.stream.reset()
    await hub.until_gone()


@pytest.mark.parametrize(
    ("change", "code"),
    [("revoke", 4401), ("remove", 4410), ("starting", 1012), ("target", 1012), ("expired", 4410)],
)
async def test_a_terminal_is_closed_with_the_code_of_its_reason(
    rig: Rig, hub: Hub, change: str, code: int
) -> None:
    session = await terminal(rig, hub)
    pipe = await attached(rig, session)
    await rig.end(session, change)
    assert await pipe.closed() == code
    await hub.until_gone()


async def test_the_hub_is_not_dialled_for_an_unauthorized_user(rig: Rig, serve: Serve) -> None:
    app = await serve()
    target = {"scheme": "ws"}
    session = await rig.session(app, kind="terminal", target=target)
    cookie = ("Cookie", await rig.opened(session))
    origin = ("Origin", session.origin)
    for fields, status in (
        ([OFFER], 401),
        ([OFFER, origin], 401),
        ([OFFER, cookie], 403),
        ([OFFER, cookie, ("Origin", "https://evil.example")], 403),
        ([OFFER, origin, ("Cookie", "fumarole=x")], 401),
    ):
        _, response = await rig.upgrade(session, "/.fumarole/connect", fields)
        assert response.status == status
    assert app.connections == []


async def test_a_terminals_host_serves_only_gateway_pages(rig: Rig, serve: Serve) -> None:
    app = await serve()
    session = await rig.session(app, kind="terminal", target={"scheme": "ws"})
    own = rig.own(session, await rig.opened(session))
    page = await rig.get(session, fields=[*own, ("Accept", "text/html")])
    assert page.status == 200
    assert (page.get("Content-Type") or "").startswith("text/html")
    for method, target in (("POST", "/"), ("GET", "/x"), ("PUT", "/terminals/x")):
        await rig.get(session, target, own, method=method)
    _, response = await rig.upgrade(session, "/terminals/x", own)
    assert response.status != 101
    assert app.connections == []


async def test_a_web_session_has_no_vnc_or_terminal_endpoint(rig: Rig, serve: Serve) -> None:
    app = await serve()
    session, own = await rig.entered(app)
    for protocol in ("binary", PROTOCOL):
        offer = ("Sec-WebSocket-Protocol", protocol)
        _, response = await rig.upgrade(session, "/.fumarole/connect", [*own, offer])
        assert 400 <= response.status < 500
    assert app.connections == []
