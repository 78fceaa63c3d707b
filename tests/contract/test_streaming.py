"""Tests unbuffered bodies, early responses, and how connections end."""

from __future__ import annotations

import asyncio
import hashlib
import random

import pytest

from tests.contract.conftest import Serve
from tests.contract.messages import (
    read_chunks,
    read_request_head,
    read_response,
    request,
    response,
)
from tests.contract.rig import Rig
from tests.contract.streams import Stream, StreamEnded
from tests.contract.upstream import OK, PATIENCE_SECONDS, App, raw_response

BIG = 8 * 1024 * 1024


# 1xx responses


async def continuing(app: App, stream: Stream) -> None:
    """Ask for the body with 100 Continue, then send it back."""
    while True:
        head = await app.head(stream)
        stream.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        size = int(head.get("Content-Length") or "0")
        body = await stream.read_exactly(size) if size else await read_chunks(stream)
        stream.send(response("200 OK", body=body))


@pytest.mark.parametrize("kind", ["length", "chunked"])
async def test_100_continue_comes_from_the_app(rig: Rig, serve: Serve, kind: str) -> None:
    app = await serve(continuing)
    session, own = await rig.entered(app)
    framing = ("Content-Length", "5") if kind == "length" else ("Transfer-Encoding", "chunked")
    fields = [*own, framing, ("Expect", "100-continue")]
    stream = await rig.connect()
    stream.send(request("PUT", "/", host=session.host, fields=fields))
    assert (await read_response(stream)).status == 100
    stream.send(b"hello" if kind == "length" else b"5\r\nhello\r\n0\r\n\r\n")
    assert (await read_response(stream)).body == b"hello"
    assert (app.requests[0].get("Expect") or "").lower() == "100-continue"


async def test_an_app_may_refuse_instead_of_continuing(rig: Rig, serve: Serve) -> None:
    async def script(app: App, stream: Stream) -> None:
        await app.head(stream)
        stream.send(response("417 Expectation Failed", "Connection: close", body=b"no"))

    session, own = await rig.entered(await serve(script))
    fields = [*own, ("Content-Length", "5"), ("Expect", "100-continue")]
    one = await rig.ask(request("PUT", "/", host=session.host, fields=fields))
    assert (one.status, one.body) == (417, b"no")


async def test_an_unauthorized_upload_gets_no_100_continue(rig: Rig, serve: Serve) -> None:
    app = await serve(continuing)
    session = await rig.session(app)
    fields = [("Content-Length", "5"), ("Expect", "100-continue")]
    assert (await rig.ask(request("PUT", "/", host=session.host, fields=fields))).status == 401
    assert app.connections == []


async def test_early_hints_are_relayed(rig: Rig, serve: Serve) -> None:
    raw = b"HTTP/1.1 103 Early Hints\r\nLink: </a.css>; rel=preload\r\n\r\n" + OK
    session, own = await rig.entered(await serve(raw_response(raw)))
    stream = await rig.connect()
    for _ in range(2):
        stream.send(request("GET", "/", host=session.host, fields=own))
        hint = await read_response(stream)
        assert (hint.status, hint.get("Link")) == (103, "</a.css>; rel=preload")
        assert (await read_response(stream)).status == 200


# Streaming


async def test_server_sent_events_arrive_one_by_one(rig: Rig, serve: Serve) -> None:
    seen = asyncio.Queue[int]()

    async def script(app: App, stream: Stream) -> None:
        await app.request(stream)
        stream.send(
            response("200 OK", "Content-Type: text/event-stream", "Transfer-Encoding: chunked")
        )
        for n in range(5):
            stream.send(f"9\r\ndata: {n}\n\n\r\n".encode())
            assert await asyncio.wait_for(seen.get(), PATIENCE_SECONDS) == n
        stream.send(b"0\r\n\r\n")

    session, own = await rig.entered(await serve(script))
    stream = await rig.connect()
    stream.send(request("GET", "/", host=session.host, fields=own))
    await stream.read_until(b"\r\n\r\n")
    for n in range(5):
        await stream.read_until(f"data: {n}\n\n".encode())
        seen.put_nowait(n)
    await stream.read_until(b"0\r\n\r\n")


async def test_an_upload_is_streamed_to_the_app(rig: Rig, serve: Serve) -> None:
    seen = asyncio.Queue[int]()

    async def script(app: App, stream: Stream) -> None:
        await app.head(stream)
        for n in range(5):
            await stream.read_until(f"part {n}".encode(), PATIENCE_SECONDS)
            seen.put_nowait(n)
        await stream.read_until(b"0\r\n\r\n")
        stream.send(OK)

    session, own = await rig.entered(await serve(script))
    stream = await rig.connect()
    fields = [*own, ("Transfer-Encoding", "chunked")]
    stream.send(request("POST", "/", host=session.host, fields=fields))
    for n in range(5):
        stream.send(f"6\r\npart {n}\r\n".encode())
        assert await asyncio.wait_for(seen.get(), 5) == n
    stream.send(b"0\r\n\r\n")
    assert (await read_response(stream)).status == 200


async def feed(stream: Stream, data: bytes, dice: random.Random) -> None:
    """Send *data* in pieces of random size, with pauses."""
    place = 0
    while place < len(data):
        size = dice.choice((1, 100, 4096, 65536, 1 << 20))
        stream.send(data[place : place + size])
        place += size
        await stream.drain(PATIENCE_SECONDS)
        if dice.random() < 0.05:
            await asyncio.sleep(0.002)


@pytest.mark.parametrize("kind", ["length", "chunked"])
async def test_large_bodies_are_relayed_unchanged_in_both_directions(
    rig: Rig, serve: Serve, kind: str
) -> None:
    dice = random.Random(7)
    up, down = dice.randbytes(BIG), dice.randbytes(BIG)
    got = []

    def framed(data: bytes) -> bytes:
        if kind == "length":
            return data
        pieces = [data[n : n + 300_000] for n in range(0, len(data), 300_000)]
        return b"".join(b"%x\r\n%b\r\n" % (len(p), p) for p in pieces) + b"0\r\n\r\n"

    framing = f"Content-Length: {BIG}" if kind == "length" else "Transfer-Encoding: chunked"

    async def script(app: App, stream: Stream) -> None:
        head = await read_request_head(stream)
        chunked = head.get("Transfer-Encoding") is not None
        seconds = PATIENCE_SECONDS
        body = await (
            read_chunks(stream, seconds) if chunked else stream.read_exactly(BIG, seconds)
        )
        got.append(hashlib.sha256(body).digest())
        stream.send(response("200 OK", framing))
        await feed(stream, framed(down), dice)
        await stream.until_ended(PATIENCE_SECONDS)

    session, own = await rig.entered(await serve(script))
    stream = await rig.connect()
    name, _, value = framing.partition(": ")
    stream.send(request("PUT", "/", host=session.host, fields=[*own, (name, value)]))
    await feed(stream, framed(up), dice)
    one = await read_response(stream, seconds=PATIENCE_SECONDS)
    assert hashlib.sha256(one.body).digest() == hashlib.sha256(down).digest()
    assert got == [hashlib.sha256(up).digest()]


async def test_a_client_that_does_not_read_applies_backpressure_to_the_app(
    rig: Rig, serve: Serve
) -> None:
    sent = 0

    async def script(app: App, stream: Stream) -> None:
        nonlocal sent
        await app.request(stream)
        stream.send(response("200 OK", "Content-Length: 1000000000"))
        while True:
            stream.send(bytes(65536))
            await stream.drain(PATIENCE_SECONDS)
            if stream.ended:
                return
            sent += 65536

    session, own = await rig.entered(await serve(script))
    stream = await rig.connect()
    stream.transport.pause_reading()
    stream.send(request("GET", "/", host=session.host, fields=own))
    await asyncio.sleep(0.8)
    stalled_at = sent
    await asyncio.sleep(0.3)
    # The kernel's buffers of two connections, and the bytes that the gateway may hold.
    assert 0 < sent == stalled_at < 40_000_000
    stream.reset()


async def test_an_early_response_to_an_upload_is_delivered(rig: Rig, serve: Serve) -> None:
    async def script(app: App, stream: Stream) -> None:
        await app.head(stream)
        stream.send(response("413 Content Too Large", "Connection: close", body=b"too large"))
        stream.half_close()
        await stream.until_ended(PATIENCE_SECONDS)

    session, own = await rig.entered(await serve(script))
    stream = await rig.connect()
    fields = [*own, ("Content-Length", "50000000")]
    stream.send(request("PUT", "/", host=session.host, fields=fields) + bytes(100_000))
    one = await read_response(stream)
    assert (one.status, one.body) == (413, b"too large")
    stream.close()


# Ends of connections


async def test_a_fin_of_the_client_cancels_its_request(rig: Rig, serve: Serve) -> None:
    left = asyncio.Event()

    async def script(app: App, stream: Stream) -> None:
        await app.request(stream)
        await stream.until_ended()
        left.set()

    session, own = await rig.entered(await serve(script))
    stream = await rig.connect()
    stream.send(request("GET", "/", host=session.host, fields=own))
    await asyncio.sleep(0.2)
    stream.half_close()
    await stream.until_ended()
    await asyncio.wait_for(left.wait(), 10)


async def test_a_client_that_sends_connection_close_is_closed(rig: Rig, serve: Serve) -> None:
    session, own = await rig.entered(await serve())
    stream = await rig.connect()
    fields = [*own, ("Connection", "close")]
    stream.send(request("GET", "/", host=session.host, fields=fields))
    assert (await read_response(stream)).status == 200
    await stream.until_ended()


async def test_when_the_client_disconnects_the_upstream_connection_is_closed(
    rig: Rig, serve: Serve
) -> None:
    async def script(app: App, stream: Stream) -> None:
        await app.request(stream)
        await stream.until_ended(PATIENCE_SECONDS)

    app = await serve(script)
    session, own = await rig.entered(app)
    stream = await rig.connect()
    stream.send(request("GET", "/", host=session.host, fields=own))
    while not app.requests:
        await asyncio.sleep(0.01)
    stream.reset()
    await app.connections[0].until_ended()


async def test_an_app_that_dies_within_a_response_resets_the_client(rig: Rig, serve: Serve) -> None:
    async def script(app: App, stream: Stream) -> None:
        await app.request(stream)
        stream.send(response("200 OK", "Content-Length: 100") + b"hello")
        await asyncio.sleep(0.1)
        stream.reset()

    session, own = await rig.entered(await serve(script))
    stream = await rig.connect()
    stream.send(request("GET", "/", host=session.host, fields=own))
    with pytest.raises(StreamEnded):
        await read_response(stream)


@pytest.mark.parametrize("method", ["GET", "HEAD", "OPTIONS"])
async def test_a_safe_request_on_a_stale_connection_is_retried_once(
    rig: Rig, serve: Serve, method: str
) -> None:
    async def script(app: App, stream: Stream) -> None:
        one = await app.request(stream)
        stream.send(OK.removesuffix(b"ok") if one.method == "HEAD" else OK)
        await app.request(stream)  # then the app ends without a byte

    app = await serve(script)
    session, own = await rig.entered(app)
    for n in range(3):
        assert (await rig.get(session, f"/{n}", own, method=method)).status == 200
    assert len(app.connections) >= 2


async def test_an_unsafe_request_is_never_retried(rig: Rig, serve: Serve) -> None:
    async def script(app: App, stream: Stream) -> None:
        await app.request(stream)
        stream.send(OK)
        await app.request(stream)

    app = await serve(script)
    session, own = await rig.entered(app)
    for n in range(4):
        status = (await rig.get(session, f"/{n}", own, method="POST", body=b"x")).status
        assert status in (200, 502)
    targets = [one.target for one in app.requests]
    assert len(targets) == len(set(targets)), targets


async def test_upstream_connections_are_shared_by_no_two_users_or_sessions(
    rig: Rig, serve: Serve
) -> None:
    app = await serve()
    sessions = [await rig.session(app) for _ in range(2)]
    turns = [
        (session, rig.own(session, await rig.opened(session, sub=sub)))
        for session in sessions
        for sub in ("bob", "eve")
    ]
    for _ in range(3):
        for session, own in turns:
            assert (await rig.get(session, fields=own)).status == 200
    for stream in app.connections:
        text = bytes(stream.received).decode()
        users = {line for line in text.split("\r\n") if line.startswith("X-Forwarded-User")}
        hosts = {line for line in text.split("\r\n") if line.startswith("Host")}
        assert (len(users), len(hosts)) == (1, 1)
