"""Ended WebSockets: what both ends see, and that no further byte passes."""

from __future__ import annotations

import asyncio
import gc
import time

import pytest

from gateway.core.access.access_right import DRAINING
from gateway.core.limits.values import Limits
from gateway.relay.tunnel import Tunnel
from tests.gateway.relay.harness import (
    READ_SECONDS,
    Peer,
    Rig,
    rig,
    route,
)
from tests.gateway.relay.websocket_frames import close_of, frame


@pytest.mark.parametrize(
    ("what", "code", "reason"),
    [
        ({"sid": "a" * 26, "jti": "t1"}, 4401, b"grant revoked"),
        ({"sid": "a" * 26, "sub": "ada"}, 4401, b"grant revoked"),
        ({"sid": "a" * 26}, 4401, b"grant revoked"),
        ({"kid": "k1"}, 4401, b"grant revoked"),
        (None, 4410, b"session ended"),
    ],
)
async def test_a_tunnel_ends_with_its_grant_or_session(
    what: dict[str, str] | None, code: int, reason: bytes
) -> None:
    async with rig() as r:
        browser, app = await r.tunnel()
        app.send(frame(b"before"))
        assert await browser.exactly(8) == frame(b"before")
        if what is None:
            r.world.remove()
        else:
            r.world.revoke(**what)
        app.send(frame(b"after"))
        browser.send(b"after")
        assert close_of(await browser.rest()) == (code, reason)
        assert await app.gone() == b""


@pytest.mark.parametrize(
    ("change", "code", "reason"),
    [
        ({"target": {"id": "pod2"}}, 1012, b"new target"),
        ({"state": "starting"}, 1012, b"starting"),
        ({"expires_at": 1.0}, 4410, b"session expired"),
    ],
)
async def test_a_tunnel_ends_with_its_route(
    change: dict[str, object], code: int, reason: bytes
) -> None:
    async with rig() as r:
        browser, _ = await r.tunnel()
        r.world.upsert(route(r.app.port, rev=2, **change))
        assert close_of(await browser.rest()) == (code, reason)


@pytest.mark.parametrize("change", [{"state": "closing"}, {"message": "hello"}, {"rev": 9}])
async def test_unrelated_changes_do_not_end_a_tunnel(change: dict[str, object]) -> None:
    async with rig() as r:
        browser, app = await r.tunnel()
        r.world.upsert(route(r.app.port, **change))
        r.world.revoke(sid="b" * 26)
        r.world.revoke(sid="a" * 26, sub="eve")
        app.send(frame(b"on"))
        assert await browser.exactly(4) == frame(b"on")


@pytest.mark.parametrize("begun", [1, 3, 9, 5000])
async def test_an_app_may_only_finish_its_current_frame(begun: int) -> None:
    whole = frame(b"x" * 70000)
    async with rig() as r:
        browser, app = await r.tunnel()
        app.send(whole[:begun])
        await browser.exactly(begun)
        r.world.revoke(sid="a" * 26)
        browser.send(b"late")
        app.send(whole[begun:] + frame(b"evil"))
        got = await browser.rest()
        assert got[: len(whole) - begun] == whole[begun:]
        assert close_of(got[len(whole) - begun :]) == (4401, b"grant revoked")
        assert await app.gone() == b""


async def test_a_frame_that_is_not_finished_in_time_is_reset() -> None:
    async with rig() as r:
        browser, app = await r.tunnel()
        app.send(frame(b"x" * 100)[:50])
        await browser.exactly(50)
        began = asyncio.get_running_loop().time()
        r.world.revoke(sid="a" * 26)
        with pytest.raises(ConnectionResetError):
            await browser.rest()
        assert asyncio.get_running_loop().time() - began < 1
        assert await app.rest() == b""


async def test_a_frame_longer_than_a_mebibyte_is_not_waited_for() -> None:
    async with rig(limits=Limits(frame_seconds=30.0, frame_bytes=100000)) as r:
        browser, app = await r.tunnel()
        app.send(frame(b"x" * 10_000_000)[:50])
        await browser.exactly(50)
        r.world.revoke(sid="a" * 26)
        app.send(b"x" * 300000)
        with pytest.raises(ConnectionResetError):
            await browser.rest()


async def test_no_byte_reaches_a_stalled_browser_250_ms_after_the_end() -> None:
    async with rig() as r:
        browser, app = await r.tunnel()
        browser.stall()
        for _ in range(200):
            app.send(frame(b"x" * 60000))
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        r.world.revoke(sid="a" * 26)
        await asyncio.sleep(0.3)
        browser.go_on()
        with pytest.raises(ConnectionResetError):
            await browser.rest()


async def test_backpressure_does_not_delay_the_end_of_a_tunnel() -> None:
    async with rig() as r:
        browser, app = await r.tunnel()
        app.stall()
        for _ in range(200):
            browser.send(b"x" * 65536)
            await asyncio.sleep(0)
        r.world.revoke(sid="a" * 26)
        assert close_of(await browser.rest()) == (4401, b"grant revoked")


async def test_downstream_ends_before_upstream_and_no_byte_passes_in_between() -> None:
    async with rig(limits=Limits(app_abort_seconds=3600.0)) as r:
        tunnels = [await r.tunnel() for _ in range(3)]
        members = r.live.members()
        r.world.revoke(sid="a" * 26)
        for browser, app in tunnels:
            browser.send(frame(b"late", masked=True))
            app.send(frame(b"late"))
        for browser, _ in tunnels:
            assert close_of(await browser.rest()) == (4401, b"grant revoked")
            browser.close()
        await _left(r)
        assert not any(isinstance(m, Tunnel) and m.app.is_closing() for m in members)
        assert len(r.path.closer.deferred) == len(tunnels)
        await r.path.close()
        for _, app in tunnels:
            assert await app.gone() == b""


async def test_bytes_buffered_for_a_stalled_app_are_discarded_at_the_end() -> None:
    async with rig(limits=Limits(app_abort_seconds=3600.0)) as r:
        browser, app = await r.tunnel()
        await _stall(r, browser, app)
        r.world.revoke(sid="a" * 26)
        assert close_of(await browser.rest()) == (4401, b"grant revoked")
        assert await _resumed(app) < r.path.meters.websocket.up


async def test_no_byte_is_relayed_after_a_browser_left_within_the_last_frame() -> None:
    async with rig(limits=Limits(frame_seconds=3600.0)) as r:
        browser, app = await r.tunnel()
        app.send(frame(b"x" * 100)[:50])
        await browser.exactly(50)
        await _stall(r, browser, app)
        r.world.revoke(sid="a" * 26)
        browser.reset()
        await _left(r)
        assert await _resumed(app) < r.path.meters.websocket.up


async def _stall(r: Rig, browser: Peer, app: Peer) -> None:
    """Stop the app from reading, and send from the browser until the gateway holds bytes."""
    app.stall()
    (tunnel,) = r.live.members()
    assert isinstance(tunnel, Tunnel)
    while not tunnel.app.get_write_buffer_size():
        browser.send(b"x" * 65536)
        await asyncio.sleep(0)


async def _left(r: Rig) -> None:
    """Return once all browsers of ended tunnels are closed."""
    async with asyncio.timeout(READ_SECONDS):
        while r.live.closing:
            await asyncio.sleep(0.001)


async def _resumed(app: Peer) -> int:
    """Let the app read again; return how many bytes it gets in all."""
    app.go_on()
    return len(await app.gone())


async def test_a_drain_closes_tunnels_with_its_code() -> None:
    async with rig() as r:
        browser, _ = await r.tunnel()
        r.live.end_all(DRAINING)
        assert close_of(await browser.rest()) == (1001, b"gateway draining")


async def test_five_hundred_tunnels_end_within_the_promised_time() -> None:
    async with rig() as r:
        tunnels = [await r.tunnel() for _ in range(500)]
        # A collection of all that other tests have left would be measured, too.
        gc.disable()
        try:
            began = time.process_time()
            r.world.revoke(sid="a" * 26)
            closes = await asyncio.gather(*(browser.rest() for browser, _ in tunnels))
            took = time.process_time() - began
        finally:
            gc.enable()
        # The promise is a quarter second for ten times as many; the processor's time, since this
        # machine may be busy with other tests, and both ends are in this process.
        assert took < 1
        assert {close_of(data)[0] for data in closes} == {4401}
        assert len(r.live) == 0
