"""Tests attacks by requests: refused, pipelined, in pieces of a byte, read or not."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import pytest

from tests.contract.messages import read_response, request
from tests.contract.rig import new_sid
from tests.contract.upstream import friendly
from tests.pressure import apps
from tests.pressure.attack import HELD_BYTES, SLACK_BYTES, attacked
from tests.pressure.attackers import read_on
from tests.pressure.gateway_under_test import DEADLINE_SECONDS, SMALL_WINDOW, PressureRig

FLOOD_BYTES = 4 << 20
FLOOD_SECONDS = 0.6
# The gateway allows two seconds to read a refusal; the rest is for a busy machine.
LINGER_SECONDS = 3.5


async def flood(ground: PressureRig, data: bytes, *, reading: bool, browsers: int = 1) -> int:
    """Send *data* again and again on some connections; return how many bytes the gateway took."""

    async def one() -> int:
        browser = await ground.browser(window=None if reading else SMALL_WINDOW)
        reads = asyncio.create_task(read_on(browser)) if reading else None
        taken = await browser.flood(data, most=FLOOD_BYTES, seconds=FLOOD_SECONDS)
        if reads is not None:
            reads.cancel()
            await asyncio.gather(reads, return_exceptions=True)
        return taken

    return sum(await asyncio.gather(*(one() for _ in range(browsers))))


REFUSED = {
    "no credential": ("GET", "/", ()),
    "a grant that is none": ("GET", "/", [("Cookie", "fumarole=x; __Host-fumarole=x")]),
    "a token that is none": ("GET", "/", [("Fumarole-Token", "a.b.c")]),
    "an unsigned token": ("GET", "/", [("Authorization", f"Bearer eyJ.{'x' * 400}.AAAA")]),
    "a preflight": ("OPTIONS", "/", [("Origin", "https://evil.example")]),
    "a head": ("HEAD", "/", ()),
    "a page of no name": ("GET", "/.fumarole/none", ()),
    "the state": ("GET", "/.fumarole/state", ()),
    "a browser": ("GET", "/", [("Accept", "text/html")]),
}


@pytest.mark.parametrize("reading", [True, False], ids=["read", "unread"])
@pytest.mark.parametrize("what", REFUSED)
async def test_consecutive_refusals_do_not_delay_others(
    plain: PressureRig, what: str, reading: bool
) -> None:
    session = await plain.rig.session()
    method, target, fields = REFUSED[what]
    data = request(method, target, host=session.host, fields=fields) * 100
    async with attacked(plain):
        await flood(plain, data, reading=reading)


@pytest.mark.parametrize("reading", [True, False], ids=["read", "unread"])
async def test_refusals_of_eight_clients_do_not_delay_others(
    ground: PressureRig, reading: bool
) -> None:
    host = ground.rig.host_of(f"{new_sid()}.{ground.rig.url.hostname}")
    data = request("GET", "/", host=host) * 100
    async with attacked(ground, most=8 * HELD_BYTES + SLACK_BYTES):
        await flood(ground, data, reading=reading, browsers=8)


async def test_refused_uploads_cost_linear_time(plain: PressureRig) -> None:
    session = await plain.rig.session()
    head = request("PUT", "/", host=session.host, fields=[("Transfer-Encoding", "chunked")])
    async with attacked(plain):
        for _ in range(4):
            browser = await plain.browser()
            await browser.send(head)
            await browser.flood(b"1\r\nx\r\n" * 4000, most=FLOOD_BYTES, seconds=1.0)


async def test_responses_that_are_not_read_apply_backpressure(ground: PressureRig) -> None:
    async with (
        ground.app(apps.pipelined) as app,
        attacked(ground, most=2 * HELD_BYTES + SLACK_BYTES),
    ):
        session, own = await ground.entered(app)
        await flood(ground, request("GET", "/", host=session.host, fields=own) * 100, reading=False)


async def test_requests_behind_an_unanswered_one_stay_in_the_kernel(ground: PressureRig) -> None:
    async with ground.app(apps.web("silent")) as app:
        async with attacked(ground, most=2 * HELD_BYTES + SLACK_BYTES):
            session, own = await ground.entered(app)
            data = request("GET", "/", host=session.host, fields=own)
            await flood(ground, data * 100, reading=True)
        assert len(app.requests) <= 2  # the second one's app was dialled after a 504


# Tiny pieces


PIECES = {
    "chunks of a byte": b"1\r\nx\r\n",
    "chunks with extensions": b"1;" + b"e" * 200 + b"\r\nx\r\n",
    "chunk sizes with zeros": b"0000000000000001\r\nx\r\n",
}


@pytest.mark.parametrize("what", PIECES)
async def test_an_upload_in_one_byte_chunks_does_not_delay_others(
    ground: PressureRig, what: str
) -> None:
    piece = PIECES[what]
    async with ground.app(apps.web("silent")) as app, attacked(ground):
        session, own = await ground.entered(app)
        browser = await ground.browser()
        fields = [*own, ("Transfer-Encoding", "chunked")]
        await browser.send(request("PUT", "/", host=session.host, fields=fields))
        await browser.flood(piece * (65536 // len(piece)), most=FLOOD_BYTES, seconds=FLOOD_SECONDS)


@pytest.mark.parametrize("what", PIECES)
async def test_a_response_in_one_byte_chunks_does_not_delay_others(
    ground: PressureRig, what: str
) -> None:
    piece = PIECES[what] * (65536 // len(PIECES[what]))
    async with ground.app(apps.web("talks", apps.STREAM_HEAD, piece)) as app, attacked(ground):
        session, own = await ground.entered(app)
        browser = await ground.browser()
        await browser.send(request("GET", "/", host=session.host, fields=own))
        with suppress(TimeoutError):
            async with asyncio.timeout(FLOOD_SECONDS):
                await read_on(browser)


async def test_the_rest_of_an_early_answered_upload_does_not_delay_others(
    ground: PressureRig,
) -> None:
    async with ground.app(apps.web("silent", b"HTTP/1.1 200 OK\r\n\r\n")) as app, attacked(ground):
        session, own = await ground.entered(app)
        browser = await ground.browser()
        fields = [*own, ("Transfer-Encoding", "chunked")]
        await browser.send(request("PUT", "/", host=session.host, fields=fields))
        await browser.status()
        await browser.flood(b"1\r\nx\r\n" * 10_000, most=FLOOD_BYTES, seconds=FLOOD_SECONDS)


async def test_many_small_requests_do_not_delay_others(ground: PressureRig) -> None:
    async with ground.app(friendly) as app, attacked(ground):
        session, own = await ground.entered(app)
        await flood(ground, request("GET", "/", host=session.host, fields=own) * 200, reading=True)


async def test_endless_trailers_end_the_connection(plain: PressureRig) -> None:
    async with plain.app(apps.web("silent")) as app, attacked(plain):
        session, own = await plain.entered(app)
        browser = await plain.browser()
        fields = [*own, ("Transfer-Encoding", "chunked")]
        head = request("PUT", "/", host=session.host, fields=fields)
        await browser.send(head + b"1\r\nx\r\n0\r\n")
        began = time.monotonic()
        await browser.flood(b"x: y\r\n" * 1000, most=1 << 30, seconds=3 * LINGER_SECONDS)
        assert time.monotonic() - began < LINGER_SECONDS


# Ends by FIN


async def test_twenty_streams_and_twenty_polls_end_within_two_seconds(ground: PressureRig) -> None:
    async with (
        ground.app(apps.web("silent", apps.FIRST_EVENT)) as stream,
        ground.app(apps.web("silent")) as poll,
        attacked(ground),
    ):
        browsers = []
        for app in (stream, poll):
            session, own = await ground.entered(app)
            for _ in range(20):
                browsers.append(await ground.browser())
                await browsers[-1].send(request("GET", "/", host=session.host, fields=own))
        await asyncio.sleep(0.5)
        for browser in browsers:
            browser.fin()
        for app in (stream, poll):
            assert len(app.connections) == 20
            assert await ground.freed(app.address, 2.7) is not None, ground.legs_of(app.address)


async def test_a_complete_response_is_still_sent_after_a_fin(ground: PressureRig) -> None:
    """``printf … | nc``: request and FIN arrive together, and the complete response is flushed."""
    session = await ground.rig.session()
    browser = await ground.browser(window=SMALL_WINDOW)
    data = request("GET", "/", host=session.host)
    await browser.send(data)
    assert (await read_response(browser)).status == 401
    await browser.send(data)
    browser.fin()
    assert (await read_response(browser)).status == 401
    assert await ground.freed(browser.address, 2.7) is not None


async def test_close_notify_without_fin_cancels_the_request(secure: PressureRig) -> None:
    async with secure.app(apps.web("silent", apps.FIRST_EVENT)) as app:
        session, own = await secure.entered(app)
        browser = await secure.browser()
        await browser.send(request("GET", "/", host=session.host, fields=own))
        assert await browser.status() == 200
        await browser.close_notify()
        assert await secure.freed(app.address, 2.7) is not None


async def test_a_deadline_restarts_with_progress(ground: PressureRig) -> None:
    """A reader that repeatedly pauses for less than the deadline has not stalled."""
    async with ground.app(apps.web("talks", apps.LARGE_HEAD)) as app:
        session, own = await ground.entered(app)
        browser = await ground.browser(window=SMALL_WINDOW)
        await browser.send(request("GET", "/", host=session.host, fields=own))
        for _ in range(4):
            await asyncio.sleep(DEADLINE_SECONDS * 0.6)
            await browser.read_exactly(200_000)
