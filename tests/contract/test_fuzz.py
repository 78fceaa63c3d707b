"""Damages requests at random, by a printed seed: the gateway sends valid HTTP or nothing.

The apps' parser (``messages``) accepts strict HTTP/1.1 only. So a damaged request that reaches an
app must have been written anew by the gateway.
"""

from __future__ import annotations

import asyncio
import os
import random
from contextlib import suppress

import pytest

from tests.contract.conftest import Serve
from tests.contract.messages import read_response, request
from tests.contract.rig import Rig
from tests.contract.streams import Stream, StreamEnded
from tests.contract.upstream import App, friendly
from tests.corpora import bytes_of, read_lines

CASES = 400
BATCH = 100
QUIET_SECONDS = 0.5
"""No answer for so long: the gateway waits for more of a request."""
PIECES = tuple(map(bytes_of, read_lines("damage")))
RESPONSES = tuple(map(bytes_of, read_lines("good_answers")))


def seed() -> int:
    """Return the seed of this run; FUMAROLE_EXAM_SEED repeats a run."""
    return int(os.environ.get("FUMAROLE_EXAM_SEED", random.randrange(1 << 32)))


def damaged(data: bytes, dice: random.Random) -> bytes:
    """Return *data* with a few bytes inserted, removed, doubled or changed."""
    for _ in range(dice.choice((1, 1, 1, 2, 4))):
        place = dice.randrange(len(data) + 1)
        match dice.randrange(5):
            case 0 | 1:
                data = data[:place] + dice.choice(PIECES) + data[place:]
            case 2:
                data = data[:place] + data[place + dice.choice((1, 1, 2, 8)) :]
            case 3:
                data = data[:place] + bytes([dice.randrange(256)]) + data[place + 1 :]
            case _:
                end = place + dice.choice((1, 4, 30))
                data = data[:end] + data[place:end] + data[end:]
    return data


def authority(host: str) -> tuple[str, int]:
    """Return name and port: a damaged host may still be the same host (RFC 3986, section 6.2)."""
    name, _, port = host.lower().rpartition(":")
    return name.removesuffix("."), int(port)


def some_request(host: str, own: list[tuple[str, str]], dice: random.Random) -> bytes:
    """Return a valid request of one of several shapes."""
    fields = [*own, ("Accept", "*/*"), ("X-A", "b")]
    dice.shuffle(fields)
    match dice.randrange(4):
        case 0:
            return request("GET", "/x?y=z", host=host, fields=fields)
        case 1:
            return request("POST", "/x", host=host, fields=fields, body=b"hello")
        case 2:
            chunked = [*fields, ("Transfer-Encoding", "chunked")]
            head = request("PUT", "/x", host=host, fields=chunked)
            return head + b"5\r\nhello\r\n3;a=b\r\nabc\r\n0\r\nT: u\r\n\r\n"
        case _:
            one = request("GET", "/x", host=host, fields=fields)
            return one + request("HEAD", "/y", host=host, fields=fields)


async def responses_to(rig: Rig, data: bytes) -> None:
    """Send *data*, and read responses until none follows; each must be valid HTTP.

    A FIN tells the gateway that the browser has left, so the FIN follows only after a time without
    a
    response.
    """
    stream = await rig.connect()
    stream.send(data)
    with suppress(StreamEnded, TimeoutError):
        while True:
            async with asyncio.timeout(QUIET_SECONDS):
                await stream.until(lambda: bool(stream.unread), "an answer")
            await read_response(stream, await method_of(stream))
    stream.half_close()
    await stream.until_ended()


async def method_of(stream: Stream) -> str:
    """Return a method that fits the framing of the next response."""
    await stream.until(lambda: b"\r\n\r\n" in stream.unread, "a head")
    # The bytes that follow show whether it is a response to HEAD: another response, or nothing.
    with suppress(StreamEnded, TimeoutError):
        async with asyncio.timeout(QUIET_SECONDS):
            await stream.until(lambda: len(stream.unread.partition(b"\r\n\r\n")[2]) >= 5, "more")
    _, _, body = stream.unread.partition(b"\r\n\r\n")
    return "HEAD" if not body or body[:5] == b"HTTP/" else "GET"


async def test_damaged_requests_are_forwarded_whole_or_not_at_all(rig: Rig, serve: Serve) -> None:
    number = seed()
    print(f"FUMAROLE_EXAM_SEED={number}")
    dice = random.Random(number)
    app = await serve()
    session, own = await rig.entered(app)
    for _ in range(CASES // BATCH):
        cases = [damaged(some_request(session.host, own, dice), dice) for _ in range(BATCH)]
        async with asyncio.timeout(20):
            await asyncio.gather(*(responses_to(rig, case) for case in cases))
    assert app.requests
    for one in app.requests:
        assert authority(one.get("Host") or "") == authority(session.host)
        assert one.get("X-Forwarded-User") == session.sub
        assert own[1][1].partition("=")[2].encode() not in one.raw
    assert (await rig.get(session, fields=own)).status == 200


async def test_damaged_responses_are_relayed_whole_or_cut(rig: Rig, serve: Serve) -> None:
    number = seed()
    print(f"FUMAROLE_EXAM_SEED={number}")
    dice = random.Random(number)
    served = 0

    async def script(app: App, stream: Stream) -> None:
        await app.request(stream)
        stream.send(damaged(dice.choice(RESPONSES), dice))
        await asyncio.sleep(0.02)

    async def ask(session_host: str) -> None:
        nonlocal served
        stream = await rig.connect()
        fields = [*own, ("Connection", "close")]
        stream.send(request("GET", "/", host=session_host, fields=fields))
        with suppress(StreamEnded):
            while (one := await read_response(stream)).status < 200:
                pass
            assert b"fumarole" not in one.raw.lower() or one.status == 502
            served += one.status != 502
        await stream.until_ended()

    session, own = await rig.entered(await serve(script))
    for _ in range(CASES // BATCH):
        async with asyncio.timeout(20):
            await asyncio.gather(*(ask(session.host) for _ in range(BATCH)))
    assert served
    # Both the rig and the gateway still work.
    good, own = await rig.entered(await serve(friendly))
    assert (await rig.get(good, fields=own)).status == 200


@pytest.mark.parametrize("size", ["ffffffffffffffff", "7fffffffffffffff", "8000000000000000"])
async def test_a_chunk_size_beyond_the_sent_bytes_completes_no_body(
    rig: Rig, serve: Serve, size: str
) -> None:
    async def script(app: App, stream: Stream) -> None:
        await app.head(stream)
        head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
        stream.send(head + size.encode() + b"\r\nhello")
        await asyncio.sleep(0.1)

    session, own = await rig.entered(await serve(script))
    stream = await rig.connect()
    fields = [*own, ("Transfer-Encoding", "chunked")]
    data = request("POST", "/", host=session.host, fields=fields)
    stream.send(data + size.encode() + b"\r\nhello")
    await stream.until_ended()
    assert not stream.received.endswith(b"0\r\n\r\n")
