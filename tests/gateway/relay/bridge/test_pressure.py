"""The cost of what one peer of a bridge sends, withholds or does not read is bounded."""

from __future__ import annotations

import asyncio
import time
from bisect import bisect_left

import pytest
from websockets.frames import Frame, Opcode
from websockets.utils import accept_key

from gateway.core.limits.values import Limits
from gateway.relay.bridge.terminal import TerminalBridge
from gateway.relay.bridge.websocket_bridge import BridgeState, WebSocketBridge
from gateway.relay.context import UpgradeRequest
from gateway.relay.turns import TURN_SECONDS
from shared.link import AttachTokens
from tests.gateway.relay.bridge.desktops import ASK as UPGRADE
from tests.gateway.relay.bridge.desktops import (
    SWITCH,
    desktops,
    joined,
    longest_turn,
    narrow_socket,
    said,
    viewing,
)
from tests.gateway.relay.harness import SID, Peer, Rig, rig, status_of, upgrade
from tests.waiting import until

LONG = bisect_left(TURN_SECONDS, 0.05)
"""Turns from here on are far too long: the budget is 5 ms, the machine may be slow."""
PAIR = b"\x82\x80mask"
"""An empty binary message of a browser."""


def bridge_of(r: Rig) -> WebSocketBridge:
    (member,) = r.live.members()
    assert isinstance(member, WebSocketBridge)
    return member


async def flood(peer: Peer, data: bytes, r: Rig) -> None:
    """Send *data*, and wait until all of it is processed."""
    before = bridge_of(r).traffic.up
    for at in range(0, len(data), 1 << 16):
        peer.send(data[at : at + (1 << 16)])
        await peer.writer.drain()
    await until(lambda: bridge_of(r).traffic.up >= before + len(data))
    await until(lambda: not bridge_of(r)._input.has_pending)


FLOODS = {
    "empty messages": PAIR,
    "messages of a byte": said(b"\x06"),
    "pings": said(b"", Opcode.PING),
    "pings and messages": said(b"", Opcode.PING) + PAIR,
    "empty fragments": b"\x02\x80mask" + b"\x00\x80mask" * 30 + b"\x80\x80mask",
}


@pytest.mark.parametrize("what", FLOODS)
async def test_small_frames_of_a_browser_do_not_exceed_the_turn_limit(what: str) -> None:
    async with desktops() as r:
        browser, desktop = await joined(r)
        piece = FLOODS[what]
        await flood(browser, piece * ((512 << 10) // len(piece)), r)
        assert longest_turn(r) < LONG
        browser.send(said(b"whole"))
        await desktop.until(b"whole")


@pytest.mark.parametrize("message", [b"\xff\x01\x00\x00", b"\x05\x01" + bytes(4), b"\x03" * 10])
async def test_small_messages_of_a_viewer_do_not_exceed_the_turn_limit(
    message: bytes,
) -> None:
    async with desktops() as r:
        browser, desktop = await viewing(r)
        for _ in range(2):
            payload = message * ((900 << 10) // len(message))
            await flood(browser, said(payload), r)
        assert longest_turn(r) < LONG
        browser.send(said(b"\x03\x01" + b"final..."))
        await desktop.until(b"final...")


async def test_frames_after_a_sent_close_do_not_exceed_the_turn_limit() -> None:
    async with desktops() as r:
        browser, _ = await joined(r)
        r.world.revoke(sid=SID)
        for _ in range(8):
            browser.send(said(b"p" * 100, Opcode.PING) * 500)
            await asyncio.sleep(0.01)
        data = await browser.gone()
        assert data[2:4] == (4401).to_bytes(2, "big")
        await until(lambda: not r.live.closing)
        assert longest_turn(r) < LONG


async def socket_desktop(r: Rig) -> tuple[Peer, Peer]:
    """Return a connected browser and a desktop that speaks WebSocket."""
    browser = await r.browser()
    browser.send(UPGRADE)
    desktop = await r.app.connection()
    head = await desktop.head()
    key = head.partition(b"Sec-WebSocket-Key: ")[2].partition(b"\r\n")[0].decode()
    desktop.send(SWITCH % accept_key(key).encode())
    assert status_of(await browser.head()) == 101
    return browser, desktop


@pytest.mark.parametrize("piece", [b"\x82\x00", b"\x89\x00", b"\x82\x01x"])
async def test_small_frames_of_a_desktop_do_not_exceed_the_turn_limit(piece: bytes) -> None:
    async with desktops(scheme="ws") as r:
        browser, desktop = await socket_desktop(r)
        reading = asyncio.ensure_future(browser.until(b"whole"))
        answered = asyncio.ensure_future(desktop.gone())
        desktop.send(piece * ((256 << 10) // len(piece)) + b"\x82\x05whole")
        await reading
        assert longest_turn(r) < LONG
        browser.reset()
        await answered


async def read_until(peer: Peer, end: bytes) -> bytes:
    """Read until *end*, however many bytes that is; return the last bytes."""
    last = b""
    while end not in last:
        piece = await asyncio.wait_for(peer.reader.read(1 << 16), 10)
        assert piece, "the connection has ended"
        last = last[-200:] + piece
    return last


async def test_pings_of_a_browser_that_reads_nothing_cost_no_memory() -> None:
    async with desktops() as r:
        browser = Peer(*await asyncio.open_connection(sock=await narrow_socket(r)))
        r.peers.append(browser)
        browser.send(UPGRADE)
        desktop = await r.app.connection()
        assert status_of(await browser.head()) == 101
        browser.stall()
        bridge = bridge_of(r)
        assert bridge.transport is not None
        for number in range(60):
            pings = range(number * 1000, number * 1000 + 1000)
            await flood(browser, b"".join(said(b"%0120d" % n, Opcode.PING) for n in pings), r)
            assert bridge.transport.get_write_buffer_size() < 512 << 10
        assert not bridge.writable, "it was asked to hold back, or this shows nothing"
        # What it does meanwhile still reaches the desktop.
        browser.send(said(b"a key"))
        assert await desktop.exactly(5) == b"a key"
        browser.go_on()
        # The last Ping has its Pong.
        await read_until(browser, b"\x8a\x78" + b"%0120d" % 59999)
        desktop.send(b"an update")
        await read_until(browser, b"an update")


async def test_pings_of_a_desktop_that_reads_nothing_cost_no_memory() -> None:
    async with desktops(scheme="ws") as r:
        browser, desktop = await socket_desktop(r)
        desktop.stall()
        bridge = bridge_of(r)
        assert bridge.upstream is not None
        for number in range(40):
            desktop.send((b"\x89\x78" + b"%0120d" % number) * 5000)
            await desktop.writer.drain()
            assert bridge.upstream.transport is not None
            assert bridge.upstream.transport.get_write_buffer_size() < 512 << 10
        desktop.send(b"\x82\x05whole")
        await browser.until(b"whole")


# Who leaves


async def fill_upstream(r: Rig, browser: Peer, desktop: Peer) -> None:
    """Let the desktop read nothing until the browser is not read either."""
    desktop.stall()
    bridge = bridge_of(r)
    for _ in range(4000):
        if bridge._upstream_full or not bridge.is_open:  # left already: this process had no turn
            return
        browser.send(said(bytes(16384)))
        await asyncio.sleep(0.001)
    raise AssertionError("the desktop took everything")


@pytest.mark.parametrize("how", ["fin", "reset"])
@pytest.mark.parametrize("when", ["idle", "unread"])
async def test_a_browser_that_leaves_without_a_close_is_released(how: str, when: str) -> None:
    async with desktops() as r:
        browser, desktop = await joined(r)
        if when == "unread":
            await fill_upstream(r, browser, desktop)
            # What it has sent is taken up, so that its FIN arrives.
            await until(lambda: not browser.writer.transport.get_write_buffer_size())
        if how == "fin":
            browser.writer.write_eof()
        else:
            browser.reset()
        await until(lambda: not len(r.live), 5)
        desktop.go_on()
        await desktop.gone()
        await until(
            lambda: not r.path.closer.hangups.callbacks and not len(r.path.closer.stalls.watched)
        )


@pytest.mark.parametrize("how", ["fin", "reset"])
async def test_a_browser_that_leaves_after_a_flood_is_released_before_it_is_parsed(
    how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.relay.bridge.buffers.WORK_SECONDS", 0.0)
    monkeypatch.setattr("gateway.relay.bridge.downstream_frames.FRAMES_AT_ONCE", 1)
    async with desktops() as r:
        browser, _ = await joined(r)
        # Less than what kernels hold, so that a FIN arrives behind it.
        browser.send(b"\x02\x81mask\x00" + b"\x00\x80mask" * 40_000)
        await until(lambda: bridge_of(r)._input.has_pending)
        bridge = bridge_of(r)
        if how == "fin":
            browser.writer.write_eof()
        else:
            browser.reset()
        await until(lambda: not len(r.live))
        await until(lambda: not bridge._input.has_pending)
        assert sum(r.path.turns.counts) < 30_000, "the flood was understood first"


async def test_a_browser_that_reads_nothing_is_reset_after_its_stall_deadline() -> None:
    async with desktops(Limits(write_stall_seconds=0.5)) as r:
        browser, desktop = await joined(r)
        browser.stall()
        writing = asyncio.ensure_future(pour(desktop))
        await until(lambda: not len(r.live))
        assert r.path.closer.stalls.found == 1
        await desktop.gone()
        writing.cancel()


async def pour(peer: Peer) -> None:
    """Send without end, at the speed of the other side."""
    while True:
        peer.send(bytes(65536))
        await peer.writer.drain()


async def test_a_desktop_that_reads_nothing_is_disconnected_after_its_stall_deadline() -> None:
    async with desktops(Limits(app_write_stall_seconds=0.5)) as r:
        browser, desktop = await joined(r)
        await fill_upstream(r, browser, desktop)
        data = await browser.until(b"connection to the job lost")
        assert data[2:4] == (1012).to_bytes(2, "big")
        await until(lambda: not len(r.live))
        desktop.go_on()
        await desktop.gone()


async def test_a_desktop_that_ends_without_reading_is_released_at_once() -> None:
    async with desktops() as r:
        browser, desktop = await joined(r)
        await fill_upstream(r, browser, desktop)
        desktop.writer.write_eof()
        data = await browser.until(b"connection to the job lost")
        assert data[2:4] == (1012).to_bytes(2, "big")


async def test_a_slow_reader_receives_all_output_sent_before_the_desktop_ended() -> None:
    async with desktops() as r:
        browser, desktop = await joined(r)
        browser.stall()
        for _ in range(100):
            desktop.send(bytes(65536))
        bridge = bridge_of(r)
        await until(lambda: not bridge.writable)
        browser.go_on()
        desktop.writer.write_eof()
        await read_until(browser, b"connection to the job lost")
        assert bridge.traffic.down == 100 * 65536


async def test_a_slow_reader_that_is_being_closed_gets_no_byte_after_its_right_has_ended() -> None:
    async with desktops() as r:
        browser, desktop = await joined(r)
        browser.stall()
        for _ in range(200):
            desktop.send(bytes(65536))
        bridge = bridge_of(r)
        await until(lambda: not bridge.writable)
        browser.send(said(b"no RFB", Opcode.TEXT))
        await until(lambda: bridge.state is BridgeState.CLOSING)
        assert bridge.buffered_bytes() > 0
        r.world.revoke(sid=SID, sub="ada")
        await asyncio.sleep(0.25)
        assert bridge.transport is None
        assert len(r.live) == len(r.live.closing) == 0


async def test_a_close_that_was_sent_is_not_reset_when_the_right_ends() -> None:
    async with desktops() as r:
        browser, _ = await joined(r)
        bridge = bridge_of(r)
        browser.send(said(b"no RFB", Opcode.TEXT))
        await until(lambda: bridge.state is BridgeState.CLOSING)
        r.world.revoke(sid=SID, sub="ada")
        await asyncio.sleep(0.05)
        assert bridge.transport is not None
        assert (await browser.exactly(4))[2:] == (1003).to_bytes(2, "big")


async def test_a_message_that_does_not_end_counts_for_its_user() -> None:
    async with desktops() as r:
        browser, desktop = await joined(r)
        browser.send(said(bytes(1 << 20))[: 1 << 19])
        await desktop.exactly(7 << 16)
        bridge = bridge_of(r)
        await until(lambda: bridge.buffered_bytes() > 60_000)
        assert bridge.client == "ada"
        assert await r.path.shed_buffers(1000) == 1
        assert (await browser.exactly(4))[2:] == (1013).to_bytes(2, "big")
        await desktop.gone()


async def test_a_text_to_a_terminal_that_does_not_end_counts_for_its_user() -> None:
    def bridge(request: UpgradeRequest) -> TerminalBridge:
        tokens = AttachTokens(bytes(32))
        return TerminalBridge(request, tokens=tokens, wall=time.time, nonce=lambda: "n")

    changes = {"kind": "terminal", "target": {"scheme": "ws", "base_path": "/terminals/shell-1"}}
    async with rig(bridges={"terminal": bridge}, route_changes=changes) as r:
        browser = await r.browser()
        browser.send(UPGRADE.replace(b"Protocol: binary", b"Protocol: fumarole.terminal.v1"))
        hub = await r.app.connection()
        head = await hub.head()
        key = head.partition(b"Sec-WebSocket-Key: ")[2].partition(b"\r\n")[0].decode()
        switch = SWITCH.replace(b"Protocol: binary", b"Protocol: fumarole.terminal.v1")
        hub.send(switch % accept_key(key).encode())
        assert status_of(await browser.head()) == 101
        browser.send(Frame(Opcode.TEXT, b"x" * 60_000, fin=False).serialize(mask=True))
        await until(lambda: bridge_of(r).buffered_bytes() >= 60_000)


async def test_keys_sent_before_disconnecting_reach_the_desktop() -> None:
    async with desktops() as r:
        browser, desktop = await joined(r)
        browser.send(said(b"the last key") + said(b"\x03\xe8", Opcode.CLOSE))
        assert await desktop.exactly(12) == b"the last key"
        assert await desktop.gone() == b""


async def test_reading_pauses_after_one_turn_until_the_desktop_is_dialled(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Yielding a turn must not undo the pause: each turn would add a read to the memory."""
    monkeypatch.setattr("gateway.relay.bridge.websocket_bridge.ANSWER_SECONDS", 0.01)
    async with desktops() as r:
        never = asyncio.Event()
        monkeypatch.setattr(r.path.dialler, "dial", lambda *_: never.wait())
        browser = await r.browser()
        browser.send(upgrade("/.fumarole/connect?answer=soon", "Sec-WebSocket-Protocol: binary"))
        assert status_of(await browser.head()) == 101
        transport = bridge_of(r).transport
        assert transport is not None
        browser.send(bytes(r.path.limits.early_bytes + 1))
        await until(lambda: not transport.is_reading())
        bridge_of(r).yield_turn()
        bridge_of(r).resume_turn()
        assert not transport.is_reading()
