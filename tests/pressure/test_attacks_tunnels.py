"""Tests attacks by WebSockets, terminals and desktops: empty frames, pings, endless messages."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager, suppress

import pytest

from tests.contract import frames
from tests.contract.frames import BINARY, CLOSE, CONTINUATION, MASK, PING, PONG, TEXT, encode
from tests.contract.messages import request
from tests.contract.streams import Stream
from tests.contract.upstream import PATIENCE_SECONDS, App, upgrade_response
from tests.pressure import apps
from tests.pressure.attack import HELD_BYTES, SLACK_BYTES, attacked
from tests.pressure.attackers import read_on
from tests.pressure.browser import Browser, GatewayClosed
from tests.pressure.gateway_under_test import PressureRig
from tests.pressure.kinds import CONNECT, DESKTOP, KINDS, OpenConnection, Scene, upgraded
from tests.pressure.test_attacks_requests import FLOOD_BYTES, FLOOD_SECONDS

MESSAGE_BYTES = 1 << 20  # docs/limits.md: one message from a browser, where frames are ours
UPSTREAM_BYTES = 16 << 20  # the same from a desktop that speaks WebSocket
HANDLED_BYTES = 12 << 20
EMPTY = encode(BINARY, mask=MASK)
RESIZE = json.dumps({"type": "resize", "cols": 80, "rows": 24}).encode()
SET_NO_ENCODINGS = b"\x02\x00\x00\x00"
UPDATE_REQUEST = b"\x03\x00" + bytes(8)


def frame(payload: bytes, opcode: int = BINARY, *, fin: bool = True) -> bytes:
    """Return a browser's frame."""
    return encode(opcode, payload, mask=MASK, fin=fin)


FROM_BROWSERS = {
    "empty messages": EMPTY,
    "empty fragments": encode(CONTINUATION, mask=MASK, fin=False),
    "pings": frame(b"p" * 125, PING),
    "empty pings": encode(PING, mask=MASK),
    "pongs that nobody asked for": frame(b"p" * 125, PONG),
    "messages of a byte": frame(b"x"),
}
BEGUN = {"empty fragments": frame(b"x", fin=False)}


@asynccontextmanager
async def attacking(
    row: str, scene: Scene, *, most: int = 2 * HELD_BYTES + SLACK_BYTES
) -> AsyncIterator[OpenConnection]:
    """Provide a connection for an attack that no other session may notice."""
    async with KINDS[row].begin(scene) as held, attacked(scene.ground, most=most):
        yield held


async def flood(held: OpenConnection, piece: bytes, *, reading: bool, first: bytes = b"") -> int:
    """Send *piece* again and again; return how many bytes the gateway took."""
    reads = asyncio.create_task(read_on(held.browser)) if reading else None
    with suppress(GatewayClosed):
        await held.browser.send(first)
    many = piece * max(1, 65536 // len(piece))
    taken = await held.browser.flood(many, most=FLOOD_BYTES, seconds=FLOOD_SECONDS)
    if reads is not None:
        reads.cancel()
        await asyncio.gather(reads, return_exceptions=True)
    return taken


@pytest.mark.parametrize("reading", [True, False], ids=["read", "unread"])
@pytest.mark.parametrize("what", FROM_BROWSERS)
@pytest.mark.parametrize("row", ["WebSocket", "terminal", "desktop"])
async def test_empty_frames_do_not_delay_others(
    plain: PressureRig, row: str, what: str, reading: bool
) -> None:
    async with attacking(row, Scene(plain, "silent")) as held:
        await flood(held, FROM_BROWSERS[what], reading=reading, first=BEGUN.get(what, b""))


async def test_empty_frames_over_tls_do_not_delay_others(secure: PressureRig) -> None:
    for row in ("WebSocket", "terminal", "desktop"):
        async with attacking(row, Scene(secure, "silent")) as held:
            await flood(held, EMPTY, reading=True)


@pytest.mark.parametrize("row", ["terminal", "desktop"])
@pytest.mark.parametrize("mode", ["control", "view"])
async def test_pings_with_unread_pongs_use_bounded_memory(
    ground: PressureRig, row: str, mode: str
) -> None:
    """Runs longer than the rest: pongs must neither pile up nor arrive all at once later."""
    async with attacking(row, Scene(ground, "silent", claims={"mode": mode})) as held:
        pings = frame(b"p" * 125, PING) * 500
        await held.browser.flood(pings, most=64 << 20, seconds=3 * FLOOD_SECONDS)


FROM_APPS = {
    "empty messages": encode(BINARY),
    "empty fragments": encode(CONTINUATION, fin=False),
    "pings": encode(PING, b"p" * 125),
    "pongs": encode(PONG),
    "messages of a byte": encode(BINARY, b"x"),
}
FIRST = {"empty fragments": encode(BINARY, b"x", fin=False)}


@pytest.mark.parametrize("reading", [True, False], ids=["read", "unread"])
@pytest.mark.parametrize("what", FROM_APPS)
@pytest.mark.parametrize("row", ["WebSocket", "terminal"])
async def test_empty_frames_of_apps_do_not_delay_others(
    plain: PressureRig, row: str, what: str, reading: bool
) -> None:
    said = FROM_APPS[what] * (65536 // len(FROM_APPS[what]))
    scene = Scene(plain, "talks", first=FIRST.get(what, b""), piece=said)
    async with attacking(row, scene) as held:
        if reading:
            with suppress(TimeoutError):
                async with asyncio.timeout(FLOOD_SECONDS):
                    await read_on(held.browser)
        else:
            await asyncio.sleep(FLOOD_SECONDS)


async def test_a_desktop_sending_single_bytes_does_not_delay_others(ground: PressureRig) -> None:
    async with attacking("desktop", Scene(ground, "talks", piece=b"x" * 64)) as held:
        with suppress(TimeoutError):
            async with asyncio.timeout(FLOOD_SECONDS):
                await read_on(held.browser)


# RFB


RFB = {
    "messages of four bytes": SET_NO_ENCODINGS,
    "update requests": UPDATE_REQUEST,
    "keys": b"\x04\x01\x00\x00\x00\x00\x00\x41",
    "empty clipboards": b"\x06\x00\x00\x00\x00\x00\x00\x00",
}


@pytest.mark.parametrize("mode", ["control", "view"])
@pytest.mark.parametrize("what", RFB)
async def test_small_messages_of_a_desktop_do_not_delay_others(
    plain: PressureRig, what: str, mode: str
) -> None:
    async with attacking("desktop", Scene(plain, "silent", claims={"mode": mode})) as held:
        await flood(held, frame(RFB[what] * (60_000 // len(RFB[what]))), reading=True)


@pytest.mark.parametrize("size", [1, 3, 4, 7])
async def test_desktop_messages_in_frames_of_any_size_do_not_delay_others(
    plain: PressureRig, size: int
) -> None:
    data = (SET_NO_ENCODINGS + UPDATE_REQUEST) * 500
    cut = b"".join(frame(data[at : at + size]) for at in range(0, len(data), size))
    async with attacking("desktop", Scene(plain, "silent", claims={"mode": "view"})) as held:
        await flood(held, cut, reading=True)


ENDLESS = {
    "a clipboard": b"\x06\x00\x00\x00\x7f\xff\xff\xff",
    "an extended clipboard": b"\x06\x00\x00\x00\x80\x00\x00\x01",
    "encodings": b"\x02\x00\xff\xff",
}


@pytest.mark.parametrize("mode", ["control", "view"])
@pytest.mark.parametrize("what", ENDLESS)
async def test_an_endless_message_is_not_buffered(plain: PressureRig, what: str, mode: str) -> None:
    async with attacking("desktop", Scene(plain, "silent", claims={"mode": mode})) as held:
        with suppress(GatewayClosed):
            await held.browser.send(frame(ENDLESS[what]))
        await held.browser.flood(frame(bytes(65000)), most=64 << 20, seconds=FLOOD_SECONDS)


async def test_a_desktop_handshake_byte_by_byte_succeeds(plain: PressureRig) -> None:
    """Bytes ahead of the server's turn wait, and are bounded."""
    async with plain.app(apps.web("silent")) as app:
        target = {"scheme": "tcp"}
        held = await upgraded(
            Scene(plain, "silent"), app, CONNECT, DESKTOP, kind="vnc", target=target
        )
        async with attacked(plain, most=2 * HELD_BYTES + SLACK_BYTES):
            await held.browser.flood(
                frame(b"RFB 003.008\n") * 1000, most=64 << 20, seconds=FLOOD_SECONDS
            )


# Messages and control frames


@pytest.mark.parametrize("row", ["terminal", "desktop"])
async def test_an_unfinished_message_uses_bounded_memory(plain: PressureRig, row: str) -> None:
    count = 8
    more = frame(b"x" * 65000, CONTINUATION, fin=False)
    begun = frame(b"x" * 65000, fin=False) + more * 14
    most = count * (MESSAGE_BYTES + HELD_BYTES) + SLACK_BYTES
    async with AsyncExitStack() as stack, attacked(plain, most=most):
        for _ in range(count):
            held = await stack.enter_async_context(KINDS[row].begin(Scene(plain, "silent")))
            await held.browser.send(begun)


async def test_an_unfinished_frame_for_a_desktop_uses_bounded_memory(plain: PressureRig) -> None:
    count = 24
    begun = frame(bytes(MESSAGE_BYTES))[:-1]
    async with AsyncExitStack() as stack, attacked(plain, most=HANDLED_BYTES):
        for _ in range(count):
            held = await stack.enter_async_context(KINDS["desktop"].begin(Scene(plain, "silent")))
            await held.browser.send(begun)


async def test_an_unfinished_frame_of_a_desktop_uses_bounded_memory(plain: PressureRig) -> None:
    """It may hold a whole screen of 16 MiB, and reaches the browser as it comes."""
    begun = encode(BINARY, bytes(UPSTREAM_BYTES))[:-1]

    async def stalls(app: App, stream: Stream) -> None:
        key = (await app.request(stream)).get("Sec-WebSocket-Key")
        assert key is not None
        stream.send(upgrade_response(key, "Sec-WebSocket-Protocol: binary") + begun)
        await stream.until_ended(PATIENCE_SECONDS)

    async with plain.app(stalls) as app, attacked(plain, most=HANDLED_BYTES):
        session, own = await plain.rig.entered(app, kind="vnc", target={"scheme": "ws"})
        for _ in range(4):
            browser = await plain.browser()
            await browser.send(
                request(
                    "GET", CONNECT, host=session.host, fields=[*frames.HANDSHAKE, *own, DESKTOP]
                )
            )
            assert await browser.status() == 101
            for _ in range(UPSTREAM_BYTES // (1 << 20) - 1):
                await browser.read_exactly(1 << 20)


@pytest.mark.parametrize("row", ["terminal", "desktop"])
async def test_a_message_over_its_limit_is_refused(plain: PressureRig, row: str) -> None:
    async with KINDS[row].begin(Scene(plain, "silent")) as held:
        head = bytes([0x82, 0xFF]) + (1 << 40).to_bytes(8, "big") + MASK
        await held.browser.send(head)
        assert await close_code(held.browser) == 1009


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(b"", PING, fin=False), 1002),
        (frame(b"p" * 126, PING), 1002),
        (frame(b"x", CONTINUATION), 1002),
        (frame(b"x", 3), 1002),
        (encode(BINARY, b"not masked"), 1002),
    ],
    ids=["fragmented ping", "long ping", "no begin", "opcode 3", "no mask"],
)
async def test_malformed_frames_end_a_terminal(plain: PressureRig, data: bytes, code: int) -> None:
    async with KINDS["terminal"].begin(Scene(plain, "silent")) as held:
        await held.browser.send(data)
        assert await close_code(held.browser) == code
        assert held.app is not None
        assert await plain.freed(held.app.address, 5) is not None


async def close_code(browser: Browser) -> int | None:
    """Return the gateway's close code."""
    while (found := await frames.read_frame(browser, 5)).opcode != CLOSE:
        pass
    return found.code


@pytest.mark.parametrize("row", ["WebSocket", "terminal", "desktop"])
async def test_frames_after_a_close_are_discarded_cheaply(plain: PressureRig, row: str) -> None:
    async with KINDS[row].begin(Scene(plain, "silent")) as held, attacked(plain):
        await flood(held, EMPTY, reading=False, first=frames.close(1000, mask=MASK))


async def test_consecutive_resizes_do_not_delay_others(plain: PressureRig) -> None:
    async with KINDS["terminal"].begin(Scene(plain, "silent")) as held, attacked(plain):
        await flood(held, frame(RESIZE, TEXT), reading=True)


async def test_endless_text_for_a_terminal_is_refused(plain: PressureRig) -> None:
    async with attacking(
        "terminal", Scene(plain, "silent"), most=MESSAGE_BYTES + HELD_BYTES + SLACK_BYTES
    ) as held:
        await flood(held, frame(b"{" * 60_000, TEXT), reading=True)


@pytest.mark.parametrize("row", ["WebSocket", "terminal", "desktop"])
async def test_frames_byte_by_byte_arrive_whole(ground: PressureRig, row: str) -> None:
    async with KINDS[row].begin(Scene(ground, "silent")) as held:
        assert held.app is not None
        there = held.app.connections[0]
        before = len(there.received)
        payload = UPDATE_REQUEST if row == "desktop" else b"hello"
        await held.browser.dribble(frame(payload), 0.005)
        await there.until(lambda: len(there.received) > before + len(payload) - 1, "the frame")
        if row == "desktop":
            assert bytes(there.received[before:]) == payload
        else:
            assert masked_payload(bytes(there.received[before:])) == payload


def masked_payload(data: bytes) -> bytes:
    """Return the payload of a short masked frame."""
    mask = data[2:6]
    return bytes(byte ^ mask[at % 4] for at, byte in enumerate(data[6 : 6 + (data[1] & 0x7F)]))
