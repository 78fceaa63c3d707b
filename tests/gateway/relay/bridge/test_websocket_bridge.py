"""The end of desktops and terminals: the browser receives the close code."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core.limits.values import Limits
from tests.gateway.relay.bridge.desktops import ASK_TO_VIEW, desktops, joined, said
from tests.gateway.relay.harness import SID, status_of
from tests.gateway.relay.websocket_frames import close_of


async def test_the_close_code_is_received_although_the_browser_keeps_sending() -> None:
    async with desktops() as r:
        browser, desktop = await joined(r)
        frame = b"\x82\xfe\x10\x00mask" + b"x" * 4096
        browser.send(frame * 200)
        r.world.revoke(sid=SID)
        browser.send(frame * 200)
        data = await browser.rest()
        assert data[:4] == b"\x88" + bytes((len(data) - 2,)) + (4401).to_bytes(2, "big")
        await desktop.gone()


async def test_a_browser_that_answers_the_close_is_closed_at_once() -> None:
    async with desktops(Limits(linger_seconds=30.0)) as r:
        browser, _ = await joined(r)
        r.world.revoke(sid=SID)
        await browser.rest()
        browser.send(
            b"\x88\x82mask" + bytes(a ^ b for a, b in zip(b"\x11\x31", b"ma", strict=True))
        )
        async with asyncio.timeout(5):
            while r.live.closing:
                await asyncio.sleep(0.01)


async def test_a_browser_that_does_not_close_is_closed_after_a_while() -> None:
    async with desktops(Limits(linger_seconds=0.5)) as r:
        await joined(r)
        r.world.revoke(sid=SID)
        assert len(r.live.closing) == 1
        async with asyncio.timeout(5):
            while r.live.closing:
                await asyncio.sleep(0.01)


async def test_unread_output_of_a_stalled_browser_is_discarded_at_the_end() -> None:
    async with desktops() as r:
        browser, desktop = await joined(r)
        browser.stall()
        for _ in range(200):
            if desktop.writer.transport.get_write_buffer_size() < 1 << 20:
                desktop.send(b"x" * 65536)
            await asyncio.sleep(0.001)
        r.world.revoke(sid=SID)
        async with asyncio.timeout(5):
            while r.live.closing:
                await asyncio.sleep(0.01)
        browser.go_on()
        with pytest.raises(ConnectionResetError):
            await browser.rest()


async def test_a_silent_desktop_is_disconnected_after_its_deadline() -> None:
    async with desktops(Limits(app_head_seconds=0.2)) as r:
        browser = await r.browser()
        browser.send(ASK_TO_VIEW)
        desktop = await r.app.connection()
        assert status_of(await browser.head()) == 101
        assert close_of(await browser.rest(10)) == (1011, b"the desktop does not respond")
        await desktop.gone()
        assert r.path.meters.upstream_failures["app_timeout"] == 1


async def test_the_desktops_deadline_pauses_while_the_handshake_waits_for_the_browser() -> None:
    async with desktops(Limits(app_head_seconds=0.2)) as r:
        browser = await r.browser()
        browser.send(ASK_TO_VIEW)
        desktop = await r.app.connection()
        assert status_of(await browser.head()) == 101
        desktop.send(b"RFB 003.008\n\x01\x01")
        await browser.until(b"RFB 003.008\n")
        await asyncio.sleep(0.6)  # a user types a password
        browser.send(said(b"RFB 003.008\n"))
        await browser.until(b"\x01\x01")


async def test_the_desktops_deadline_restarts_after_the_browsers_part_of_the_handshake() -> None:
    async with desktops(Limits(app_head_seconds=1.0)) as r:
        browser = await r.browser()
        browser.send(ASK_TO_VIEW)
        desktop = await r.app.connection()
        assert status_of(await browser.head()) == 101
        desktop.send(b"RFB 003.008\n\x01\x01")
        await browser.until(b"RFB 003.008\n")
        await asyncio.sleep(0.7)  # a user types a password
        browser.send(said(b"RFB 003.008\n"))
        await browser.until(b"\x01\x01")
        browser.send(said(b"\x01"))
        await asyncio.sleep(0.6)  # less than the deadline, counted from the browser's part
        desktop.send(bytes(4))
        await browser.until(bytes(4))
        browser.send(said(b"\x01"))
        assert await desktop.exactly(14) == b"RFB 003.008\n\x01\x01"


async def test_a_desktop_that_stalls_within_the_handshake_is_disconnected() -> None:
    async with desktops(Limits(app_head_seconds=0.2)) as r:
        browser = await r.browser()
        browser.send(ASK_TO_VIEW)
        desktop = await r.app.connection()
        assert status_of(await browser.head()) == 101
        desktop.send(b"RFB 003.008\n\x01\x01")
        await browser.until(b"RFB 003.008\n")
        await asyncio.sleep(0.4)  # longer than the deadline, which is the desktop's alone
        browser.send(said(b"RFB 003.008\n"))
        await browser.until(b"\x01\x01")
        browser.send(said(b"\x01"))
        assert close_of(await browser.rest(10)) == (1011, b"the desktop does not respond")
        await desktop.gone()
