"""Tests that messages keep their content, however they are split, timed and framed."""

from __future__ import annotations

import asyncio

import pytest

from tests.contract.conftest import Serve
from tests.contract.messages import (
    Response,
    read_response,
    request,
    response,
)
from tests.contract.rig import Rig
from tests.contract.streams import Stream
from tests.contract.upstream import OK, App, raw_response, responding

BIG = 8 * 1024 * 1024


# Splits


@pytest.mark.parametrize("kind", ["length", "chunked"])
async def test_any_split_of_a_request_is_the_same_request(
    rig: Rig, serve: Serve, kind: str
) -> None:
    app = await serve()
    session, own = await rig.entered(app)
    framing = ("Content-Length", "11") if kind == "length" else ("Transfer-Encoding", "chunked")
    body = (
        b"hello world"
        if kind == "length"
        else b"5\r\nhello\r\n6;x=y\r\n world\r\n0\r\nT: u\r\n\r\n"
    )
    data = request("POST", "/x", host=session.host, fields=[*own, framing]) + body
    # Within the cookie, one position stands for all; elsewhere, each position is tried.
    secret = data.find(b"fumarole=")
    places = [n for n in range(1, len(data)) if not secret + 20 < n < secret + 100]

    async def split(place: int) -> int:
        stream = await rig.connect()
        stream.send(data[:place])
        await asyncio.sleep(0.01)
        stream.send(data[place:])
        status = (await read_response(stream)).status
        stream.close()
        return status

    for start in range(0, len(places), 20):
        group = places[start : start + 20]
        assert set(await asyncio.gather(*(split(place) for place in group))) == {200}
    stream = await rig.connect()
    await stream.dribble(data)
    assert (await read_response(stream)).status == 200
    assert len(app.requests) == len(places) + 1
    assert {one.body for one in app.requests} == {b"hello world"}
    assert {one.target for one in app.requests} == {"/x"}
    assert all("t" not in one.names() for one in app.requests)


@pytest.mark.parametrize(
    ("raw", "body"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\nA: b\r\n\r\nhello", b"hello"),
        (
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nA: b\r\n\r\n"
            b"3;x=y\r\nhel\r\n2\r\nlo\r\n0\r\nT: u\r\n\r\n",
            b"hello",
        ),
        (b"HTTP/1.1 204 No Content\r\nA: b\r\n\r\n", b""),
        (
            b"HTTP/1.1 103 Early Hints\r\n\r\n"
            b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\nA: b\r\n\r\nok",
            b"ok",
        ),
    ],
)
async def test_any_split_of_a_response_is_the_same_response(
    rig: Rig, serve: Serve, raw: bytes, body: bytes
) -> None:
    async def script(app: App, stream: Stream) -> None:
        while True:
            head = await app.request(stream)
            place = int(head.target[1:])
            if place == 0:
                await stream.dribble(raw)
            else:
                stream.send(raw[:place])
                await asyncio.sleep(0.01)
                stream.send(raw[place:])

    session, own = await rig.entered(await serve(script))

    async def get(place: int) -> Response:
        stream = await rig.connect()
        stream.send(request("GET", f"/{place}", host=session.host, fields=own))
        first = await read_response(stream)
        last = await read_response(stream) if first.status == 103 else first
        stream.close()
        return last

    for start in range(0, len(raw), 16):
        group = range(start, min(start + 16, len(raw)))
        for one in await asyncio.gather(*(get(place) for place in group)):
            assert (one.status // 100, one.body, one.get("A")) == (2, body, "b")
            assert one.get("T") is None


# Order


async def test_pipelined_requests_are_answered_in_order(rig: Rig, serve: Serve) -> None:
    async def script(app: App, stream: Stream) -> None:
        while True:
            head = await app.request(stream)
            await asyncio.sleep(0.05 if head.target in ("/0", "/3") else 0)
            stream.send(response("200 OK", body=head.target.encode() + head.body))

    app = await serve(script)
    session, own = await rig.entered(app)
    data = b"".join(
        request(
            "POST" if n % 2 else "GET",
            f"/{n}",
            host=session.host,
            fields=own,
            body=b"body" if n % 2 else None,
        )
        for n in range(8)
    )
    stream = await rig.connect()
    stream.send(data)
    bodies = [(await read_response(stream)).body for _ in range(8)]
    assert bodies == [f"/{n}".encode() + (b"body" if n % 2 else b"") for n in range(8)]
    assert [one.target for one in app.requests] == [f"/{n}" for n in range(8)]


async def test_pipelined_requests_of_several_sessions_reach_their_own_apps(
    rig: Rig, serve: Serve
) -> None:
    apps = [await serve(responding(response("200 OK", body=str(n).encode()))) for n in range(3)]
    entered_all = [await rig.entered(app) for app in apps]
    stream = await rig.connect()
    turns = [0, 1, 2, 1, 0, 2, 2, 0]
    for n in turns:
        session, own = entered_all[n]
        stream.send(request("GET", f"/{n}", host=session.host, fields=own))
    assert [(await read_response(stream)).body for _ in turns] == [str(n).encode() for n in turns]
    for n, app in enumerate(apps):
        assert {one.target for one in app.requests} == {f"/{n}"}


async def test_a_keep_alive_connection_serves_many_requests(rig: Rig, serve: Serve) -> None:
    app = await serve()
    session, own = await rig.entered(app)
    stream = await rig.connect()
    for n in range(20):
        stream.send(request("GET", f"/{n}", host=session.host, fields=own))
        assert (await read_response(stream)).status == 200
    assert len(app.requests) == 20
    assert len(app.connections) <= 2


# Reframing


async def test_chunked_bodies_are_reframed_in_both_directions(rig: Rig, serve: Serve) -> None:
    tail = b"3;ext=1\r\nabc\r\n0\r\nX-Forwarded-User: root\r\nSet-Cookie: fumarole=x\r\n\r\n"
    app = await serve(
        raw_response(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nTrailer: X\r\n\r\n" + tail)
    )
    session, own = await rig.entered(app)
    fields = [*own, ("Transfer-Encoding", "chunked"), ("Trailer", "X-Forwarded-User")]
    one = await rig.ask(request("POST", "/", host=session.host, fields=fields) + tail)
    assert one.body == b"abc"
    assert app.requests[0].body == b"abc"
    assert b"root" not in app.received
    assert b"ext=1" not in app.received


async def test_a_response_delimited_by_connection_close_arrives_whole(
    rig: Rig, serve: Serve
) -> None:
    raw = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\nhello"
    session, own = await rig.entered(await serve(raw_response(raw, then_close=True)))
    assert (await rig.get(session, fields=own)).body == b"hello"


async def test_an_http_1_0_client_gets_no_chunks(rig: Rig, serve: Serve) -> None:
    raw = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    session, own = await rig.entered(await serve(raw_response(raw)))
    stream = await rig.connect()
    stream.send(request("GET", "/", host=session.host, fields=own, version="HTTP/1.0"))
    one = await read_response(stream)
    assert (one.status, one.body) == (200, b"ok")
    assert one.get("Transfer-Encoding") is None
    await stream.until_ended()


async def test_an_http_1_0_client_gets_no_interim_response(rig: Rig, serve: Serve) -> None:
    raw = b"HTTP/1.1 103 Early Hints\r\nLink: </x>\r\n\r\n" + OK
    session, own = await rig.entered(await serve(raw_response(raw)))
    data = request("GET", "/", host=session.host, fields=own, version="HTTP/1.0")
    assert (await rig.ask(data)).status == 200


async def test_a_response_of_an_http_1_0_app_is_relayed(rig: Rig, serve: Serve) -> None:
    for raw in (
        b"HTTP/1.0 200 OK\r\n\r\nhello",
        b"HTTP/1.0 200 OK\r\nContent-Length: 5\r\n\r\nhello",
    ):
        session, own = await rig.entered(await serve(raw_response(raw, then_close=True)))
        one = await rig.get(session, fields=own)
        assert (one.status, one.body, one.minor) == (200, b"hello", 1)


@pytest.mark.parametrize(
    ("method", "raw", "length"),
    [
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 1234\r\n\r\n", "1234"),
        ("HEAD", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n", None),
        ("HEAD", b"HTTP/1.1 404 Not Found\r\nContent-Length: 9\r\n\r\n", "9"),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nETag: x\r\n\r\n", None),
        ("GET", b"HTTP/1.1 304 Not Modified\r\nContent-Length: 77\r\n\r\n", "77"),
        ("GET", b"HTTP/1.1 204 No Content\r\n\r\n", None),
        ("DELETE", b"HTTP/1.1 204 No Content\r\n\r\n", None),
        ("POST", b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n", "0"),
    ],
)
async def test_responses_without_a_body_keep_the_connection_usable(
    rig: Rig, serve: Serve, method: str, raw: bytes, length: str | None
) -> None:
    session, own = await rig.entered(await serve(raw_response(raw)))
    stream = await rig.connect()
    for n in range(3):
        stream.send(request(method, f"/{n}", host=session.host, fields=own))
        one = await read_response(stream, method)
        assert str(one.status).encode() in raw
        assert one.get("Content-Length") == length
    await stream.silent_for(0.05)
