"""The browser's side of desktops and terminals: kept alive, and closed in a way that is heard."""

from __future__ import annotations

import asyncio

import pytest

from gateway.core.limits.values import Limits
from tests.gateway.relay.bridge.desktops import ASK, desktops, joined, narrow_socket, until
from tests.gateway.relay.harness import SID

PING = b"\x89\x00"
PONG = b"\x8a\x80mask"


async def test_browsers_are_pinged_and_may_stay_as_long_as_they_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.relay.bridge.keepalive.PING_SECONDS", 0.2)
    async with desktops() as r:
        browser, desktop = await joined(r)
        for _ in range(4):
            assert await browser.exactly(2) == PING
            browser.send(PONG)
        desktop.send(b"RFB")
        assert await browser.until(b"RFB")


async def test_a_browser_that_says_nothing_at_all_is_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.relay.bridge.keepalive.PING_SECONDS", 0.2)
    async with desktops() as r:
        browser, desktop = await joined(r)
        assert await browser.gone() == PING
        assert await desktop.gone() == b""
        assert len(r.live) == 0


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
            while r.live.leaving:
                await asyncio.sleep(0.01)


async def test_a_browser_that_does_not_close_is_closed_after_a_while() -> None:
    async with desktops(Limits(linger_seconds=0.5)) as r:
        await joined(r)
        r.world.revoke(sid=SID)
        assert len(r.live.leaving) == 1
        async with asyncio.timeout(5):
            while r.live.leaving:
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
            while r.live.leaving:
                await asyncio.sleep(0.01)
        browser.go_on()
        with pytest.raises(ConnectionResetError):
            await browser.rest()


async def test_a_slow_reader_that_owes_a_pong_may_stay_as_long_as_it_takes_something(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The Ping stands behind megabytes that it has not come to yet."""
    monkeypatch.setattr("gateway.relay.bridge.keepalive.PING_SECONDS", 1.0)
    async with desktops() as r:
        loop = asyncio.get_running_loop()
        with await narrow_socket(r) as browser:
            await loop.sock_sendall(browser, ASK)
            desktop = await r.app.connection()
            for _ in range(100):
                desktop.send(bytes(65536))
            for _ in range(15):
                # A piece now and then: the next ping is far behind it.
                assert await loop.sock_recv(browser, 65536)
                await asyncio.sleep(0.2)
                assert len(r.live) == 1
            await until(lambda: not len(r.live))
