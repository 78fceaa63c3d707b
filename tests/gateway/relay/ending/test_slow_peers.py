"""Slow and stalled peers: what they cost, and when they are given up."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from gateway.core.limits.values import Limits
from gateway.relay.tunnel import Tunnel
from tests.gateway.relay.harness import (
    FROM_HERE,
    Peer,
    Rig,
    answer,
    code_of,
    request,
    rig,
    status_of,
)

MOST = 512 << 10
SLOW = Limits(
    slow_body_seconds=0.5,
    slow_body_bytes_per_second=1000,
    app_head_seconds=1.0,
    app_write_stall_seconds=1.0,
)


def post(length: int, *fields: str) -> bytes:
    return request("/up", FROM_HERE, f"Content-Length: {length}", *fields, method="POST")


# Too slow


async def test_a_stalled_upload_is_408_and_closes_the_upstream_connection() -> None:
    async with rig(limits=SLOW) as r:
        browser, app, _ = await r.joined(post(1000000) + b"x" * 100)
        head, body = await browser.answer()
        assert (status_of(head), code_of(body)) == (408, "body_timeout")
        assert b"\r\nConnection: close\r\n" in head
        assert await app.gone() == b"x" * 100


async def test_a_dripping_upload_is_408() -> None:
    async with rig(limits=SLOW) as r:
        browser, _, _ = await r.joined(post(1000000))

        async def drip() -> None:
            while True:
                browser.send(b"x")
                await asyncio.sleep(0.01)

        dripping = asyncio.create_task(drip())
        head, body = await browser.answer()
        dripping.cancel()
        assert (status_of(head), code_of(body)) == (408, "body_timeout")


async def test_chunks_without_content_are_no_progress() -> None:
    async with rig(limits=SLOW) as r:
        raw = request("/", FROM_HERE, "Transfer-Encoding: chunked", method="POST")
        browser, _, _ = await r.joined(raw + b"1;" + b"e" * 200 + b"\r\nx\r\n")
        head, _ = await browser.answer()
        assert status_of(head) == 408


async def test_an_upload_above_the_minimum_rate_may_take_long() -> None:
    async with rig(limits=SLOW) as r:
        browser, app, _ = await r.joined(post(20000))
        for _ in range(20):
            browser.send(b"x" * 1000)
            await asyncio.sleep(0.1)
        assert await app.exactly(20000) == b"x" * 20000
        app.send(answer(b"taken"))
        assert (await browser.answer())[1] == b"taken"


async def test_an_app_that_does_not_read_an_upload_is_504() -> None:
    async with rig(limits=SLOW) as r:
        browser, app, _ = await r.joined(post(100_000_000))
        app.stall()
        await fill(browser)
        head, body = await browser.answer()
        assert (status_of(head), code_of(body)) == (504, "app_timeout")
        assert r.path.meters.upstream_failures["app_timeout"] == 1


async def test_a_started_response_is_not_bound_by_the_upload_rate() -> None:
    async with rig(limits=SLOW) as r:
        browser, app, _ = await r.joined(post(100) + b"x")
        app.send(b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nab")
        await browser.until(b"ab")
        await asyncio.sleep(1.6)
        app.send(b"cd")
        assert await browser.exactly(2) == b"cd"


async def test_a_response_in_progress_has_no_minimum_rate() -> None:
    async with rig(limits=SLOW) as r:
        browser, app, _ = await r.joined(request())
        app.send(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\n")
        await browser.head()
        for byte in (b"a", b"b", b"c"):
            await asyncio.sleep(0.8)
            app.send(byte)
            assert await browser.exactly(1) == byte


async def test_a_client_waiting_for_100_continue_gets_only_the_apps_timeout() -> None:
    async with rig(limits=SLOW) as r:
        browser, app, _ = await r.joined(post(100, "Expect: 100-continue"))
        await asyncio.sleep(0.9)
        app.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert (await browser.head()).startswith(b"HTTP/1.1 100 ")
        browser.send(b"x" * 100)
        assert await app.exactly(100) == b"x" * 100
        app.send(answer())
        await browser.answer()
        began = asyncio.get_running_loop().time()
        browser = await r.browser()
        browser.send(post(100, "Expect: 100-continue"))
        assert status_of((await browser.answer())[0]) == 408
        assert asyncio.get_running_loop().time() - began > 1.3


# What it costs


async def fill(peer: Peer) -> None:
    """Send until no more bytes are accepted for a while, in which others had many turns.

    It also ends with a response: on a busy machine a stall may be found earlier.
    """
    transport, stuck, left = peer.writer.transport, 0, -1
    async with asyncio.timeout(60):
        while stuck < 100 and not peer.reader._buffer:  # type: ignore[attr-defined]  # has come
            if transport.get_write_buffer_size() < 1 << 20:
                peer.send(b"x" * 65536)
            await asyncio.sleep(0.001)
            size = transport.get_write_buffer_size()
            stuck = stuck + 1 if size >= 1 << 20 and size == left else 0
            left = size


async def worst_of(sizes: Callable[[], list[int]], sender: Peer) -> int:
    """Return the most bytes held at any moment while *sender* sent all it could."""
    worst, done = 0, asyncio.create_task(fill(sender))
    while not done.done():
        worst = max(worst, sum(sizes()))
        await asyncio.sleep(0)
    await done
    return max(worst, sum(sizes()))


def held_in_tunnels(r: Rig) -> list[int]:
    return [
        side.get_write_buffer_size()
        for tunnel in r.live.members()
        if isinstance(tunnel, Tunnel)
        for side in (tunnel.browser, tunnel.app)
    ]


async def test_a_tunnel_with_a_stalled_browser_is_bounded_by_its_buffers() -> None:
    async with rig() as r:
        browser, app = await r.tunnel()
        browser.stall()
        assert 0 < await worst_of(lambda: held_in_tunnels(r), app) <= MOST


async def test_a_tunnel_with_a_stalled_app_is_bounded_by_its_buffers() -> None:
    async with rig() as r:
        browser, app = await r.tunnel()
        app.stall()
        assert 0 < await worst_of(lambda: held_in_tunnels(r), browser) <= MOST


async def test_reading_pauses_for_pipelined_requests_behind_a_slow_one() -> None:
    async with rig() as r:
        browser, _, _ = await r.joined(request())
        line = request("/" + "p" * 8000)

        def held() -> list[int]:
            return [len(front.inbox) for front in r.connections]

        worst = 0
        for _ in range(200):
            if browser.writer.transport.get_write_buffer_size() < 1 << 20:
                browser.send(line * 8)
            await asyncio.sleep(0.001)
            worst = max(worst, sum(held()))
        assert 64 << 10 < worst <= MOST
        assert r.app.count == 1


async def test_reading_of_an_upload_pauses_during_the_dial(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async with rig() as r:
        go = asyncio.Event()
        dial = r.path.dialler.connect

        async def slow(*args: object) -> object:
            await go.wait()
            return await dial(*args)  # type: ignore[arg-type]  # as they came

        monkeypatch.setattr(r.path.dialler, "connect", slow)
        browser = await r.browser()
        browser.send(post(3_000_000))

        def held() -> list[int]:
            return [len(one.inbox) + len(one.early_body) for one in r.connections]

        worst = 0
        for _ in range(40):
            browser.send(b"x" * 65536)
            await asyncio.sleep(0.001)
            worst = max(worst, sum(held()))
        assert worst <= MOST
        browser.send(b"x" * (3_000_000 - 40 * 65536))
        go.set()
        app = await r.app.connection()
        await app.head()
        assert await app.exactly(3_000_000) == b"x" * 3_000_000


async def test_an_upload_larger_than_memory_is_never_buffered() -> None:
    """64 MiB stand for any size: the bytes held do not grow with the bytes relayed."""
    async with rig() as r:
        size = 64 << 20
        browser, app, _ = await r.joined(post(size))
        piece, taken, worst = b"x" * 65536, 0, 0

        async def send() -> None:
            for _ in range(size // len(piece)):
                browser.send(piece)
                await browser.writer.drain()

        sending = asyncio.create_task(send())
        while taken < size:
            taken += len(await asyncio.wait_for(app.reader.read(1 << 18), 10))
            for front in r.connections:
                if front.upstream is not None:
                    transport = front.upstream.transport
                    assert transport is not None
                    worst = max(worst, transport.get_write_buffer_size() + len(front.inbox))
        await sending
        assert worst <= MOST
        app.send(answer(b"all"))
        assert (await browser.answer())[1] == b"all"
