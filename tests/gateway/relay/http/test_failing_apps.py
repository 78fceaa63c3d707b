"""Failing apps: what the client gets, and which requests are sent a second time."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core.limits.values import Limits
from tests.gateway.relay.harness import (
    BASE,
    FROM_HERE,
    PORT,
    SID,
    answer,
    code_of,
    reason_of,
    request,
    rig,
    status_of,
)


async def test_a_retry_uses_a_new_connection_though_idle_ones_exist() -> None:
    async with rig() as r:
        joined = [await r.joined(request()) for _ in range(3)]
        for browser, app, _ in joined:
            app.send(answer())
            await browser.answer()
        assert len(r.path.pool) == 3
        browser, stale, _ = joined[-1]
        browser.send(request("/again"))
        await stale.head()
        stale.reset()
        fresh = await r.app.connection()
        assert (await fresh.head()).startswith(b"GET /again")
        fresh.reset()
        assert status_of((await browser.answer())[0]) == 502
        assert len(r.path.pool) == 2


async def test_a_request_is_retried_only_once() -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(request())
        app.send(answer())
        await browser.answer()
        browser.send(request("/again"))
        await app.head()
        app.reset()
        second = await r.app.connection()
        await second.head()
        second.reset()
        head, body = await browser.answer()
        assert status_of(head) == 502
        assert code_of(body) == "app_bad_answer"


@pytest.mark.parametrize("spoken", [b"", b"HTTP/1.1 2"])
async def test_a_request_that_may_have_had_an_effect_is_never_retried(spoken: bytes) -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(request())
        app.send(answer())
        await browser.answer()
        if spoken:
            browser.send(request("/again"))
        else:
            browser.send(request("/again", FROM_HERE, method="POST", body=b"x"))
        await app.head()
        app.send(spoken)
        await asyncio.sleep(0.02)
        app.reset()
        assert status_of((await browser.answer())[0]) == 502
        assert r.app.count == 1


SPOKEN = [
    (b"", "the app closed the connection without a response"),
    (b"HTTP/1.1 200 OK\r\nA: b\r\n", "the response ended within its head"),
    (b"\x15\x03\x01\x00\x02\x02\x46", "the app speaks TLS on this port"),
    (b"\x00\x00\x06\x04\x00\x00\x00\x00\x00\x00\x03", "the response does not begin with HTTP/1.0"),
    (b"SSH-2.0-OpenSSH_9.2\r\n", "the response does not begin with HTTP/1.0"),
    (b"HTTP/1.1 200 OK\r\nA: b\nC: d\r\n\r\n", "a line of the head does not end with CRLF"),
    (
        b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nab",
        "the response is longer than",
    ),
]


@pytest.mark.parametrize(("spoken", "reason"), SPOKEN)
async def test_users_and_reports_are_told_what_is_wrong_with_a_response(
    spoken: bytes, reason: str
) -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(request())
        app.send(spoken)
        app.close()
        _, body = await browser.answer()
        assert reason_of(body).startswith(reason)
        assert r.path.failures.recent()[SID].reason == reason_of(body)


async def test_clients_of_a_public_link_are_not_told_what_is_wrong_with_a_response() -> None:
    public = {"hosts": [f"{SID}.{BASE}", "demo.example.org"], "public": True}
    async with rig(route_changes=public) as r:
        browser, app, _ = await r.joined(request(host=f"demo.example.org:{PORT}", credential=None))
        app.close()
        _, body = await browser.answer()
        assert code_of(body) == "app_bad_answer"
        assert not reason_of(body)
        assert r.path.failures.recent()[SID].reason


async def test_an_unsafe_request_uses_no_long_idle_connection() -> None:
    async with rig(limits=Limits(unsafe_idle_seconds=0.0)) as r:
        browser, app, _ = await r.joined(request())
        app.send(answer())
        await browser.answer()
        await asyncio.sleep(0.01)
        browser.send(request("/new", FROM_HERE, method="POST", body=b"x"))
        second = await r.app.connection()
        assert (await second.head()).startswith(b"POST /new")


async def test_malformed_chunks_of_a_response_reset_the_client_and_are_reported() -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(request())
        app.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n")
        await browser.until(b"hello\r\n")
        app.send(b"zz\r\nevil\r\n")
        with pytest.raises(ConnectionResetError):
            await browser.rest()
        assert await app.rest() == b""
        assert r.path.failures.recent()[SID].reason == "a chunk's size is malformed"


async def test_late_bytes_beyond_a_response_are_discarded() -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(request())
        app.send(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\nhe")
        await browser.head()
        assert await browser.exactly(2) == b"he"
        app.send(b"lloHTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil")
        assert await browser.exactly(3) == b"llo"
        browser.send(request("/next"))
        second = await r.app.connection()
        second.send(answer(b"good"))
        assert (await browser.answer())[1] == b"good"


async def test_unsolicited_bytes_on_an_idle_connection_close_it() -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(request())
        app.send(answer())
        await browser.answer()
        assert len(r.path.pool) == 1
        app.send(answer(b"evil"))
        assert await app.rest() == b""
        assert len(r.path.pool) == 0
        browser.send(request("/next"))
        second = await r.app.connection()
        second.send(answer(b"good"))
        assert (await browser.answer())[1] == b"good"


async def test_a_connection_with_connection_close_is_not_reused() -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(request())
        app.send(answer(b"ok", "Connection: close"))
        head, _ = await browser.answer()
        assert b"Connection: close" not in head
        browser.send(request("/next"))
        assert await r.app.connection()


async def test_a_complete_response_is_sent_after_a_client_fin() -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(request("/1") + request("/2"))
        body = b"x" * 500_000
        browser.stall()
        app.send(answer(body))
        assert b"GET /2 " in await app.head()
        browser.writer.write_eof()
        assert await app.rest() == b""
        browser.go_on()
        assert (await browser.rest()).endswith(body)
        assert r.app.count == 1


async def test_a_client_that_leaves_within_its_upload_closes_the_upstream_connection() -> None:
    async with rig() as r:
        raw = request("/", FROM_HERE, "Content-Length: 100", method="POST")
        browser, app, _ = await r.joined(raw + b"x")
        browser.writer.write_eof()
        assert await app.rest() == b"x"


async def test_an_app_that_does_not_respond_in_time_is_504() -> None:
    async with rig(limits=Limits(app_head_seconds=0.2)) as r:
        browser, app, _ = await r.joined(request())
        head, body = await browser.answer()
        assert status_of(head) == 504
        assert code_of(body) == "app_timeout"
        assert await app.rest() == b""
