"""Tests an application on a listener of its own."""

from __future__ import annotations

import asyncio
import json
from contextlib import AsyncExitStack, suppress

import aiohttp
import pytest
from aiohttp import web

from shared.runtime import listeners
from shared.runtime.listeners import listening


async def test_no_response_names_the_server_software() -> None:
    async def refuse(_request: web.Request) -> web.Response:
        raise web.HTTPForbidden

    app = web.Application()
    app.add_routes([web.get("/refused", refuse)])
    async with (
        listening(app, ("127.0.0.1", 0)) as (host, port),
        aiohttp.ClientSession(f"http://{host}:{port}") as client,
    ):
        for path in ("/refused", "/missing"):
            async with client.get(path) as response:
                assert response.headers["Server"] == "fumarole"


@pytest.mark.parametrize(
    "sent",
    [
        b"Bearer-secret\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nContent-Length: secret\r\n\r\n",
        b"GET /" + b"secret" * 2000 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: a\r\nAuthorization: secret\0\r\n\r\n",
    ],
    ids=["garbage", "length", "long", "control"],
)
async def test_malformed_http_is_refused_in_json_without_quoting_it(sent: bytes) -> None:
    async with listening(web.Application(), ("127.0.0.1", 0)) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(sent)
        async with asyncio.timeout(30):
            head, _, body = (await reader.read()).partition(b"\r\n\r\n")
        writer.close()
    assert head.startswith(b"HTTP/1.0 400 ")
    assert json.loads(body) == {"code": "bad_request", "message": "Bad Request."}
    assert b"Content-Type: application/json" in head
    assert b"Server: fumarole" in head
    assert b"aiohttp" not in head
    assert b"secret" not in head + body


@pytest.mark.parametrize("coding", ["gzip", "deflate", "br", "zstd"])
async def test_no_body_is_decoded_before_authentication(
    coding: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def refuse(_request: web.Request) -> web.Response:
        return web.Response(status=401)

    app = web.Application()
    app.add_routes([web.post("/", refuse)])
    headers = {"Content-Encoding": coding}
    async with (
        listening(app, ("127.0.0.1", 0)) as (host, port),
        aiohttp.ClientSession(f"http://{host}:{port}") as client,
    ):
        for _ in range(2):
            async with client.post("/", data=b"garbage", headers=headers) as response:
                assert response.status == 401
    assert not caplog.records


async def until_ended(reader: asyncio.StreamReader) -> None:
    async with asyncio.timeout(30):
        with suppress(ConnectionError):
            await reader.read()


@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: a\r\n"], ids=["nothing", "half"])
async def test_a_connection_without_a_first_head_is_closed_at_its_deadline(
    sent: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listeners, "HEAD_SECONDS", 0.05)
    async with listening(web.Application(), ("127.0.0.1", 0)) as address:
        reader, writer = await asyncio.open_connection(*address)
        writer.write(sent)
        await until_ended(reader)
        writer.close()


@pytest.mark.parametrize(
    "before", [b"", b"GET / HTTP/1.1\r\nHost: a\r\n\r\n"], ids=["first", "next"]
)
async def test_a_head_is_bounded_and_a_body_is_not(before: bytes) -> None:
    """Unbounded, a thousand heads that do not end take 2 GB."""

    async def length(request: web.Request) -> web.Response:
        return web.Response(text=f"{len(await request.read())} bytes")

    app = web.Application(client_max_size=2 << 20)
    app.router.add_route("*", "/", length)
    head = b"Host: a\r\nConnection: close\r\n"
    filler = b"".join(b"x-%d: %s\r\n" % (number, b"a" * 4000) for number in range(60))
    async with listening(app, ("127.0.0.1", 0)) as address, AsyncExitStack() as ends:
        reader, writer = await connected(address, ends)
        writer.write(before + b"GET / HTTP/1.1\r\n" + head + filler)
        for _ in range(20):
            writer.write(b"y: " + b"a" * 4000 + b"\r\n")
            await asyncio.sleep(0)
        await until_ended(reader)
        reader, writer = await connected(address, ends)
        writer.write(before + b"POST / HTTP/1.1\r\nContent-Length: 1000000\r\n" + head + b"\r\n")
        for _ in range(100):
            writer.write(bytes(10_000))
            await writer.drain()
        async with asyncio.timeout(30):
            assert (await reader.read()).endswith(b"1000000 bytes")


async def test_the_oldest_waiting_connections_are_closed_for_new_ones(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listeners, "MOST_WAITING", 4)
    monkeypatch.setattr(listeners, "LOOK_AFTER", 2)
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def slow(_request: web.Request) -> web.Response:
        asked.set()
        await go_on.wait()
        return web.Response(text="whole")

    app = web.Application()
    app.add_routes([web.get("/", slow)])
    async with listening(app, ("127.0.0.1", 0)) as address, AsyncExitStack() as ends:
        busy = await connected(address, ends)
        busy[1].write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        await asked.wait()
        waiting = [await connected(address, ends) for _ in range(9)]
        await until_ended(waiting[0][0])
        go_on.set()
        async with asyncio.timeout(30):
            assert (await busy[0].read()).endswith(b"whole")
        waiting[-1][1].write(b"GET /missing HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        async with asyncio.timeout(30):
            assert (await waiting[-1][0].read()).startswith(b"HTTP/1.1 404 ")


async def connected(
    address: tuple[str, int], ends: AsyncExitStack
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Return an accepted connection."""
    reader, writer = await asyncio.open_connection(*address)
    ends.callback(writer.close)
    await asyncio.sleep(0.01)
    return reader, writer


async def test_a_client_that_reads_no_response_is_disconnected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listeners, "STALLED_SECONDS", 0.05)
    ended = asyncio.Event()

    async def endless(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(bytes(1 << 20))
        finally:
            ended.set()

    app = web.Application()
    app.add_routes([web.get("/", endless)])
    async with listening(app, ("127.0.0.1", 0)) as address:
        _, writer = await asyncio.open_connection(*address)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\n\r\n")
        async with asyncio.timeout(30):
            await ended.wait()
        writer.close()


async def test_a_failing_handler_leaks_no_details() -> None:
    async def broken(_request: web.Request) -> web.Response:
        raise RuntimeError("secret")

    app = web.Application()
    app.add_routes([web.get("/", broken)])
    async with (
        listening(app, ("127.0.0.1", 0)) as (host, port),
        aiohttp.ClientSession() as client,
        client.get(f"http://{host}:{port}/", headers={"Accept": "text/html"}) as response,
    ):
        assert response.status == 500
        assert (await response.json())["code"] == "internal_server_error"


async def test_a_response_in_progress_is_finished_at_shutdown() -> None:
    begun = asyncio.Event()

    async def slow(_request: web.Request) -> web.Response:
        begun.set()
        await asyncio.sleep(0.05)
        return web.Response(text="whole")

    app = web.Application()
    app.add_routes([web.get("/", slow)])
    async with aiohttp.ClientSession() as client:
        async with listening(app, ("127.0.0.1", 0), shutdown_seconds=30.0) as (host, port):
            asking = asyncio.create_task(client.get(f"http://{host}:{port}/"))
            await begun.wait()
        assert await (await asking).text() == "whole"
        with pytest.raises(aiohttp.ClientConnectorError):
            await client.get(f"http://{host}:{port}/")


async def test_the_body_of_a_refused_request_is_discarded_unparsed() -> None:
    """A million of the smallest chunks take a second to parse."""
    bodies: list[aiohttp.StreamReader] = []

    async def refuse(request: web.Request) -> web.Response:
        bodies.append(request.content)
        return web.Response(status=401)

    app = web.Application()
    app.add_routes([web.post("/", refuse)])
    async with listening(app, ("127.0.0.1", 0)) as address, AsyncExitStack() as ends:
        reader, writer = await connected(address, ends)
        chunks = b"1\r\nx\r\n" * 100_000
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks)
        async with asyncio.timeout(60):
            head = await reader.readuntil(b"\r\n\r\n")
            await writer.drain()
            writer.write_eof()
            assert await reader.read() == b"", "the response to the rest of the body"
    assert head.startswith(b"HTTP/1.1 401 ")
    assert b"Connection: close" in head
    assert bodies[0].total_bytes < 50_000


async def test_a_connection_stays_open_if_the_body_of_a_refused_request_has_arrived() -> None:
    app = web.Application()
    async with listening(app, ("127.0.0.1", 0)) as address, AsyncExitStack() as ends:
        reader, writer = await connected(address, ends)
        for _ in range(2):
            body = b"x" * 2000
            writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 2000\r\n\r\n" + body)
            async with asyncio.timeout(30):
                head = await reader.readuntil(b"\r\n\r\n")
                await reader.readuntil(b"404: Not Found")
            assert b"Connection: close" not in head


async def test_input_is_parsed_completely_although_in_slices() -> None:
    """Bodies larger than what may wait for a handler, then pipelined requests, all in one write."""

    async def echo(request: web.Request) -> web.Response:
        await asyncio.sleep(0.01)
        return web.Response(body=await request.read())

    app = web.Application(client_max_size=8 << 20)
    app.router.add_route("*", "/", echo)
    large = bytes(range(256)) * (4 << 10)
    chunked = b"".join(
        b"%x\r\n%s\r\n" % (size, b"y" * size) for size in (1, 700, 70_000) for _ in range(30)
    )
    requests = (
        b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: %d\r\n\r\n%s" % (len(large), large)
        + b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n"
        + chunked
        + b"0\r\n\r\n"
        + b"GET / HTTP/1.1\r\nHost: a\r\n\r\n" * 20
        + b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n"
    )
    async with listening(app, ("127.0.0.1", 0)) as address, AsyncExitStack() as ends:
        reader, writer = await connected(address, ends)
        writer.write(requests)
        async with asyncio.timeout(60):
            received = await reader.read()
    assert received.count(b"HTTP/1.1 200 OK") == 23
    assert large in received
    assert received.count(b"y") >= (1 + 700 + 70_000) * 30


UPGRADE = (
    b"GET / HTTP/1.1\r\nHost: a\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Version: 13\r\nSec-WebSocket-Key: AAAAAAAAAAAAAAAAAAAAAA==\r\n\r\n"
)


async def test_what_follows_a_declined_upgrade_is_not_parsed_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(listeners, "SLICES_SECONDS", 1e-5)
    parsed: list[int] = []

    async def refuse(request: web.Request) -> web.Response:
        parsed.append(request.content.total_bytes)
        await asyncio.sleep(0.05)
        return web.Response(status=401)

    app = web.Application()
    app.router.add_route("*", "/", refuse)
    async with listening(app, ("127.0.0.1", 0)) as address, AsyncExitStack() as ends:
        reader, writer = await connected(address, ends)
        chunks = b"1\r\nx\r\n" * 100_000
        writer.write(UPGRADE)
        writer.write(b"POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n" + chunks)
        async with asyncio.timeout(60):
            for _ in range(2):
                assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 401 ")
    assert parsed[0] == 0
    assert parsed[1] < 8000


async def test_all_requests_behind_a_declined_upgrade_are_served() -> None:
    async def count(request: web.Request) -> web.Response:
        await asyncio.sleep(0.01)
        return web.Response(text=f"counted {len(await request.read())}")

    app = web.Application()
    app.router.add_route("*", "/", count)
    async with listening(app, ("127.0.0.1", 0)) as address, AsyncExitStack() as ends:
        reader, writer = await connected(address, ends)
        post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 200000\r\n\r\n"
        writer.write(UPGRADE + post + bytes(200_000) + UPGRADE)
        writer.write(b"GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        async with asyncio.timeout(60):
            received = await reader.read()
    sizes = [part.split(b"HTTP")[0] for part in received.split(b"counted ")[1:]]
    assert sizes == [b"0", b"200000", b"0", b"0"]


async def test_all_messages_that_follow_an_upgrade_at_once_are_received() -> None:
    async def count(request: web.Request) -> web.StreamResponse:
        await asyncio.sleep(0.01)
        socket = web.WebSocketResponse()
        await socket.prepare(request)
        sizes = [len(message.data) async for message in socket]
        counted.set_result(sizes)
        return socket

    counted: asyncio.Future[list[int]] = asyncio.get_running_loop().create_future()
    app = web.Application()
    app.add_routes([web.get("/", count)])
    async with listening(app, ("127.0.0.1", 0)) as address, AsyncExitStack() as ends:
        _, writer = await connected(address, ends)
        frame = b"\x82\xfe\x03\xe8" + bytes(4 + 1000)
        writer.write(UPGRADE + frame * 300 + b"\x88\x80" + bytes(4))
        async with asyncio.timeout(60):
            assert await counted == [1000] * 300


async def test_an_error_of_the_parser_ends_its_connection_alone(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    parse = web.RequestHandler.data_received

    def fail(self: web.RequestHandler, data: bytes) -> None:
        if b"!" in data:
            raise RuntimeError("a defect")
        parse(self, data)

    async def count(request: web.Request) -> web.Response:
        return web.Response(text=f"counted {len(await request.read())}")

    monkeypatch.setattr(web.RequestHandler, "data_received", fail)
    app = web.Application()
    app.router.add_route("*", "/", count)
    post = b"POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 50000\r\n\r\n"
    async with listening(app, ("127.0.0.1", 0)) as address, AsyncExitStack() as ends:
        several = [await connected(address, ends) for _ in range(4)]
        for (_, writer), last in zip(several, (b"x", b"!", b"x", b"x"), strict=True):
            writer.write(post + b"x" * 49_999 + last)
        for reader, _ in several[:1] + several[2:]:
            async with asyncio.timeout(60):
                await reader.readuntil(b"counted 50000")
        async with asyncio.timeout(60):
            with suppress(ConnectionResetError):
                assert await several[1][0].read() == b""
    assert "a defect" in caplog.text
