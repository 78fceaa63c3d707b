"""One request and its response: bodies in both directions, canonical, early or late."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core.limits.values import Limits
from tests.gateway.relay.harness import (
    FROM_HERE,
    HOST,
    answer,
    request,
    rig,
    status_of,
)


async def test_a_request_is_forwarded_in_canonical_form() -> None:
    async with rig() as r:
        browser, app, head = await r.joined(request("/a?b=c", "X-Own:  1 "))
        assert (
            head
            == (
                f"GET /a?b=c HTTP/1.1\r\nHost: {HOST}\r\nX-Own: 1\r\n"
                f"X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Host: {HOST}\r\n"
                "X-Forwarded-Proto: http\r\nX-Forwarded-User: ada\r\n\r\n"
            ).encode()
        )
        app.send(answer(b"hello", "Date: now"))
        got, body = await browser.answer()
        assert got == (
            b"HTTP/1.1 200 OK\r\nDate: now\r\nContent-Security-Policy: frame-ancestors 'self'\r\n"
            b"Cache-Control: private\r\nVary: Service-Worker\r\nContent-Length: 5\r\n\r\n"
        )
        assert body == b"hello"


@pytest.mark.parametrize(
    ("target", "varies"), [("/sw.js?v=/1", True), ("/", True), ("/a/sw.js", False)]
)
async def test_a_possible_service_worker_script_has_vary_service_worker(
    target: str, varies: bool
) -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(request(target))
        app.send(answer(b"x", "Vary: Accept"))
        head, _ = await browser.answer()
        assert (b"\r\nVary: Service-Worker\r\n" in head) is varies
        assert b"\r\nVary: Accept\r\n" in head


async def test_a_cached_decision_does_not_admit_a_service_worker() -> None:
    async with rig() as r:
        worker = "Service-Worker: script"
        browser, app, _ = await r.joined(request("/lab/sw.js", worker))
        app.send(answer(b"x"))
        await browser.answer()
        browser.send(request("/sw.js", worker))
        head, body = await browser.answer()
        assert status_of(head) == 403
        assert b"root_service_worker" in body


async def test_many_pipelined_refusals_do_not_recurse() -> None:
    async with rig(limits=Limits(address_refusals_per_second=0)) as r:
        browser = await r.browser()
        browser.send(request(credential=None) * 3000)
        for _ in range(3000):
            assert status_of((await browser.answer())[0]) == 401


async def test_chunks_are_reframed_without_extensions_and_trailers() -> None:
    async with rig() as r:
        raw = request("/", FROM_HERE, "Transfer-Encoding: chunked", method="POST")
        browser, app, head = await r.joined(raw + b'00A;x="y"\r\n0123456789\r\n')
        assert b"Transfer-Encoding: chunked\r\n" in head
        assert await app.exactly(15) == b"a\r\n0123456789\r\n"
        browser.send(b"0\r\nX-Trailer: 1\r\n\r\n")
        assert await app.exactly(5) == b"0\r\n\r\n"
        app.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5;a\r\nhel")
        assert b"Transfer-Encoding: chunked\r\n" in await browser.head()
        assert await browser.exactly(6) == b"5\r\nhel"
        app.send(b"lo\r\n0\r\nA: b\r\n\r\n")
        assert await browser.exactly(9) == b"lo\r\n0\r\n\r\n"
        browser.send(request("/next"))
        assert (await app.head()).startswith(b"GET /next")


async def test_malformed_chunks_of_a_request_end_both_connections() -> None:
    async with rig() as r:
        raw = request("/", FROM_HERE, "Transfer-Encoding: chunked", method="POST")
        browser, app, _ = await r.joined(raw)
        browser.send(b"5\nhello\r\n0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n")
        assert status_of((await browser.answer())[0]) == 400
        assert await app.rest() == b""
        assert await browser.rest() == b""


async def test_an_http_1_0_client_expects_no_100() -> None:
    async with rig() as r:
        raw = request("/", FROM_HERE, "expect: 100-continue", "Content-Length: 5", method="POST")
        _, _, head = await r.joined(raw.replace(b"HTTP/1.1", b"HTTP/1.0") + b"hello")
        assert b"expect" not in head.lower()
        assert b"Content-Length: 5\r\n" in head


async def test_an_unbounded_number_of_interim_responses_is_refused() -> None:
    async with rig(limits=Limits(interim_responses=3)) as r:
        browser, app, _ = await r.joined(request())
        app.send(b"HTTP/1.1 100 Continue\r\n\r\n" * 5)
        for _ in range(3):
            assert status_of(await browser.head()) == 100
        assert status_of((await browser.answer())[0]) == 502


async def test_an_early_response_to_an_upload_is_delivered_and_closes_the_connection() -> None:
    async with rig() as r:
        raw = request("/", FROM_HERE, "Content-Length: 100000000", method="POST")
        browser, app, _ = await r.joined(raw + b"x" * 1000)
        app.send(answer(b"too large", status="413 Content Too Large"))
        head, body = await browser.answer()
        assert status_of(head) == 413
        assert b"Connection: close" in head
        assert body == b"too large"
        browser.send(b"x" * 100000)
        assert await browser.rest() == b""


async def test_an_early_response_is_delivered_although_the_app_resets_the_connection() -> None:
    async with rig() as r:
        raw = request("/", FROM_HERE, "Content-Length: 100000000", method="POST")
        browser, app, _ = await r.joined(raw)
        body = b"no" * 20000

        async def upload() -> None:
            for _ in range(400):
                browser.send(b"x" * 65536)
                await asyncio.sleep(0)

        uploading = asyncio.create_task(upload())
        await app.exactly(100000)
        app.send(answer(body, status="403 Forbidden"))
        await app.writer.drain()
        app.close()  # with unread data: a reset follows
        head, got = await browser.answer()
        assert status_of(head) == 403
        assert got == body
        await uploading


async def test_an_app_that_responds_while_it_reads_streams_both_ways() -> None:
    async with rig() as r:
        raw = request("/", FROM_HERE, "Transfer-Encoding: chunked", method="POST")
        browser, app, _ = await r.joined(raw)
        app.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await browser.head()
        for n in range(3):
            browser.send(b"1\r\n%d\r\n" % n)
            assert await app.exactly(6) == b"1\r\n%d\r\n" % n
            app.send(b"1\r\n%d\r\n" % n)
            assert await browser.exactly(6) == b"1\r\n%d\r\n" % n
        browser.send(b"0\r\n\r\n")
        assert await app.exactly(5) == b"0\r\n\r\n"
        app.send(b"0\r\n\r\n")
        assert await browser.rest() == b"0\r\n\r\n"


async def test_a_stalled_client_is_bounded_by_its_buffers() -> None:
    async with rig(limits=Limits(splice_bytes=0)) as r:
        browser, app, _ = await r.joined(request())
        browser.stall()
        app.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
        worst = 0
        for _ in range(300):
            if app.writer.transport.get_write_buffer_size() < 1 << 20:
                app.send(b"x" * 65536)
            await asyncio.sleep(0.001)
            (front,) = r.connections
            assert front.transport is not None
            worst = max(worst, front.transport.get_write_buffer_size())
        assert 0 < worst <= 512 << 10
        assert app.writer.transport.get_write_buffer_size() >= 1 << 20


async def test_a_stalled_app_is_bounded_by_its_buffers() -> None:
    async with rig(limits=Limits(splice_bytes=0)) as r:
        raw = request("/", FROM_HERE, "Content-Length: 100000000", method="POST")
        browser, app, _ = await r.joined(raw)
        app.stall()
        worst = 0
        for _ in range(300):
            if browser.writer.transport.get_write_buffer_size() < 1 << 20:
                browser.send(b"x" * 65536)
            await asyncio.sleep(0.001)
            (front,) = r.connections
            assert front.upstream is not None
            transport = front.upstream.transport
            assert transport is not None
            worst = max(worst, transport.get_write_buffer_size())
        assert 0 < worst <= 512 << 10
        assert browser.writer.transport.get_write_buffer_size() >= 1 << 20
