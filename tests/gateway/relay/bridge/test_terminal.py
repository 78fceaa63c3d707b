"""Terminals through a real gateway, with a small hub that checks every attach token."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from http import HTTPStatus

import pytest
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import InvalidStatus
from websockets.http11 import Request, Response
from websockets.typing import Subprotocol

from gateway.core.fragments import FRAGMENT_BYTES
from gateway.relay.bridge.terminal import hub_query
from gateway.relay.bridge.websocket_bridge import ANSWER_SECONDS
from shared.link import Attach, AttachTokens
from tests.gateway.browser import ClientConnection, open_socket
from tests.gateway.conftest import World

PROTOCOL = "fumarole.terminal.v1"
PATH = "/terminals/shell-1"

Talk = Callable[[ServerConnection], Awaitable[None]]


class Hub:
    """A hub that attaches any client with a valid token, and echoes."""

    def __init__(self, link_key: bytes, talk: Talk | None = None) -> None:
        self._tokens = AttachTokens(link_key)
        self._talk = talk or self._echo
        self.port = 0
        self.attached: list[Attach] = []
        self.headers: list[dict[str, str]] = []
        self.queries: list[str] = []
        self.received: list[str | bytes] = []
        self.closed = asyncio.Event()
        self.status: HTTPStatus | None = None
        self.slow = asyncio.Event()
        self.slow.set()

    async def check(self, connection: ServerConnection, request: Request) -> Response | None:
        """Accept a valid token."""
        await self.slow.wait()
        self.headers.append(dict(request.headers.raw_items()))
        if self.status is not None:
            return connection.respond(self.status, "no\n")
        self.queries.append(request.path.partition("?")[2])
        if request.path.partition("?")[0] != PATH:
            return connection.respond(HTTPStatus.NOT_FOUND, "no\n")
        scheme, _, token = request.headers["Authorization"].partition(" ")
        assert scheme == "Bearer"
        self.attached.append(self._tokens.verify(token, now=time.time()))
        return None

    async def serve_one(self, socket: ServerConnection) -> None:
        """Serve one gateway."""
        try:
            await self._talk(socket)
        finally:
            self.closed.set()

    async def _echo(self, socket: ServerConnection) -> None:
        mode = self.attached[-1].mode
        first = {"type": "attached", "mode": mode, "resumed": False, "cols": 80, "rows": 24}
        await socket.send(json.dumps(first))
        await socket.send(b"$ ")
        async for message in socket:
            self.received.append(message)
            if isinstance(message, bytes):
                await socket.send(message)


@asynccontextmanager
async def hub_of(world: World, talk: Talk | None = None) -> AsyncIterator[Hub]:
    hub = Hub(world.gateway.link_key, talk)
    async with serve(
        hub.serve_one,
        "127.0.0.1",
        0,
        subprotocols=[Subprotocol(PROTOCOL)],
        process_request=hub.check,
    ) as server:
        hub.port = next(iter(server.sockets)).getsockname()[1]
        yield hub


async def publish(world: World, hub: Hub) -> str:
    return await world.publish(kind="terminal", port=hub.port, target={"base_path": PATH})


@asynccontextmanager
async def typing(
    world: World, sid: str, *, query: str = "", **claims: str
) -> AsyncIterator[ClientConnection]:
    cookie = await world.gateway.open(sid, kind="terminal", **claims)
    path = "/.fumarole/connect" + query
    async with open_socket(
        world.gateway, sid, path=path, cookie=cookie, protocol=PROTOCOL
    ) as socket:
        assert socket.subprotocol == PROTOCOL
        yield socket


async def read(socket: ClientConnection) -> str | bytes:
    async with asyncio.timeout(5):
        return await socket.recv()


async def read_close(socket: ClientConnection) -> tuple[int, str]:
    async with asyncio.timeout(5):
        await socket.wait_closed()
    assert socket.close_code is not None
    return socket.close_code, socket.close_reason or ""


async def test_the_hub_receives_the_attach_token_and_no_client_field(
    world: World,
) -> None:
    async with hub_of(world) as hub:
        sid = await publish(world, hub)
        async with typing(world, sid, sub="grace") as socket:
            await read(socket)
        (attach,) = hub.attached
        assert (attach.sid, attach.sub, attach.mode) == (sid, "grace", "control")
        # By which grant, so that the hub knows what a revocation is about.
        assert attach.grant is not None
        assert attach.grant.kid == world.gateway.signer.kid
        assert len(attach.grant.jti) == 32
        assert abs(attach.grant.issued_at - time.time()) < 300
        (headers,) = hub.headers
        assert not {"Cookie", "Origin", "Fumarole-Token"} & headers.keys()
        assert headers["Host"] == f"127.0.0.1:{hub.port}"


@pytest.mark.parametrize(
    ("query", "told"),
    [
        (b"", ""),
        (b"?after=12&stream=0af&shell=5f3a", "after=12&stream=0af&shell=5f3a"),
        (b"?client=0af&client=A", "client=0af"),
        (b"?after=-1000000", "after=-1000000"),
        (b"?after=1&after=2", "after=2"),
        (b"?after=1%20&stream=A&shell=../x&stream=", ""),
        (b"?after=x&new&token=secret&shell=a", "shell=a"),
        (b"?after=1234567890123456", ""),
        (b"?shell=a?after=1", ""),
        (b"?" + b"x=1&" * 5000 + b"after=1", ""),
    ],
)
def test_the_hub_receives_only_well_formed_query_parameters(query: bytes, told: str) -> None:
    head = b"GET /.fumarole/connect" + query + b" HTTP/1.1\r\nHost: a\r\n\r\n"
    assert hub_query(head) == told


async def test_input_of_a_terminal_viewer_is_dropped(world: World) -> None:
    async with hub_of(world) as hub:
        sid = await publish(world, hub)
        async with typing(world, sid, mode="view") as socket:
            assert json.loads(await read(socket))["mode"] == "view"
            await socket.send(b"rm -rf /\n")
            await socket.send([b"in ", b"pieces"])
            await socket.send('{"type":"resize","cols":1,"rows":1}')
            await socket.send('{"type":"renew"}')
            await socket.send(['{"type":"res', 'ize","cols":1,"rows":1}'])
            await socket.send("{not json")
            await socket.send('["resize"]')
            await socket.send('{"type":"hello"}')
            async with asyncio.timeout(5):
                while not hub.received:
                    await asyncio.sleep(0.005)
        assert hub.received == ['{"type":"hello"}']


async def test_no_101_is_sent_before_the_101_of_the_hub(world: World) -> None:
    async with hub_of(world) as hub:
        sid = await publish(world, hub)
        hub.slow.clear()
        cookie = await world.gateway.open(sid, kind="terminal")
        opening = asyncio.ensure_future(
            open_socket(world.gateway, sid, cookie=cookie, protocol=PROTOCOL).__aenter__()
        )
        await asyncio.sleep(0.3)
        assert not opening.done()
        hub.slow.set()
        socket = await opening
        await read(socket)
        await socket.close()


async def test_an_access_right_that_ends_during_the_hub_handshake_is_refused(world: World) -> None:
    async with hub_of(world) as hub:
        sid = await publish(world, hub)
        hub.slow.clear()
        cookie = await world.gateway.open(sid, kind="terminal")
        opening = asyncio.ensure_future(
            open_socket(world.gateway, sid, cookie=cookie, protocol=PROTOCOL).__aenter__()
        )
        await asyncio.sleep(0.2)
        await world.revoke(sid=sid)
        with pytest.raises(InvalidStatus) as refused:
            await opening
        assert refused.value.response.status_code == 401
        hub.slow.set()


@asynccontextmanager
async def attaching(world: World, hub: Hub) -> AsyncIterator[tuple[str, ClientConnection]]:
    """A socket whose upgrade was accepted early, while *hub* is still connecting."""
    sid = await publish(world, hub)
    hub.slow.clear()
    async with typing(world, sid, query="?after=0&answer=soon") as socket:
        assert not hub.attached
        yield sid, socket


async def test_a_slow_hub_delays_no_other_upgrade(world: World) -> None:
    async with hub_of(world) as hub, attaching(world, hub) as (_, socket):
        await socket.send(b"typed meanwhile")
        hub.slow.set()
        assert json.loads(await read(socket))["type"] == "attached"
        assert await read(socket) == b"$ "
        assert await read(socket) == b"typed meanwhile"


async def test_input_during_the_hub_handshake_is_buffered_up_to_a_limit(world: World) -> None:
    async with hub_of(world) as hub, attaching(world, hub) as (_, socket):
        # Far more than sockets' buffers hold.
        sending = asyncio.ensure_future(send_all(socket, bytes(1000), 15_000))
        done, _ = await asyncio.wait([sending], timeout=1)
        assert not done, "it is not read for ever"
        hub.slow.set()
        await read(socket)
        echoed = len(await read(socket)) - len(b"$ ")
        while echoed < 15_000_000:
            echoed += len(await read(socket))
        await sending


async def send_all(socket: ClientConnection, data: bytes, times: int) -> None:
    for _ in range(times):
        await socket.send(data)


async def test_a_client_without_early_accept_gets_the_status_of_a_slow_hub(world: World) -> None:
    async with hub_of(world) as hub:
        sid = await publish(world, hub)
        hub.slow.clear()
        asyncio.get_running_loop().call_later(1.5 * ANSWER_SECONDS, hub.slow.set)
        hub.status = HTTPStatus.FORBIDDEN
        with pytest.raises(InvalidStatus) as refused:
            async with typing(world, sid):
                pass
    assert refused.value.response.status_code == 502


@pytest.mark.parametrize("how", ["no", "ended"])
async def test_the_result_of_a_slow_hub_is_reported_by_a_close(world: World, how: str) -> None:
    async with hub_of(world) as hub, attaching(world, hub) as (sid, socket):
        if how == "ended":
            await world.revoke(sid=sid)
            assert (await read_close(socket))[0] == 4401
        else:
            hub.status = HTTPStatus.SERVICE_UNAVAILABLE
            hub.slow.set()
            assert (await read_close(socket))[0] == 1012
        hub.slow.set()


@pytest.mark.parametrize(
    ("hubs", "answered"),
    [
        (HTTPStatus.UNAUTHORIZED, 502),
        (HTTPStatus.NOT_FOUND, 502),
        (HTTPStatus.SERVICE_UNAVAILABLE, 503),
        (HTTPStatus.OK, 502),
    ],
)
async def test_a_hub_that_refuses_the_upgrade_fails_it(
    world: World, hubs: HTTPStatus, answered: int
) -> None:
    async with hub_of(world) as hub:
        hub.status = hubs
        sid = await publish(world, hub)
        with pytest.raises(InvalidStatus) as refused:
            async with typing(world, sid):
                pass
        assert refused.value.response.status_code == answered
        assert json.loads(refused.value.response.body or b"{}")["code"]


async def test_a_hub_without_the_subprotocol_is_refused(world: World) -> None:
    async def talk(socket: ServerConnection) -> None:
        await socket.wait_closed()

    async with serve(talk, "127.0.0.1", 0) as server:
        port = next(iter(server.sockets)).getsockname()[1]
        sid = await world.publish(kind="terminal", port=port, target={"base_path": PATH})
        with pytest.raises(InvalidStatus) as refused:
            async with typing(world, sid):
                pass
        assert refused.value.response.status_code == 502


@pytest.mark.parametrize(
    ("code", "reason"), [(4410, "exited"), (1012, "replaced"), (1013, "busy"), (1008, "no")]
)
async def test_the_close_of_the_hub_reaches_the_browser(
    world: World, code: int, reason: str
) -> None:
    async def talk(socket: ServerConnection) -> None:
        await socket.send('{"type":"exit","code":0,"message":"bye"}')
        await socket.close(code, reason)

    async with hub_of(world, talk) as hub:
        sid = await publish(world, hub)
        async with typing(world, sid) as socket:
            assert json.loads(await read(socket))["type"] == "exit"
            assert await read_close(socket) == (code, reason)


async def test_a_hub_that_dies_closes_with_service_restart(world: World) -> None:
    async def talk(socket: ServerConnection) -> None:
        await socket.send(b"$ ")
        socket.transport.abort()

    async with hub_of(world, talk) as hub:
        sid = await publish(world, hub)
        async with typing(world, sid) as socket:
            assert (await read_close(socket))[0] == 1012


async def test_a_hub_that_violates_the_protocol_is_disconnected(world: World) -> None:
    async def talk(socket: ServerConnection) -> None:
        socket.transport.write(b"\xff" * 64)
        await socket.wait_closed()

    async with hub_of(world, talk) as hub:
        sid = await publish(world, hub)
        async with typing(world, sid) as socket:
            assert (await read_close(socket))[0] == 1011


async def test_an_oversize_message_ends_the_connection(world: World) -> None:
    async with hub_of(world) as hub:
        sid = await publish(world, hub)
        async with typing(world, sid) as socket:
            await read(socket)
            await socket.send(bytes((1 << 20) + 1))
            assert (await read_close(socket))[0] == 1009
        async with typing(world, sid) as socket:
            await read(socket)
            await socket.send("x" * 70_000)
            assert (await read_close(socket))[0] == 1008


@pytest.mark.parametrize("mode", ["control", "view"])
async def test_a_non_utf_8_text_ends_the_connection_and_is_not_forwarded(
    world: World, mode: str
) -> None:
    async with hub_of(world) as hub:
        sid = await publish(world, hub)
        async with typing(world, sid, mode=mode) as socket:
            await read(socket)
            whole = '{"type":"ping","of":"ä"}'.encode()
            await socket.send((whole[:-3], whole[-3:]), text=True)
            await socket.send((b'{"type":"ping"', b"\xc3}"), text=True)
            assert (await read_close(socket))[0] == 1007
        await hub.closed.wait()
        assert hub.received == [whole.decode()]


async def test_a_megabyte_of_scrollback_and_of_paste_is_relayed(world: World) -> None:
    block = bytes(range(256)) * 4096

    async def talk(socket: ServerConnection) -> None:
        await socket.send(block)
        async for message in socket:
            await socket.send(message)

    async with hub_of(world, talk) as hub:
        sid = await publish(world, hub)
        async with typing(world, sid) as socket:
            assert await read(socket) == block
            await socket.send(block)
            echoed = b""
            while len(echoed) < len(block):  # a large message is forwarded in parts
                part = await read(socket)
                assert isinstance(part, bytes)
                assert len(part) <= FRAGMENT_BYTES
                echoed += part
            assert echoed == block
