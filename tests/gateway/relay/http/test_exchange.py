"""One request and its response: bodies in both directions, canonical, early or late."""

from __future__ import annotations

import asyncio
import hashlib
import random

import pytest

from gateway.core.limits.values import Limits
from tests.gateway.relay.harness import (
    FROM_HERE,
    HOST,
    Peer,
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


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PROPFIND", "VERSION-CONTROL", "QUERY"])
async def test_registered_methods_are_forwarded(method: str) -> None:
    async with rig() as r:
        browser, app, head = await r.joined(request("/", FROM_HERE, method=method))
        assert head.startswith(f"{method} / HTTP/1.1\r\n".encode())
        app.send(answer())
        assert status_of((await browser.answer())[0]) == 200


async def test_a_base_path_precedes_the_received_path() -> None:
    async with rig(route_changes={"target": {"base_path": "/base/"}}) as r:
        _, _, head = await r.joined(request("/%2e/a//b?c"))
        assert head.startswith(b"GET /base/%2e/a//b?c HTTP/1.1\r\n")


async def test_absolute_form_of_this_host_becomes_origin_form() -> None:
    async with rig() as r:
        _, _, head = await r.joined(request(f"http://{HOST}?a"))
        assert head.startswith(b"GET /?a HTTP/1.1\r\n")


async def test_responses_arrive_in_order_over_one_upstream_connection() -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(request("/1"))
        app.send(answer(b"1"))
        assert (await browser.answer())[1] == b"1"
        for number in (b"2", b"3"):
            browser.send(request(f"/{number.decode()}"))
            assert (await app.head()).startswith(b"GET /" + number)
            app.send(answer(number))
            assert (await browser.answer())[1] == number
        assert r.app.count == 1


async def test_pipelined_requests_are_answered_in_order() -> None:
    async with rig() as r:
        many = [request(f"/{n}", FROM_HERE, method="POST", body=b"x" * n) for n in range(1, 20)]
        browser, app, head = await r.joined(b"".join(many))
        for n in range(1, 20):
            assert head.startswith(b"POST /%d HTTP" % n)
            assert await app.exactly(n) == b"x" * n
            app.send(answer(b"%d" % n))
            assert (await browser.answer())[1] == b"%d" % n
            head = await app.head() if n < 19 else b""
        assert r.app.count == 1


async def test_many_pipelined_refusals_do_not_recurse() -> None:
    async with rig(limits=Limits(address_refusals_per_second=0)) as r:
        browser = await r.browser()
        browser.send(request(credential=None) * 3000)
        for _ in range(3000):
            assert status_of((await browser.answer())[0]) == 401


async def stream(peer: Peer, data: bytes, seed: int) -> None:
    pieces = random.Random(seed)
    at = 0
    while at < len(data):
        size = pieces.choice([1, 100, 70000, 300000])
        peer.send(data[at : at + size])
        at += size
        await peer.writer.drain()
        if pieces.random() < 0.05:
            await asyncio.sleep(0.002)


async def test_large_bodies_are_relayed_both_ways_unchanged() -> None:
    up, down = random.Random(1).randbytes(6_000_000), random.Random(2).randbytes(6_000_000)
    async with rig() as r:
        raw = request("/", FROM_HERE, f"Content-Length: {len(up)}", method="POST")
        browser, app, _ = await r.joined(raw)
        app.send(f"HTTP/1.1 200 OK\r\nContent-Length: {len(down)}\r\n\r\n".encode())
        await browser.head()
        # An answer that is complete before its request ends the request: its last byte waits.
        _, _, got_up, got_down = await asyncio.gather(
            stream(browser, up, 3),
            stream(app, down[:-1], 4),
            app.exactly(len(up)),
            browser.exactly(len(down) - 1),
        )
        app.send(down[-1:])
        got_down += await browser.exactly(1)
        assert hashlib.sha256(got_up).digest() == hashlib.sha256(up).digest()
        assert hashlib.sha256(got_down).digest() == hashlib.sha256(down).digest()


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


async def test_server_sent_events_are_relayed_one_by_one() -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(request())
        app.send(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\n\r\n")
        assert b"Connection: close" in await browser.head()
        for n in range(5):
            app.send(b"data: %d\n\n" % n)
            assert await browser.exactly(9) == b"data: %d\n\n" % n
        app.close()
        assert await browser.rest() == b""


async def test_http_1_0_clients_get_an_unframed_body_and_a_closed_connection() -> None:
    async with rig() as r:
        browser = await r.browser()
        browser.send(request().replace(b"HTTP/1.1", b"HTTP/1.0"))
        app = await r.app.connection()
        assert (await app.head()).startswith(b"GET / HTTP/1.1\r\n")
        app.send(
            b"HTTP/1.1 103 Early Hints\r\n\r\n"
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"
        )
        head, _, body = (await browser.rest()).partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert b"Transfer-Encoding" not in head
        assert b"Connection: close" in head
        assert body == b"hello"


@pytest.mark.parametrize("status", [b"204 No Content", b"304 Not Modified"])
async def test_responses_without_a_body_keep_the_connection(status: bytes) -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(request())
        app.send(b"HTTP/1.1 %b\r\nETag: x\r\n\r\n" % status)
        assert (await browser.head()).startswith(b"HTTP/1.1 " + status)
        browser.send(request("/next"))
        assert (await app.head()).startswith(b"GET /next")


async def test_a_head_response_keeps_its_length_and_has_no_body() -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(request(method="HEAD"))
        app.send(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n")
        assert b"Content-Length: 1000\r\n" in await browser.head()
        browser.send(request("/next"))
        assert (await app.head()).startswith(b"GET /next")


async def test_expect_and_interim_responses_are_relayed() -> None:
    async with rig() as r:
        raw = request("/", FROM_HERE, "Expect: 100-continue", "Content-Length: 5", method="POST")
        browser, app, head = await r.joined(raw)
        assert b"Expect: 100-continue\r\n" in head
        app.send(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert await browser.head() == b"HTTP/1.1 100 Continue\r\n\r\n"
        browser.send(b"hello")
        assert await app.exactly(5) == b"hello"
        app.send(b"HTTP/1.1 103 Early Hints\r\nLink: </a>\r\n\r\n" + answer())
        assert b"Link: </a>\r\n" in await browser.head()
        assert (await browser.answer())[1] == b"ok"


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
