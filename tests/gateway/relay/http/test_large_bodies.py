"""Large bodies: each case looks the same to both peers, however the bytes are moved."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core.limits.values import Limits
from gateway.relay.http.large_bodies import SpliceState
from gateway.relay.listening import Listener
from shared.runtime.listeners import listen
from tests.gateway.relay.bodies import (
    BODY,
    HEAD,
    SIZE,
    any_of_three,
    either,
    flood,
    held,
    nothing_left,
    put,
    states,
)
from tests.gateway.relay.harness import (
    App,
    Peer,
    answer,
    code_of,
    request,
    rig,
    route,
    status_of,
)
from tests.waiting import until

# What both ends see


@any_of_three
async def test_responses_are_relayed_unchanged_and_later_requests_follow(limits: Limits) -> None:
    async with rig(limits=limits) as r:
        browser, app, _ = await r.joined(request("/1") + request("/2") + request("/3"))
        for path in (b"/2", b"/3", b"/4"):
            app.send(answer(BODY))
            if path == b"/4":
                browser.send(request("/4"))
            head, body = await browser.answer()
            assert status_of(head) == 200
            assert body == BODY
            assert (await app.head()).startswith(b"GET %b " % path)
        assert r.app.count == 1
        assert r.path.meters.http.down > 3 * SIZE
        assert nothing_left(r.path)


@any_of_three
async def test_uploads_are_relayed_unchanged_with_pipelined_requests(limits: Limits) -> None:
    async with rig(limits=limits) as r:
        browser, app, _ = await r.joined(put(SIZE) + BODY[:1000])
        browser.send(BODY[1000:] + put(SIZE) + BODY + request("/after"))
        for _ in range(2):
            assert await app.exactly(SIZE) == BODY
            app.send(answer(b"taken"))
            assert (await browser.answer())[1] == b"taken"
            await app.head()
        assert r.app.count == 1
        assert r.path.meters.http.up > 2 * SIZE
        assert nothing_left(r.path)


async def test_large_bodies_are_spliced_by_the_kernel() -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(put())
        browser.send(b"x" * SIZE)
        app.send(HEAD + b"y" * SIZE)
        await browser.head()
        await asyncio.gather(browser.exactly(SIZE), app.exactly(SIZE))
        assert states(r) == [SpliceState.FLOWING, SpliceState.FLOWING]
        assert len(r.path.readiness) == 2
        # Waiting bodies hold no pipe: those that are there are nobody's.
        assert r.path.pipes.open == 1
        assert r.path.pipes.lent == 0


@either
async def test_an_app_that_responds_while_it_reads_streams_both_ways(limits: Limits) -> None:
    async with rig(limits=limits) as r:
        browser, app, _ = await r.joined(put(SIZE))
        app.send(answer(b"", f"Content-Length: {SIZE}").replace(b"Content-Length: 0\r\n", b""))
        await browser.head()
        for at in range(0, SIZE, SIZE // 3):
            part = BODY[at : at + SIZE // 3]
            browser.send(part)
            app.send(await app.exactly(len(part)))
            assert await browser.exactly(len(part)) == part
        assert await browser.rest() == b""
        assert nothing_left(r.path)


@either
async def test_small_pieces_arrive_at_once(limits: Limits) -> None:
    async with rig(limits=limits) as r:
        browser, app, _ = await r.joined(put())
        app.send(HEAD)
        await browser.head()
        for _ in range(20):
            app.send(b"a")
            assert await browser.exactly(1) == b"a"
            browser.send(b"b")
            assert await app.exactly(1) == b"b"


async def test_ipv6_bodies_are_spliced_by_the_kernel() -> None:
    async with rig() as r, App().running("::1") as far:
        r.world.upsert(route(far.port, rev=2, target={"host": "::1"}))
        listener = Listener(r.path, listen("::1", 0))
        reader, writer = await asyncio.open_connection(*listener.address, limit=1 << 22)
        browser = Peer(reader, writer)
        browser.send(request())
        app = await far.connection()
        app.send(HEAD + BODY)
        await browser.head()
        assert await browser.exactly(SIZE) == BODY
        assert states(r) == [SpliceState.FLOWING]
        browser.reset()
        await app.gone()
        listener.close()


# Who is slow


@either
async def test_a_stalled_client_applies_backpressure_to_the_app(limits: Limits) -> None:
    async with rig(limits=limits) as r:
        browser, app, _ = await r.joined(request())
        browser.stall()
        app.send(HEAD)
        worst = 0

        def stuck() -> bool:
            nonlocal worst
            worst = max(worst, held(r))
            return worst > 0 and app.writer.transport.get_write_buffer_size() >= 1 << 20

        await flood(app, stuck)
        for _ in range(50):
            await asyncio.sleep(0.001)
            worst = max(worst, held(r))
        assert 0 < worst <= 512 << 10
        assert app.writer.transport.get_write_buffer_size() >= 1 << 20


@either
async def test_both_directions_resume_after_a_stall(limits: Limits) -> None:
    async with rig(limits=limits) as r:
        browser, app, _ = await r.joined(request())
        browser.stall()
        body = BODY * 8
        app.send(answer(body))
        await until(lambda: bool(r.connections) and held(r) > 0)
        browser.go_on()
        head, came = await browser.answer()
        assert status_of(head) == 200
        assert came == body
        assert nothing_left(r.path)


async def test_buffered_bytes_are_sent_before_spliced_ones() -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(request("/1") + request("/2"))
        browser.stall()
        app.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await until(lambda: all(front.upstream is not None for front in r.connections))
        chunks = 0
        async with asyncio.timeout(30):
            while held(r) == 0:
                app.send(b"8000\r\n%b\r\n" % BODY[:0x8000])
                chunks += 1
                await asyncio.sleep(0.002)
        app.send(b"0\r\n\r\n")
        assert (await app.head()).startswith(b"GET /2 ")
        app.send(answer(BODY))
        await until(lambda: states(r) == [SpliceState.DRAINING])
        browser.go_on()
        await browser.head()
        for _ in range(chunks):
            assert await browser.exactly(0x8000 + 8) == b"8000\r\n%b\r\n" % BODY[:0x8000]
        assert await browser.exactly(5) == b"0\r\n\r\n"
        assert (await browser.answer())[1] == BODY
        assert nothing_left(r.path)


@either
async def test_an_upload_to_an_app_that_stalls_is_504(limits: Limits) -> None:
    limits = Limits(
        splice_bytes=limits.splice_bytes, slow_body_seconds=0.2, app_write_stall_seconds=0.4
    )
    async with rig(limits=limits) as r:
        browser, app, _ = await r.joined(put())
        app.stall()
        await flood(browser, lambda: r.path.meters.upstream_failures["app_timeout"] > 0)
        head, body = await browser.answer()
        assert (status_of(head), code_of(body)) == (504, "app_timeout")
        assert nothing_left(r.path)


@either
@pytest.mark.parametrize("drips", [False, True], ids=["stops", "drips"])
async def test_an_upload_that_is_too_slow_is_408(limits: Limits, drips: bool) -> None:
    limits = Limits(splice_bytes=limits.splice_bytes, slow_body_seconds=0.2)
    async with rig(limits=limits) as r:
        browser, app, _ = await r.joined(put())
        browser.send(BODY)
        assert await app.exactly(SIZE) == BODY
        async with asyncio.timeout(30):
            while not r.path.meters.refusals["body_timeout"]:
                browser.send(b"x" if drips else b"")
                await asyncio.sleep(0.01)
        head, body = await browser.answer()
        assert (status_of(head), code_of(body)) == (408, "body_timeout")
        assert nothing_left(r.path)


# When there are no pipes


async def test_without_free_pipes_bodies_are_copied() -> None:
    async with rig(limits=Limits(pipes=1)) as r:
        stalled, app, _ = await r.joined(request())
        stalled.stall()
        app.send(HEAD)
        await flood(app, lambda: r.path.pipes.lent == 1)
        browser, other, _ = await r.joined(request())
        other.send(answer(BODY))
        assert (await browser.answer())[1] == BODY
        assert r.path.pipes.open == 1
        stalled.reset()
        await until(lambda: len(r.connections) == 1)
        assert r.path.pipes.open == 0


async def test_small_bodies_are_not_spliced() -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(request())
        app.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n")
        await browser.head()
        assert states(r) == []
