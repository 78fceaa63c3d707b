"""Large bodies that end early look the same to both peers, however the bytes are moved."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core.limits.values import Limits
from gateway.relay.ending import closer
from gateway.relay.transports import has_unsent
from tests.gateway.relay.bodies import BODY, HEAD, SIZE, either, flood, held, nothing_left, put
from tests.gateway.relay.harness import (
    GRANT,
    SID,
    Rig,
    answer,
    code_of,
    request,
    rig,
    status_of,
)
from tests.waiting import until


def has_failed(r: Rig) -> bool:
    """Return whether the gateway has found that a response broke off."""
    return r.path.meters.upstream_failures["app_bad_answer"] > 0


@either
async def test_an_early_small_response_ends_the_upload(limits: Limits) -> None:
    async with rig(limits=limits) as r:
        browser, app, _ = await r.joined(put())
        browser.send(BODY)
        await app.exactly(SIZE)
        app.send(answer(b"enough"))
        head, body = await browser.answer()
        assert body == b"enough"
        assert b"\r\nConnection: close\r\n" in head
        browser.send(b"x" * 100_000)
        assert await browser.rest() == b""
        await app.gone()
        assert nothing_left(r.path)


@either
async def test_an_early_answer_is_delivered_although_the_app_resets(limits: Limits) -> None:
    async with rig(limits=limits) as r:
        browser, app, _ = await r.joined(put())
        app.stall()
        await flood(browser, lambda: browser.writer.transport.get_write_buffer_size() >= 1 << 20)
        app.send(answer(b"too large", status="413 Content Too Large"))
        app.close()  # with a reset, since it has not read what came
        head, body = await browser.answer()
        assert (status_of(head), body) == (413, b"too large")
        assert nothing_left(r.path)


@either
async def test_an_app_that_resets_while_both_bodies_cross_ends_both(limits: Limits) -> None:
    async with rig(limits=limits) as r:
        browser, app, _ = await r.joined(put())
        app.send(HEAD)
        await browser.head()
        browser.stall()
        app.send(BODY * 3)
        await until(lambda: held(r) > 0)
        app.reset()
        sending = browser.writer.transport
        await flood(browser, lambda: has_failed(r) or sending.get_write_buffer_size() >= 1 << 20)
        browser.go_on()
        came = await browser.gone()
        assert came == (BODY * 3)[: len(came)]
        await until(lambda: not r.connections)
        assert nothing_left(r.path)


@either
async def test_an_app_that_resets_within_an_upload_is_502(limits: Limits) -> None:
    async with rig(limits=limits) as r:
        browser, app, _ = await r.joined(put())
        browser.send(BODY)
        await app.exactly(SIZE)
        app.reset()
        await flood(browser, lambda: r.path.meters.refusals["app_bad_answer"] > 0)
        head, body = await browser.answer()
        assert (status_of(head), code_of(body)) == (502, "app_bad_answer")
        assert nothing_left(r.path)


@either
async def test_an_app_reset_is_detected_although_reading_is_paused(limits: Limits) -> None:
    async with rig(limits=limits) as r:
        browser, app, _ = await r.joined(put())
        app.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        await browser.head()
        browser.stall()
        await until(lambda: len(r.connections) == 1)
        (front,) = r.connections
        async with asyncio.timeout(30):
            while not front.write_full:
                app.send(b"8000\r\n%b\r\n" % BODY[:0x8000])
                await asyncio.sleep(0.001)
        app.reset()
        await flood(browser, lambda: has_failed(r))
        browser.go_on()
        await until(lambda: not r.connections)
        assert nothing_left(r.path)


@either
@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_truncated_response_resets_the_client(limits: Limits, how: str) -> None:
    async with rig(limits=limits) as r:
        browser, app, _ = await r.joined(request())
        app.send(HEAD + BODY)
        await browser.head()
        assert await browser.exactly(SIZE) == BODY
        getattr(app, how)()
        with pytest.raises(ConnectionResetError):
            await browser.rest()
        assert nothing_left(r.path)


@either
@pytest.mark.parametrize("framing", ["Content-Length: 10000000", "Transfer-Encoding: chunked"])
async def test_a_slow_reader_gets_all_of_a_truncated_response_before_the_reset(
    limits: Limits, framing: str
) -> None:
    chunked = framing.startswith("Transfer")
    async with rig(limits=limits) as r:
        browser, app, _ = await r.joined(request())
        browser.stall()
        app.send(b"HTTP/1.1 200 OK\r\n%b\r\n\r\n" % framing.encode())
        app.send(b"%x\r\n%b\r\n" % (SIZE, BODY) if chunked else BODY)
        await app.writer.drain()
        app.close()
        await until(lambda: has_failed(r))
        await asyncio.sleep(0.2)
        browser.go_on()
        received = await browser.gone()
        assert isinstance(browser.reader.exception(), ConnectionResetError)
        received += browser.unread()
        assert received.endswith(BODY[-10_000:] + (b"\r\n" if chunked else b""))
        await until(lambda: not r.connections)
        assert nothing_left(r.path)


async def test_a_slow_reader_of_a_truncated_response_is_checked_less_and_less_often(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """An app that ends breaks off all its responses, and each check takes time of the loop."""
    checks = 0

    def counted(transport: asyncio.Transport) -> bool:
        nonlocal checks
        checks += 1
        return has_unsent(transport)

    monkeypatch.setattr(closer, "has_unsent", counted)
    async with rig() as r:
        browser, app, _ = await r.joined(request())
        browser.stall()
        app.send(HEAD + BODY)
        await app.writer.drain()
        app.close()
        await until(lambda: has_failed(r))
        await asyncio.sleep(1.5)
        assert 0 < checks <= 7
        r.world.revoke(sid=SID, jti=GRANT.jti)
        await until(lambda: not r.connections)


@either
async def test_a_revoked_grant_resets_a_slow_reader_of_a_truncated_response(limits: Limits) -> None:
    async with rig(limits=limits) as r:
        browser, app, _ = await r.joined(request())
        browser.stall()
        app.send(HEAD + BODY)
        await app.writer.drain()
        app.close()
        await until(lambda: has_failed(r))
        r.world.revoke(sid=SID, jti=GRANT.jti)
        await until(lambda: not r.connections)
        assert nothing_left(r.path)


@either
@pytest.mark.parametrize("how", ["close", "reset"])
async def test_a_client_that_leaves_within_a_spliced_upload_closes_the_upstream_connection(
    limits: Limits, how: str
) -> None:
    async with rig(limits=limits) as r:
        browser, app, _ = await r.joined(put())
        browser.send(BODY)
        assert await app.exactly(SIZE) == BODY
        getattr(browser, how)()
        assert await app.gone() == b""
        await until(lambda: not r.connections)
        assert nothing_left(r.path)


@either
@pytest.mark.parametrize("stalled", [False, True], ids=["reading", "stalled"])
async def test_a_client_reset_within_a_response_closes_the_upstream_connection(
    limits: Limits, stalled: bool
) -> None:
    async with rig(limits=limits) as r:
        browser, app, _ = await r.joined(request())
        app.send(HEAD + BODY)
        await browser.exactly(SIZE)
        if stalled:
            browser.stall()
            await flood(app, lambda: held(r) > 0)
        browser.reset()
        assert await app.gone() == b""
        await until(lambda: not r.connections)
        assert nothing_left(r.path)


@either
async def test_a_revoked_grant_resets_a_response_at_once(limits: Limits) -> None:
    async with rig(limits=limits) as r:
        browser, app, _ = await r.joined(request())
        app.send(HEAD)
        await browser.head()
        browser.stall()
        await flood(app, lambda: held(r) > 0)
        r.world.revoke(sid=SID, jti=GRANT.jti)
        assert nothing_left(r.path)
        browser.go_on()
        with pytest.raises(ConnectionResetError):
            await browser.rest()
        await app.gone()


@either
async def test_a_revoked_grant_ends_an_upload_with_401(limits: Limits) -> None:
    async with rig(limits=limits) as r:
        browser, app, _ = await r.joined(put())
        browser.send(BODY)
        assert await app.exactly(SIZE) == BODY
        r.world.revoke(sid=SID, jti=GRANT.jti)
        browser.send(b"secret" * 1000)
        assert status_of((await browser.answer())[0]) == 401
        assert await app.gone() == b""
        assert nothing_left(r.path)


@either
async def test_a_response_in_progress_is_the_last_one_of_a_drain(limits: Limits) -> None:
    async with rig(limits=limits) as r:
        browser, app, _ = await r.joined(request())
        app.send(answer(BODY)[:-1])
        await browser.exactly(SIZE // 2)
        r.path.drain()
        app.send(BODY[-1:])
        assert (await browser.rest()).endswith(BODY[-1000:])
        assert nothing_left(r.path)


@either
async def test_an_app_that_sends_more_than_content_length_is_not_reused(limits: Limits) -> None:
    async with rig(limits=limits) as r:
        browser, app, _ = await r.joined(request("/1") + request("/2"))
        app.send(answer(BODY)[:-1])
        await browser.exactly(SIZE // 2)
        app.send(BODY[-1:] + answer(b"smuggled"))
        again = await r.app.connection()
        assert (await again.head()).startswith(b"GET /2 ")
        again.send(answer(b"right"))
        assert b"smuggled" not in await browser.until(b"right")
