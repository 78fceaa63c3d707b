"""WebSockets: what makes one, what crosses, how one is ended."""

from __future__ import annotations

import asyncio
import random
import time

import pytest
from websockets.frames import Frame, Opcode

from gateway.core.passage import DRAINING
from gateway.relay.limits import Limits
from gateway.relay.tunnel import Tunnel
from tests.gateway.relay.harness import (
    ACCEPT,
    HOST,
    ORIGIN,
    READ_SECONDS,
    SWITCH,
    UPGRADE,
    Peer,
    Rig,
    answer,
    cookie,
    request,
    rig,
    route,
    status_of,
    upgrade,
)


def frame(payload: bytes, *, fin: bool = True, masked: bool = False) -> bytes:
    return Frame(Opcode.BINARY, payload, fin=fin).serialize(mask=masked)


def close_of(data: bytes) -> tuple[int, bytes]:
    """Return code and reason of the one Close that *data* is."""
    assert data[:1] == b"\x88"
    assert len(data) == 2 + data[1]
    return int.from_bytes(data[2:4], "big"), data[4:]


async def test_an_upgrade_crosses_in_canonical_form() -> None:
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
                f"X-Forwarded-For: 127.0.0.1\r\nX-Forwarded-Host: {HOST}\r\n"
                "X-Forwarded-Proto: http\r\nX-Forwarded-User: ada\r\n"
                "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n"
                "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
                "Sec-WebSocket-Extensions: permessage-deflate; client_max_window_bits\r\n"
                "Sec-WebSocket-Protocol: a, b\r\n\r\n"
            ).encode()
        )
        app.send(
            f"HTTP/1.1 101 Yes\r\nupgrade: WebSocket\r\nconnection: upgrade\r\n"
            f"Sec-WebSocket-Accept: {ACCEPT}\r\nSec-WebSocket-Protocol: b\r\n"
            "Sec-WebSocket-Extensions: permessage-deflate\r\nSet-Cookie: a=b\r\n\r\n".encode()
        )
        assert await browser.head() == (
            b"HTTP/1.1 101 Switching Protocols\r\nSet-Cookie: a=b\r\n"
            b"Content-Security-Policy: frame-ancestors 'self'\r\nCache-Control: private\r\n"
            b"Connection: Upgrade\r\nUpgrade: websocket\r\n"
            b"Sec-WebSocket-Accept: " + ACCEPT.encode() + b"\r\n"
            b"Sec-WebSocket-Extensions: permessage-deflate\r\n"
            b"Sec-WebSocket-Protocol: b\r\n\r\n"
        )


async def test_no_101_comes_before_the_apps_own() -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(upgrade())
        assert await browser.silent()
        app.send(SWITCH)
        assert status_of(await browser.head()) == 101


async def test_an_app_that_refuses_the_upgrade_has_its_answer_relayed() -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(upgrade())
        app.send(answer(b"no", status="403 Forbidden"))
        head, body = await browser.answer()
        assert (status_of(head), body) == (403, b"no")
        browser.send(request("/next"))
        assert (await app.head()).startswith(b"GET /next")


async def test_any_other_upgrade_is_dropped_from_the_head() -> None:
    async with rig() as r:
        fields = ("Connection: Upgrade, HTTP2-Settings", "Upgrade: h2c", "HTTP2-Settings: AAMA")
        _, _, head = await r.joined(request("/", *fields))
        assert b"pgrade" not in head
        assert b"HTTP2" not in head


async def test_what_follows_a_head_at_once_crosses() -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(upgrade() + b"early")
        app.send(SWITCH + frame(b"first"))
        assert status_of(await browser.head()) == 101
        assert await browser.exactly(7) == frame(b"first")
        assert await app.exactly(5) == b"early"


async def test_bytes_cross_unchanged_both_ways() -> None:
    dice = random.Random(7)
    down = b"".join(frame(dice.randbytes(dice.choice([0, 5, 200, 70000]))) for _ in range(60))
    up = b"".join(frame(dice.randbytes(3000), masked=True) for _ in range(60))

    async def send(peer: Peer, data: bytes) -> None:
        for at in range(0, len(data), 9973):
            peer.send(data[at : at + 9973])
            await peer.writer.drain()

    async with rig() as r:
        browser, app = await r.tunnel()
        _, _, got_down, got_up = await asyncio.gather(
            send(app, down), send(browser, up), browser.exactly(len(down)), app.exactly(len(up))
        )
        assert got_down == down
        assert got_up == up


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


async def test_a_half_closed_tunnel_still_carries_the_other_direction() -> None:
    async with rig() as r:
        browser, app = await r.tunnel()
        browser.writer.write_eof()
        assert await app.rest() == b""
        app.send(frame(b"still"))
        assert await browser.exactly(7) == frame(b"still")
        app.close()
        assert await browser.rest() == b""


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
async def test_what_does_not_matter_to_a_tunnel_leaves_it_alone(change: dict[str, object]) -> None:
    async with rig() as r:
        browser, app = await r.tunnel()
        r.world.upsert(route(r.app.port, **change))
        r.world.revoke(sid="b" * 26)
        r.world.revoke(sid="a" * 26, sub="eve")
        app.send(frame(b"on"))
        assert await browser.exactly(4) == frame(b"on")


async def test_a_close_stands_between_two_fragments() -> None:
    async with rig() as r:
        browser, app = await r.tunnel()
        app.send(frame(b"one", fin=False))
        await browser.exactly(5)
        r.world.revoke(sid="a" * 26)
        assert close_of(await browser.rest()) == (4401, b"grant revoked")


@pytest.mark.parametrize("begun", [1, 3, 9, 5000])
async def test_an_app_may_finish_the_frame_and_nothing_more(begun: int) -> None:
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


async def test_nothing_passes_to_a_stalled_browser_a_quarter_second_after_the_end() -> None:
    async with rig() as r:
        browser, app = await r.tunnel()
        browser.writer.transport.pause_reading()  # type: ignore[attr-defined]  # it is a transport
        for _ in range(200):
            app.send(frame(b"x" * 60000))
            await asyncio.sleep(0)
        await asyncio.sleep(0.05)
        r.world.revoke(sid="a" * 26)
        await asyncio.sleep(0.3)
        browser.writer.transport.resume_reading()  # type: ignore[attr-defined]  # it is a transport
        with pytest.raises(ConnectionResetError):
            await browser.rest()


async def test_what_the_browser_sends_after_the_end_does_not_lose_the_code() -> None:
    async with rig() as r:
        browser, _ = await r.tunnel()
        r.world.revoke(sid="a" * 26)
        for _ in range(50):
            browser.send(b"x" * 65536)
            await asyncio.sleep(0)
        assert close_of(await browser.rest()) == (4401, b"grant revoked")
        browser.send(b"x" * 65536)


async def test_a_browser_that_does_not_close_is_closed_after_a_while() -> None:
    async with rig(limits=Limits(linger_seconds=0.4)) as r:
        browser, _ = await r.tunnel()
        r.world.revoke(sid="a" * 26)
        assert close_of(await browser.rest())
        await asyncio.sleep(0.6)
        transport = browser.writer.transport
        for _ in range(3):
            if not transport.is_closing():
                browser.send(b"x")
            await asyncio.sleep(0.05)
        assert transport.is_closing()


async def test_a_paused_app_is_no_way_to_stay() -> None:
    async with rig() as r:
        browser, app = await r.tunnel()
        app.writer.transport.pause_reading()  # type: ignore[attr-defined]  # it is a transport
        for _ in range(200):
            browser.send(b"x" * 65536)
            await asyncio.sleep(0)
        r.world.revoke(sid="a" * 26)
        assert close_of(await browser.rest()) == (4401, b"grant revoked")


async def test_browsers_are_out_before_apps_are_told_and_nothing_passes_in_between() -> None:
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
        assert len(r.path.deferred) == len(tunnels)
        await r.path.close()
        for _, app in tunnels:
            assert await app.gone() == b""


async def test_what_waits_for_a_stalled_app_is_not_sent_after_the_end() -> None:
    async with rig(limits=Limits(app_abort_seconds=3600.0)) as r:
        browser, app = await r.tunnel()
        await _stall(r, browser, app)
        r.world.revoke(sid="a" * 26)
        assert close_of(await browser.rest()) == (4401, b"grant revoked")
        assert await _resumed(app) < r.path.meters.websocket.up


async def test_a_browser_that_leaves_within_the_last_frame_sends_nothing_more() -> None:
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
    """Have the app stop reading, and the browser send until the gateway holds some of it."""
    app.writer.transport.pause_reading()  # type: ignore[attr-defined]  # it is a transport
    (tunnel,) = r.live.members()
    assert isinstance(tunnel, Tunnel)
    while not tunnel.app.get_write_buffer_size():
        browser.send(b"x" * 65536)
        await asyncio.sleep(0)


async def _left(r: Rig) -> None:
    """Return once all browsers whose tunnels were ended are gone."""
    async with asyncio.timeout(READ_SECONDS):
        while r.live.leaving:
            await asyncio.sleep(0.001)


async def _resumed(app: Peer) -> int:
    """Have the app read on; return how much it gets in all."""
    app.writer.transport.resume_reading()  # type: ignore[attr-defined]  # it is a transport
    return len(await app.gone())


async def test_draining_says_so() -> None:
    async with rig() as r:
        browser, _ = await r.tunnel()
        r.live.end_all(DRAINING)
        assert close_of(await browser.rest()) == (1001, b"gateway draining")


async def test_browsers_are_pinged_between_two_frames_where_that_is_asked_for() -> None:
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


async def test_nobody_is_pinged_unasked_and_nobody_stays_in_the_wheel() -> None:
    async with rig() as r:
        browser, _ = await r.tunnel()
        assert await browser.silent(0.3)
        assert not r.path.parts.limits.web_ping_seconds


async def test_a_tunnel_ends_when_its_grant_does() -> None:
    async with rig() as r:
        ends_at = time.time() + 0.4
        own = f"Cookie: {cookie(ends_at=ends_at)}"
        browser, _ = await r.tunnel(upgrade(credential=own))
        assert close_of(await browser.rest()) == (4401, b"grant ended")
        assert 0 <= time.time() - ends_at < 2


async def test_five_hundred_tunnels_end_within_the_promised_time() -> None:
    async with rig() as r:
        tunnels = [await r.tunnel() for _ in range(500)]
        began = time.process_time()
        r.world.revoke(sid="a" * 26)
        closes = await asyncio.gather(*(browser.rest() for browser, _ in tunnels))
        # The promise is a quarter second for ten times as many; the processor's time, since this
        # machine may be busy with other tests, and both ends are in this process.
        assert time.process_time() - began < 1
        assert {close_of(data)[0] for data in closes} == {4401}
        assert len(r.live) == 0


def test_the_upgrade_of_these_tests_is_the_rfcs_example() -> None:
    assert "dGhlIHNhbXBsZSBub25jZQ==" in UPGRADE
