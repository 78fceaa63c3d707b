"""Browsers of desktops and terminals are pinged, and reset when they have vanished."""

from __future__ import annotations

import asyncio

import pytest

from tests.gateway.relay.bridge.desktops import ASK, desktops, joined, narrow_socket
from tests.waiting import until

PING = b"\x89\x00"
PONG = b"\x8a\x80mask"


async def test_browsers_that_answer_pings_stay_connected(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("gateway.relay.bridge.downstream_frames.PING_SECONDS", 0.2)
    async with desktops() as r:
        browser, desktop = await joined(r)
        for _ in range(4):
            assert await browser.exactly(2) == PING
            browser.send(PONG)
        desktop.send(b"RFB")
        assert await browser.until(b"RFB")


async def test_a_silent_browser_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.relay.bridge.downstream_frames.PING_SECONDS", 0.2)
    async with desktops() as r:
        browser, desktop = await joined(r)
        assert await browser.gone() == PING
        assert await desktop.gone() == b""
        assert len(r.live) == 0


async def test_a_slow_reader_with_a_pending_pong_stays_while_it_makes_progress(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The Ping is behind megabytes that the browser has not read yet."""
    monkeypatch.setattr("gateway.relay.bridge.downstream_frames.PING_SECONDS", 1.0)
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
