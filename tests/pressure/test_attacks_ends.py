"""Tests that many ends at once leave nothing registered, and that a drain ends as it should."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
import pytest_asyncio

from tests.contract.frames import HANDSHAKE
from tests.contract.messages import request
from tests.contract.upstream import App
from tests.pressure import apps
from tests.pressure.attack import nothing_stays
from tests.pressure.browser import Browser
from tests.pressure.conftest import WIRES
from tests.pressure.gateway_under_test import SMALL_WINDOW, PressureRig, running_ground
from tests.pressure.kinds import KINDS, Scene

DRAIN_SECONDS = 8.0
TUNNELS = 300


@pytest_asyncio.fixture(loop_scope="session", params=WIRES)
async def own_ground(tmp_path: Path, request: pytest.FixtureRequest) -> AsyncIterator[PressureRig]:
    """Provide a gateway of the test's own that would take long to drain."""
    settings = {"DRAIN_SECONDS": str(DRAIN_SECONDS)}
    async with running_ground(tmp_path, settings, tls=request.param == "TLS") as ground:
        yield ground


async def tunnels(ground: PressureRig, app: App, count: int) -> tuple[str, list[Browser]]:
    """Return the session of *count* tunnels to *app*, and their browsers."""
    session, own = await ground.entered(app)
    data = request("GET", "/", host=session.host, fields=[*HANDSHAKE, *own])
    browsers = []
    for _ in range(count):
        browsers.append(await ground.browser(window=SMALL_WINDOW))
        await browsers[-1].send(data)
        assert await browsers[-1].status() == 101
    return session.sid, browsers


async def drained(ground: PressureRig) -> float:
    """Return how long the process takes to end after SIGTERM."""
    began = time.monotonic()
    ground.process.signal(signal.SIGTERM)
    await ground.process.wait(2 * DRAIN_SECONDS)
    return time.monotonic() - began


async def test_a_revocation_during_disconnects_leaks_nothing(own_ground: PressureRig) -> None:
    """The browsers send FIN, reset, stay silent, or send data during the revocation."""
    async with own_ground.app(apps.switching("talks", b"", apps.FRAME[:2000])) as app:
        sid, browsers = await tunnels(own_ground, app, TUNNELS)
        leaving = asyncio.create_task(leave(browsers[::3]))
        await asyncio.sleep(0.01)
        await own_ground.rig.bus.revoke(sid=sid)
        await leaving
        assert await own_ground.freed(app.address, 5) is not None, "apps' connections stay"
        own_ground.close()
        await nothing_stays(own_ground)
    assert await drained(own_ground) < DRAIN_SECONDS / 2


async def leave(browsers: list[Browser]) -> None:
    """End *browsers*, each in another way."""
    for number, browser in enumerate(browsers):
        browser.fin() if number % 2 else browser.reset()
        if number % 10 == 0:
            await asyncio.sleep(0.002)


async def test_revocations_of_stalled_connections_leak_nothing(own_ground: PressureRig) -> None:
    """A stalled reader can receive no Close, and the gateway must not wait for it."""
    async with AsyncExitStack() as stack:
        held = [
            await stack.enter_async_context(KINDS[row].begin(Scene(own_ground, "talks")))
            for row in ("WebSocket", "terminal", "desktop", "download", "event stream")
            for _ in range(4)
        ]
        await asyncio.sleep(0.5)
        for one in held:
            await own_ground.rig.bus.revoke(sid=one.session.sid)
        for one in held:
            assert one.app is not None
            assert await own_ground.freed(one.app.address, 5) is not None
            assert await own_ground.freed(one.browser.address, 5) is not None
    assert await drained(own_ground) < DRAIN_SECONDS / 2


async def test_a_drain_ends_despite_stalled_readers(own_ground: PressureRig) -> None:
    async with AsyncExitStack() as stack:
        for row in ("WebSocket", "terminal", "desktop", "download", "public link", "refused"):
            for _ in range(3):
                made = KINDS[row].begin(Scene(own_ground, "talks"))
                await stack.enter_async_context(made)
        assert await drained(own_ground) < DRAIN_SECONDS + 3


async def test_target_changes_during_disconnects_leak_nothing(own_ground: PressureRig) -> None:
    async with own_ground.app(apps.switching("silent", b"", b"")) as app:
        session, own = await own_ground.entered(app)
        data = request("GET", "/", host=session.host, fields=[*HANDSHAKE, *own])
        for turn in range(5):
            browsers = [await own_ground.browser() for _ in range(30)]
            for browser in browsers:
                await browser.send(data)
            leaving = asyncio.create_task(leave(browsers))
            await own_ground.rig.announce_change(session, target={"id": f"pod-{turn}"})
            await leaving
        own_ground.close()
        await nothing_stays(own_ground)
        assert await own_ground.freed(app.address, 5) is not None
    assert await drained(own_ground) < DRAIN_SECONDS / 2
