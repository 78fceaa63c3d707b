"""WebSocket tunnels: how they start, and what they relay."""

from __future__ import annotations

import asyncio
import itertools
import random

import pytest

from gateway.core.access.access_right import ActivityCounter
from gateway.core.limits.values import Limits
from gateway.relay.tunnel import Tunnel
from gateway.relay.turns import FULL_READ, PORTION_BYTES, Backlog
from tests.gateway.relay.ending.test_slow_peers import fill
from tests.gateway.relay.harness import (
    ACCEPT,
    HOST,
    ORIGIN,
    READ_SECONDS,
    SID,
    SWITCH,
    UPGRADE,
    request,
    rig,
    status_of,
    upgrade,
)
from tests.gateway.relay.websocket_frames import close_of, frame


async def test_an_upgrade_is_forwarded_in_canonical_form() -> None:
    async with rig() as r:
        raw = upgrade(
            "/ws",
            "Sec-WebSocket-Protocol: a, b",
            "Sec-WebSocket-Extensions: x-own, permessage-deflate; client_max_window_bits, y",
            "Content-Length: 0",
        )
        browser, app, head = await r.joined(raw)
        assert (
            head
            == (
                f"GET /ws HTTP/1.1\r\nHost: {HOST}\r\nOrigin: {ORIGIN}\r\n"
                "X-Forwarded-For: 127.0.0.1\r\nSec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                f"X-Forwarded-Host: {HOST}\r\n"
                "X-Forwarded-Proto: http\r\nX-Forwarded-User: ada\r\n"
                "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"
                "Sec-WebSocket-Protocol: a, b\r\n\r\n"
            ).encode()
        )
        app.send(
            f"HTTP/1.1 101 Yes\r\nupgrade: WebSocket\r\nconnection: upgrade\r\n"
            f"Sec-WebSocket-Accept: {ACCEPT}\r\nSec-WebSocket-Protocol: b\r\n"
            "Sec-WebSocket-Extensions: permessage-deflate\r\nDate: now\r\n"
            "Set-Cookie: a=b\r\n\r\n".encode()
        )
        assert await browser.head() == (
            b"HTTP/1.1 101 Switching Protocols\r\nDate: now\r\nSet-Cookie: a=b\r\n"
            b"Content-Security-Policy: frame-ancestors 'self'\r\nCache-Control: private\r\n"
            b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Accept: " + ACCEPT.encode() + b"\r\n"
            b"Sec-WebSocket-Extensions: permessage-deflate\r\n"
            b"Sec-WebSocket-Protocol: b\r\n\r\n"
        )


async def test_any_other_upgrade_is_dropped_from_the_head() -> None:
    async with rig() as r:
        fields = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMA")
        _, _, head = await r.joined(request("/", *fields, "Sec-WebSocket-Key: k"))
        assert b"pgrade" not in head
        assert b"WebSocket" not in head
        assert b"HTTP2" not in head


async def test_bytes_sent_with_the_upgrade_head_are_relayed() -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(upgrade() + b"early")
        app.send(SWITCH + frame(b"first"))
        assert status_of(await browser.head()) == 101
        assert await browser.exactly(7) == frame(b"first")
        assert await app.exactly(5) == b"early"


async def test_closing_one_side_closes_the_other_after_its_last_bytes() -> None:
    async with rig() as r:
        browser, app = await r.tunnel()
        app.send(frame(b"bye"))
        app.close()
        assert await browser.rest() == frame(b"bye")
        browser.close()
        await asyncio.sleep(0.05)
        assert len(r.live) == 0

        browser, app = await r.tunnel()
        browser.send(b"bye")
        browser.close()
        assert await app.rest() == b"bye"


async def test_a_reset_of_one_side_closes_the_other() -> None:
    async with rig() as r:
        for end in ("browser", "app"):
            browser, app = await r.tunnel()
            (browser if end == "browser" else app).reset()
            assert await (app if end == "browser" else browser).rest() == b""
        await asyncio.sleep(0.05)
        assert len(r.live) == 0


@pytest.mark.parametrize("read", [True, False], ids=["read", "not read"])
async def test_a_browser_that_ends_without_close_ends_the_upstream_connection(read: bool) -> None:
    async with rig() as r:
        browser, app = await r.tunnel()
        if not read:
            app.stall()
            await fill(browser)
            # The FIN has to get past what the gateway does not read.
            app.go_on()
            await app.reader.read(1)
        browser.writer.write_eof()
        await app.gone()
        async with asyncio.timeout(READ_SECONDS):
            while r.path.open:
                await asyncio.sleep(0.01)


async def test_a_browser_that_leaves_under_backpressure_is_detected() -> None:
    async with rig() as r:
        browser, app = await r.tunnel()
        app.stall()
        (tunnel,) = r.live.members()
        assert isinstance(tunnel, Tunnel)
        while not tunnel.app_full:
            browser.send(b"x" * 65536)
            await asyncio.sleep(0.001)
        if browser.writer.transport.get_write_buffer_size():
            browser.reset()
        else:
            browser.close()
        async with asyncio.timeout(READ_SECONDS):
            while r.path.open:
                await asyncio.sleep(0.01)


async def test_empty_frames_are_spread_over_short_turns() -> None:
    async with rig() as r:
        browser, app = await r.tunnel()
        sent = b"\x82\x00" * 300_000
        app.send(sent)
        assert await browser.exactly(len(sent)) == sent
        assert sum(r.path.turns.counts) > 100
        app.send(frame(b"whole"))
        assert await browser.exactly(7) == frame(b"whole")
        r.world.revoke(sid=SID)
        assert close_of(await browser.rest())[0] == 4401


async def test_a_full_read_of_a_browser_is_written_in_portions_and_in_order() -> None:
    async with rig() as r:
        browser, app = await r.tunnel()
        (tunnel,) = r.live.members()
        assert isinstance(tunnel, Tunnel)
        tunnel.activity = ActivityCounter()
        sent = random.Random(7).randbytes(FULL_READ + 1000)
        tunnel.data_received(sent)
        # A loop may read once more after a pause.
        tunnel.data_received(b"next")
        written = [tunnel.traffic.up]
        assert not tunnel.browser.is_reading()
        while tunnel.unsent is not None:
            await asyncio.sleep(0)
            written.append(tunnel.traffic.up)
        steps = [after - before for before, after in itertools.pairwise(written)]
        assert written[0] == max(steps) == PORTION_BYTES
        assert written[-1] == tunnel.activity.up == len(sent) + 4
        assert tunnel.browser.is_reading()
        browser.send(b"last")
        assert await app.exactly(len(sent) + 8) == sent + b"nextlast"


async def test_a_browser_that_leaves_has_its_last_full_read_sent() -> None:
    async with rig() as r:
        browser, app = await r.tunnel()
        (tunnel,) = r.live.members()
        assert isinstance(tunnel, Tunnel)
        tunnel.data_received(bytes(FULL_READ))
        assert tunnel.unsent is not None
        tunnel.eof_received()
        assert await app.rest() == bytes(FULL_READ)
        browser.close()


async def test_a_full_read_is_not_sent_on_after_a_revocation() -> None:
    async with rig() as r:
        browser, app = await r.tunnel()
        (tunnel,) = r.live.members()
        assert isinstance(tunnel, Tunnel)
        tunnel.data_received(bytes(FULL_READ))
        r.world.revoke(sid=SID)
        assert close_of(await browser.rest())[0] == 4401
        browser.close()
        assert len(await app.rest()) <= PORTION_BYTES


@pytest.mark.parametrize(
    "pieces",
    [
        [b"\x82\x0c", b"\x82\x02ab", b"\x82\x02cdefgh"],
        [b"\x82", b"\x01\x00"],
        [b"\x82\x01\x00", b"\x82\x7e\x00", b"\x02\x00", b"z"],
    ],
    ids=["of a frame", "a header's end", "a length's end"],
)
async def test_frame_headers_within_a_payload_are_not_parsed(pieces: list[bytes]) -> None:
    async with rig() as r:
        browser, app = await r.tunnel()
        for piece in pieces[:-1]:
            app.send(piece)
            assert await browser.exactly(len(piece)) == piece
        r.world.revoke(sid=SID)
        app.send(pieces[-1])
        assert await browser.exactly(len(pieces[-1])) == pieces[-1]
        assert close_of(await browser.rest())[0] == 4401


async def test_a_browser_that_reads_nothing_is_reset() -> None:
    async with rig(limits=Limits(write_stall_seconds=0.4)) as r:
        browser, app = await r.tunnel()
        browser.stall()
        sending = asyncio.create_task(fill(app))
        await app.gone()
        sending.cancel()
        assert r.path.closer.stalls.found == 1


async def test_an_app_that_reads_nothing_is_disconnected() -> None:
    async with rig(limits=Limits(app_write_stall_seconds=0.4)) as r:
        browser, app = await r.tunnel()
        app.stall()
        sending = asyncio.create_task(fill(browser))
        await browser.gone()
        sending.cancel()
        assert r.path.meters.upstream_failures["app_timeout"] == 1


async def test_browsers_are_pinged_between_frames_if_configured() -> None:
    async with rig(limits=Limits(web_ping_seconds=0.2)) as r:
        browser, app = await r.tunnel()
        app.send(b"\x82\x05ab")
        assert await browser.exactly(4) == b"\x82\x05ab"
        assert await browser.silent(0.6), "within a frame nothing may stand"
        app.send(b"cde")
        assert await browser.exactly(5) == b"cde\x89\x00"
        app.send(b"\x82\x01f")
        assert await browser.exactly(5) == b"\x82\x01f\x89\x00"
        pong = b"\x8a\x80mask"
        browser.send(pong)
        assert await app.exactly(len(pong)) == pong
        r.world.revoke(sid="a" * 26)
        assert close_of(await browser.rest()) == (4401, b"grant revoked")


async def test_without_the_setting_no_browser_is_pinged_or_kept_in_the_wheel() -> None:
    async with rig() as r:
        browser, _ = await r.tunnel()
        assert await browser.silent(0.3)
        assert not r.path.limits.web_ping_seconds


def test_the_upgrade_of_these_tests_is_the_rfcs_example() -> None:
    assert "dGhlIHNhbXBsZSBub25jZQ==" in UPGRADE


async def test_frames_buffered_when_the_app_closes_count_as_activity() -> None:
    async with rig() as r:
        browser, _ = await r.tunnel()
        (tunnel,) = r.live.members()
        assert isinstance(tunnel, Tunnel)
        tunnel.activity = ActivityCounter()
        tunnel.backlog = Backlog(frame(b"waits"))
        tunnel.app_closed()
        assert tunnel.activity.down == len(frame(b"waits"))
        assert await browser.rest() == frame(b"waits")
