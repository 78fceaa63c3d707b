"""Tests attacks before the first request: silent connections, partial and unexpected bytes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from pathlib import Path

import pytest
import pytest_asyncio

from gateway.pages.assets import BUILD_FOLDER, STATIC_PREFIX
from tests.contract.messages import request
from tests.contract.rig import new_source
from tests.pressure.attack import SLACK_BYTES, attacked
from tests.pressure.browser import Browser, GatewayClosed
from tests.pressure.gateway_under_test import (
    DEADLINE_SECONDS,
    SMALL_WINDOW,
    PressureRig,
    make_context,
    running_ground,
)
from tests.pressure.key_updates import Records
from tests.pressure.test_attacks_requests import FLOOD_SECONDS, LINGER_SECONDS

CROWD = 200
PROXY_SIGNATURE = b"\r\n\r\n\x00\r\nQUIT\n"
# The start of a TLS client's first record: 512 bytes, of which few are sent.
CLIENT_HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"
HEAD_BYTES, COOKIE_BYTES = 64 << 10, 256 << 10
# docs/limits.md: an idle connection keeps a head of up to 8 KiB, with what was read from it.
KEPT_BYTES = 64 << 10
# The same page: TLS keeps 53 KiB when idle, and what it has encrypted for a reader.
UNREAD_FILE_BYTES = 200 << 10
FILES = json.loads((BUILD_FOLDER / "manifest.json").read_text("utf-8")).values()
# What the work on a few heads at once needs.
HANDLED_BYTES = 16 << 20


async def crowd(ground: PressureRig, data: bytes, *, count: int = CROWD) -> list[Browser]:
    """Return *count* connections that have sent only *data*, below TLS."""
    browsers = []
    for _ in range(count):
        browsers.append(await ground.browser(handshake=False))
        with suppress(GatewayClosed):
            await browsers[-1].send_raw(data)
    return browsers


async def gone(ground: PressureRig, browsers: list[Browser], within: float) -> None:
    """Assert that the gateway has closed all *browsers* in time."""
    deadline, all_of_them = time.monotonic() + within, {browser.address for browser in browsers}
    while left := all_of_them & {leg.remote for leg in ground.legs()}:
        assert time.monotonic() < deadline, f"{len(left)} are still there after {within} s"
        await asyncio.sleep(0.1)


BEGINNINGS = {
    "half a request line": b"GET / HT",
    "half a head": b"GET / HTTP/1.1\r\nHost: x\r\nX: " + b"x" * 3000,
    "a line end": b"\r\n",
}
SECURE_BEGINNINGS = {"half a handshake": CLIENT_HELLO, "a byte of one": b"\x16"}


@pytest.mark.parametrize("what", BEGINNINGS)
async def test_stalled_heads_end_at_their_deadline(plain: PressureRig, what: str) -> None:
    async with attacked(plain, most=CROWD * 16_384 + SLACK_BYTES):
        await gone(plain, await crowd(plain, BEGINNINGS[what]), DEADLINE_SECONDS + LINGER_SECONDS)


@pytest.mark.parametrize("what", SECURE_BEGINNINGS)
async def test_stalled_tls_handshakes_end_at_their_deadline(secure: PressureRig, what: str) -> None:
    # OpenSSL's handshake state and uvloop's buffers, for each connection.
    async with attacked(secure, most=CROWD * (256 << 10) + SLACK_BYTES):
        await gone(
            secure, await crowd(secure, SECURE_BEGINNINGS[what]), DEADLINE_SECONDS + LINGER_SECONDS
        )


async def test_plain_bytes_on_a_tls_port_end_at_once(secure: PressureRig) -> None:
    async with attacked(secure, most=CROWD * (256 << 10) + SLACK_BYTES):
        await gone(secure, await crowd(secure, b"GET / HTTP/1.1\r\n\r\n"), 2.0)


async def test_heads_of_maximum_length_use_bounded_memory(plain: PressureRig) -> None:
    count = 40
    head = b"GET / HTTP/1.1\r\nHost: x\r\nCookie: " + b"c" * (COOKIE_BYTES - 1000)
    async with attacked(plain, most=count * 2 * (HEAD_BYTES + COOKIE_BYTES) + SLACK_BYTES):
        await crowd(plain, head, count=count)
        await asyncio.sleep(0.5)


async def test_idle_connections_keep_nothing_of_heads_of_maximum_length(plain: PressureRig) -> None:
    count, session = 80, await plain.rig.session()
    fields = [(f"X-{number}", "x" * 240) for number in range(250)]
    cookie = ("Cookie", "; ".join(f"c{number}={'v' * 200}" for number in range(1200)))
    head = request("GET", "/", host=session.host, fields=[*fields, cookie])
    assert len(head) > HEAD_BYTES + COOKIE_BYTES - 20_000
    async with attacked(plain, most=KEPT_BYTES * count + HANDLED_BYTES):
        for browser in await crowd(plain, head, count=count):
            assert await browser.status() == 401


@pytest.mark.parametrize("coding", ["gzip", "identity"])
async def test_files_that_are_not_read_use_bounded_memory(ground: PressureRig, coding: str) -> None:
    count, session = 40, await ground.rig.session()
    largest = max((BUILD_FOLDER / name for name in FILES), key=lambda file: file.stat().st_size)
    fields = [("Accept-Encoding", coding)]
    data = request("GET", STATIC_PREFIX + largest.name, host=session.host, fields=fields)
    async with attacked(ground, most=count * UNREAD_FILE_BYTES + HANDLED_BYTES // 4):
        for _ in range(count):
            browser = await ground.browser(window=SMALL_WINDOW)
            await browser.send(data)
        await asyncio.sleep(0.5)


async def test_a_file_that_is_read_slowly_arrives_whole(ground: PressureRig) -> None:
    session = await ground.rig.session()
    largest = max((BUILD_FOLDER / name for name in FILES), key=lambda file: file.stat().st_size)
    browser = await ground.browser(window=SMALL_WINDOW)
    data = request("GET", STATIC_PREFIX + largest.name, host=session.host, fields=[])
    await browser.send(data)
    await asyncio.sleep(0.5)
    head = await browser.read_until(b"\r\n\r\n")
    assert b"\r\nContent-Length: %d\r\n" % largest.stat().st_size in head
    assert await browser.read_to_end() == largest.read_bytes()


async def test_a_long_head_byte_by_byte_costs_linear_time(ground: PressureRig) -> None:
    """A new byte must not make the gateway scan the whole head again."""
    head = b"GET / HTTP/1.1\r\nHost: x\r\nCookie: " + b"c" * (COOKIE_BYTES - 4000)
    async with attacked(ground):
        browser = await ground.browser()
        await browser.send(head)
        before, began = ground.cpu(), time.monotonic()
        sent = 0
        with suppress(GatewayClosed, TimeoutError):
            while time.monotonic() - began < FLOOD_SECONDS:
                await browser.send(b"c")
                sent += 1
                await asyncio.sleep(0)
        # 100 µs a byte, with TLS and the loop; the honest session has its part as well.
        assert ground.cpu() - before < 0.1 + sent * 0.0001, sent


ENDLESS = {
    "fields": (b"GET / HTTP/1.1\r\nHost: x\r\n", b"a: b\r\n" * 1000),
    "one field": (b"GET / HTTP/1.1\r\nHost: x\r\na: ", b"b" * 65536),
    "a target": (b"GET /", b"a" * 65536),
    "CRLF": (b"", b"\r\n" * 30_000),
    "LF": (b"", b"\n" * 65536),
    "NUL": (b"", b"\0" * 65536),
    "SP": (b"", b" " * 65536),
}


@pytest.mark.parametrize("what", ENDLESS)
async def test_an_endless_head_ends_the_connection(ground: PressureRig, what: str) -> None:
    """RFC 9112, section 2.2: a server skips an empty line before a request, but not megabytes."""
    first, more = ENDLESS[what]
    async with attacked(ground):
        browser = await ground.browser()
        await browser.send(first)
        began = time.monotonic()
        await browser.flood(more, most=1 << 30, seconds=3 * LINGER_SECONDS)
        assert time.monotonic() - began < LINGER_SECONDS


async def test_empty_lines_between_requests_restart_no_deadline(plain: PressureRig) -> None:
    browser = await plain.browser()
    dribbling = asyncio.create_task(browser.dribble(b"\r\n" * 1000, 0.05))
    try:
        assert await plain.freed(browser.address, DEADLINE_SECONDS + LINGER_SECONDS) is not None
    finally:
        dribbling.cancel()
        await asyncio.gather(dribbling, return_exceptions=True)


async def test_short_lived_connections_do_not_delay_others(ground: PressureRig) -> None:
    async with attacked(ground):
        began, number = time.monotonic(), 0
        while time.monotonic() - began < FLOOD_SECONDS:
            browser = await ground.browser(handshake=False)
            browser.reset()
            ground.browsers.clear()
            number += 1
            if number % CROWD == 0:  # a gateway without a processor has not seen yet that they left
                await ground.metrics()


async def test_one_byte_tls_records_do_not_delay_others(secure: PressureRig) -> None:
    """TLS turns one byte into 23, and each record is decrypted on its own."""
    session = await secure.rig.session()
    browser = await secure.browser()
    head = request("GET", "/", host=session.host, fields=[("Cookie", "c" * 30_000)])
    async with attacked(secure):
        data = b"".join(browser.seal(head[at : at + 1]) for at in range(len(head)))
        with suppress(GatewayClosed):
            await browser.send_raw(data)
            assert await browser.status() == 401


@pytest.mark.parametrize("asks", [False, True])
async def test_tls_key_updates_do_not_delay_others(
    secure: PressureRig, tmp_path: Path, *, asks: bool
) -> None:
    """OpenSSL processes each one silently in some 19 µs: 0.2 s for the bytes of one read."""
    session = await secure.rig.session()
    usual, secure.process.context = secure.process.context, make_context()
    secure.process.context.keylog_filename = str(tmp_path / "keys")
    try:
        browsers = [await secure.browser() for _ in range(4)]
    finally:
        secure.process.context = usual
    floods = []
    for number in range(len(browsers)):
        records = Records(tmp_path / "keys", number)
        updates = b"".join(records.key_update(asks=asks) for _ in range(10_000))
        floods.append(updates + records.data(request("GET", "/", host=session.host)))
    async with attacked(secure, seconds=FLOOD_SECONDS):
        sending = (one.send_raw(flood, 60) for one, flood in zip(browsers, floods, strict=True))
        # The gateway answers updates. A client that reads only at the end would count as stalled.
        reading = asyncio.gather(*(browser.status(60) for browser in browsers))
        await asyncio.gather(*sending)
        assert await reading == [401] * len(browsers)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def proxied_ground(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[PressureRig]:
    """Provide a gateway that trusts every peer's PROXY header."""
    folder = tmp_path_factory.mktemp("proxied")
    async with running_ground(folder, {"TRUSTED_PROXIES": "127.0.0.0/8"}) as ground:
        yield ground


@pytest.mark.parametrize(
    "data",
    [
        PROXY_SIGNATURE[:5],
        PROXY_SIGNATURE + b"\x21\x11\x10\x00" + b"x" * 1000,
        PROXY_SIGNATURE + b"\x21\x11\x00\x0c" + b"x" * 11,
    ],
    ids=["signature", "long", "a byte short"],
)
async def test_a_stalled_proxy_header_ends_at_its_deadline(
    proxied_ground: PressureRig, data: bytes
) -> None:
    async with attacked(proxied_ground, most=CROWD * 16_384 + SLACK_BYTES):
        await gone(
            proxied_ground, await crowd(proxied_ground, data), DEADLINE_SECONDS + LINGER_SECONDS
        )


async def test_one_address_cannot_use_the_whole_unauthenticated_quota(
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    """Stalled readers count for their address, as any other connections do."""
    folder = tmp_path_factory.mktemp("counted")
    async with running_ground(folder, {"ADDRESS_CONNECTIONS": "20"}) as ground:
        source = new_source()
        session = await ground.rig.session()
        data = request("GET", "/", host=session.host)
        statuses = []
        for _ in range(25):
            browser = await ground.browser(source=source)
            await browser.send(data)
            statuses.append(await browser.status())
        assert statuses[:20] == [401] * 20
        # The first connections make room once they have waited for 2 s; on a busy machine they
        # have.
        assert set(statuses[20:]) <= {429, 401}
        deadline = time.monotonic() + LINGER_SECONDS + DEADLINE_SECONDS
        while (await ground.metrics())["fumarole_gateway_strangers"] > 20:
            assert time.monotonic() < deadline
            await asyncio.sleep(0.1)
        assert (await ground.rig.get(session)).status == 401
