"""The end of desktops and terminals: the browser receives the close code."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core.limits.values import Limits
from tests.gateway.relay.bridge.desktops import desktops, joined
from tests.gateway.relay.harness import SID


async def test_the_code_of_an_end_is_read_although_the_browser_never_stops_sending() -> None:
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


async def test_what_a_stalled_browser_has_not_read_at_the_end_it_never_gets() -> None:
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
