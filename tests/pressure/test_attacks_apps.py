"""Tests attacks by apps: endless heads, responses in tiny pieces, bytes after a response."""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

import pytest

from tests.contract.frames import HANDSHAKE
from tests.contract.messages import read_response, request
from tests.contract.streams import Stream
from tests.contract.upstream import App, Script, friendly
from tests.pressure import apps
from tests.pressure.attack import HELD_BYTES, SLACK_BYTES, attacked
from tests.pressure.attackers import read_on
from tests.pressure.browser import Browser
from tests.pressure.gateway_under_test import DEADLINE_SECONDS, SMALL_WINDOW, PressureRig
from tests.pressure.kinds import CHUNK
from tests.pressure.test_attacks_requests import FLOOD_SECONDS

LATE_SECONDS = 3.0


async def asked(ground: PressureRig, app: App, *fields: tuple[str, str]) -> Browser:
    """Return a browser that has sent a request to *app*."""
    session, own = await ground.entered(app)
    browser = await ground.browser(window=SMALL_WINDOW)
    everything = [*own, *fields]
    await browser.send(request("GET", "/", host=session.host, fields=everything))
    async with asyncio.timeout(5):
        while not app.connections:
            await asyncio.sleep(0.01)
    return browser


def drips(first: bytes, piece: bytes) -> Script:
    """Return a script that sends *first*, and then *piece* without end, slowly."""

    async def script(app: App, stream: Stream) -> None:
        await app.head(stream)
        stream.send(first)
        while not stream.ended:
            stream.send(piece)
            await asyncio.sleep(0.05)

    return script


@pytest.mark.parametrize(
    ("first", "piece"),
    [
        (b"HTTP/1.1 200 OK\r\nX: ", b"x"),
        (b"HTTP/1.1 200 OK\r\n", b"a: b\r\n"),
        (b"", b"HTTP/1.1 103 Early Hints\r\n\r\n"),
    ],
    ids=["a field", "fields", "interim answers"],
)
async def test_a_dripping_response_head_ends_at_the_apps_deadline(
    plain: PressureRig, first: bytes, piece: bytes
) -> None:
    """An interim response is no final head: RFC 9110, section 15.2."""
    async with plain.app(drips(first, piece)) as app:
        browser = await asked(plain, app)
        assert plain.legs_of(app.address)
        found = await plain.freed(app.address, DEADLINE_SECONDS + LATE_SECONDS)
        assert found is not None, "the app's connection stays"
        status = await browser.status()
        while status < 200:
            status = await browser.status()
        assert status in (502, 504)


FLOODS = {
    "a field": (b"HTTP/1.1 200 OK\r\nX: ", b"x" * 65536),
    "fields": (b"HTTP/1.1 200 OK\r\n", b"a: b\r\n" * 10_000),
    "interim answers": (b"", b"HTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n" * 1000),
    "a chunk size": (apps.STREAM_HEAD, b"0" * 65536),
    "an extension": (apps.STREAM_HEAD + b"1;", b"x" * 65536),
    "trailers": (apps.STREAM_HEAD + b"0\r\n", b"a: b\r\n" * 10_000),
}


@pytest.mark.parametrize("what", FLOODS)
async def test_unbounded_response_parts_close_the_upstream_connection_at_their_limit(
    plain: PressureRig, what: str
) -> None:
    first, piece = FLOODS[what]
    most = 2 * HELD_BYTES + SLACK_BYTES
    async with plain.app(apps.web("talks", first, piece)) as app, attacked(plain, most=most):
        await asked(plain, app)
        assert await plain.freed(app.address, LATE_SECONDS) is not None


async def test_unread_interim_responses_apply_backpressure(ground: PressureRig) -> None:
    hints = b"HTTP/1.1 103 Early Hints\r\nLink: " + b"x" * 60_000 + b"\r\n\r\n"
    async with ground.app(apps.web("silent", hints * 60)) as app, attacked(ground, seconds=1.5):
        for _ in range(4):
            await asked(ground, app)


@pytest.mark.parametrize("size", [1, 7], ids=["bytes", "sevens"])
async def test_a_response_in_small_segments_does_not_delay_others(
    ground: PressureRig, size: int
) -> None:
    async def script(app: App, stream: Stream) -> None:
        await app.head(stream)
        stream.send(apps.LARGE_HEAD)
        while not stream.ended:
            for _ in range(200):
                stream.send(b"x" * size)
            await asyncio.sleep(0)

    async with ground.app(script) as app, attacked(ground):
        browser = await asked(ground, app)
        with suppress(TimeoutError):
            async with asyncio.timeout(FLOOD_SECONDS):
                await read_on(browser)


async def test_bytes_beyond_a_response_are_discarded(plain: PressureRig) -> None:
    first = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"
    script = apps.web("talks", first, b"HTTP/1.1 200 OK\r\n\r\nsmuggled")
    async with plain.app(script) as app, attacked(plain):
        browser = await asked(plain, app)
        found = await read_response(browser)
        assert (found.status, found.body) == (200, b"ok") or found.status == 502
        assert await plain.freed(app.address, LATE_SECONDS) is not None
        assert b"smuggled" not in await browser.read_to_end(0.3)


async def test_an_unsolicited_101_is_502(plain: PressureRig) -> None:
    switch = b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n"
    async with plain.app(apps.web("silent", switch)) as app, attacked(plain):
        browser = await asked(plain, app)
        assert await browser.status() == 502
        assert await plain.freed(app.address, 2.0) is not None


async def test_an_unanswered_upgrade_ends_at_the_apps_deadline(ground: PressureRig) -> None:
    async with ground.app(apps.web("silent")) as app:
        browser = await asked(ground, app, *HANDSHAKE)
        assert await browser.status(DEADLINE_SECONDS + LATE_SECONDS) == 504
        assert await ground.freed(app.address, 2.0) is not None


async def test_an_upgrade_is_cancelled_when_its_client_leaves(ground: PressureRig) -> None:
    async with ground.app(apps.web("silent")) as app:
        browser = await asked(ground, app, *HANDSHAKE)
        assert ground.legs_of(app.address)
        browser.fin()
        assert await ground.freed(app.address, 2.7) is not None


async def test_a_hundred_pending_100_continue_delay_no_other_session(
    ground: PressureRig,
) -> None:
    """The gateway sends no 100 Continue of its own; a client that sends on gets backpressure."""
    async with ground.app(apps.web("deaf"), window=SMALL_WINDOW) as app:
        session, own = await ground.entered(app)
        expects = [*own, ("Expect", "100-continue"), ("Transfer-Encoding", "chunked")]
        head = request("PUT", "/", host=session.host, fields=expects)
        count = 20
        async with attacked(ground, most=count * 2 * HELD_BYTES + SLACK_BYTES):

            async def one() -> None:
                browser = await ground.browser(window=SMALL_WINDOW)
                await browser.send(head)
                await browser.flood(CHUNK, most=8 << 20, seconds=FLOOD_SECONDS)

            await asyncio.gather(*(one() for _ in range(count)))


async def test_apps_that_accept_no_connection_delay_no_other_session(plain: PressureRig) -> None:
    """A listener with a full backlog looks like a host that is gone."""
    listener = await plain.place.listen("near")
    listener.listen(0)
    port = listener.getsockname()[1]
    full = [await plain.place.connect("near", ("127.0.0.1", port), None)]
    session = await plain.rig.session(target={"host": "127.0.0.1", "port": port})
    own = plain.rig.own(session, await plain.rig.opened(session))
    async with attacked(plain):
        for _ in range(50):
            browser = await plain.browser()
            await browser.send(request("GET", "/", host=session.host, fields=own))
        await asyncio.sleep(0.5)
    for one in (listener, *full):
        one.close()


async def test_a_client_that_left_during_the_dial_leaves_no_state(plain: PressureRig) -> None:
    listener = await plain.place.listen("near")
    listener.listen(0)
    port = listener.getsockname()[1]
    full = await plain.place.connect("near", ("127.0.0.1", port), None)
    session = await plain.rig.session(target={"host": "127.0.0.1", "port": port})
    own = plain.rig.own(session, await plain.rig.opened(session))
    browser = await plain.browser()
    await browser.send(request("GET", "/", host=session.host, fields=own))
    await asyncio.sleep(0.2)
    browser.fin()
    began = time.monotonic()
    assert await plain.freed(browser.address, 2.7) is not None
    assert await plain.freed(("127.0.0.1", port), 2.7 - (time.monotonic() - began)) is not None
    for one in (listener, full):
        one.close()


async def test_a_pooled_connection_with_unsolicited_bytes_is_closed(plain: PressureRig) -> None:
    async with plain.app(friendly) as app, attacked(plain):
        browser = await asked(plain, app)
        assert (await read_response(browser)).body == b"ok"
        app.connections[0].send(b"x" * 100_000)
        assert await plain.freed(app.address, 2.0) is not None
