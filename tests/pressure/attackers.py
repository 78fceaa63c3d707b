"""Attackers that run until cancelled, for the soak and for the cost to other sessions.

Each attacker keeps a few connections, does the worst it can with them, and connects again when the
gateway ends them. Rounds are short, so that the state of one attacker at a time stays bounded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress

from tests.contract.frames import BINARY, CONTINUATION, MASK, PING, encode
from tests.contract.messages import request
from tests.contract.streams import StreamEnded
from tests.contract.upstream import friendly
from tests.pressure import apps
from tests.pressure.apps import Mode
from tests.pressure.browser import Browser, GatewayClosed
from tests.pressure.gateway_under_test import SMALL_WINDOW, PressureRig
from tests.pressure.kinds import KINDS, OpenConnection, Scene

ROUND_SECONDS = 2.0
STALLED = 4
Attack = Callable[[PressureRig], Awaitable[None]]


async def read_on(browser: Browser) -> None:
    """Read until the gateway ends the connection."""
    with suppress(GatewayClosed):
        while True:
            await browser.more()
            browser.forget()


async def send_on(browser: Browser, data: bytes, *, reading: bool) -> None:
    """Send *data* for a round, and optionally read the responses."""
    reads = asyncio.create_task(read_on(browser) if reading else asyncio.sleep(0))
    try:
        await browser.flood(data, most=1 << 40, seconds=ROUND_SECONDS)
    finally:
        reads.cancel()
        await asyncio.gather(reads, return_exceptions=True)


def many(piece: bytes) -> bytes:
    """Return 64 KiB of *piece*."""
    return piece * max(1, 65536 // len(piece))


# Requests


def refusals(*, reading: bool) -> Attack:
    """Return an attacker that pipelines requests without a credential."""

    async def attack(ground: PressureRig) -> None:
        session = await ground.rig.session()
        browser = await ground.browser(window=None if reading else SMALL_WINDOW)
        await send_on(browser, many(request("GET", "/", host=session.host)), reading=reading)
        browser.reset()

    return attack


async def pipelined(ground: PressureRig) -> None:
    """Pipeline authorised requests, and read the responses."""
    async with ground.app(friendly) as app:
        session, own = await ground.entered(app)
        browser = await ground.browser()
        data = many(request("GET", "/", host=session.host, fields=own))
        await send_on(browser, data, reading=True)
        browser.reset()


async def small_chunks_up(ground: PressureRig) -> None:
    """Upload in chunks of one byte."""
    async with KINDS["chunked upload"].begin(Scene(ground, "silent")) as held:
        await send_on(held.browser, many(b"1\r\nx\r\n"), reading=True)
        held.browser.reset()


async def small_chunks_down(ground: PressureRig) -> None:
    """Download in chunks of one byte."""
    script = apps.web("talks", apps.STREAM_HEAD, many(b"1\r\nx\r\n"))
    async with ground.app(script) as app:
        session, own = await ground.entered(app)
        browser = await ground.browser()
        await browser.send(request("GET", "/", host=session.host, fields=own))
        await round_of(read_on(browser))
        browser.reset()


async def round_of(work: Awaitable[None]) -> None:
    """Run *work* for a round."""
    with suppress(TimeoutError):
        async with asyncio.timeout(ROUND_SECONDS):
            await work


# Frames


def frames_up(row: str, piece: bytes, *, reading: bool = True, mode: str = "control") -> Attack:
    """Return an attacker that sends *piece* again and again."""

    async def attack(ground: PressureRig) -> None:
        scene = Scene(ground, "silent", claims={"mode": mode})
        async with KINDS[row].begin(scene) as held:
            await send_on(held.browser, many(piece), reading=reading)
            held.browser.reset()

    return attack


def frames_down(row: str, piece: bytes) -> Attack:
    """Return an attacker whose app sends *piece* again and again."""

    async def attack(ground: PressureRig) -> None:
        async with KINDS[row].begin(Scene(ground, "talks", piece=many(piece))) as held:
            await round_of(read_on(held.browser))
            held.browser.reset()

    return attack


# Connections


async def come_and_go(ground: PressureRig) -> None:
    """Connect and reset."""

    async def work() -> None:
        while True:
            browser = await ground.browser(handshake=False)
            browser.reset()
            ground.browsers.remove(browser)

    await round_of(work())


def leaving(row: str, mode: Mode, leave: Callable[[Browser], None]) -> Attack:
    """Return an attacker that starts *row*, lets it stall or wait, and leaves."""

    async def one(ground: PressureRig) -> None:
        async with KINDS[row].begin(Scene(ground, mode)) as held:
            await asyncio.sleep(ROUND_SECONDS / 2)
            leave(held.browser)
            await gone(ground, held)

    async def attack(ground: PressureRig) -> None:
        await asyncio.gather(*(one(ground) for _ in range(STALLED)))

    return attack


async def gone(ground: PressureRig, held: OpenConnection) -> None:
    """Wait until the gateway has closed the app's connection, as promised."""
    assert held.app is not None
    await ground.freed(held.app.address, ROUND_SECONDS)
    held.browser.reset()


async def slow_heads(ground: PressureRig) -> None:
    """Send heads byte by byte, on several connections at once."""

    async def one() -> None:
        browser = await ground.browser()
        with suppress(GatewayClosed):
            await browser.dribble(request("GET", "/", host="x" * 1000), 0.005)
        browser.reset()

    await round_of(_all(*(one() for _ in range(STALLED))))


async def _all(*works: Awaitable[None]) -> None:
    await asyncio.gather(*works)


_VIEW = encode(BINARY, b"\x02\x00\x00\x00" * 10_000, mask=MASK)
_PING = encode(PING, b"p" * 125, mask=MASK)
ATTACKERS: dict[str, Attack] = {
    "refusals, read": refusals(reading=True),
    "refusals, not read": refusals(reading=False),
    "pipelined requests": pipelined,
    "1-byte chunks up": small_chunks_up,
    "1-byte chunks down": small_chunks_down,
    "empty frames up": frames_up("WebSocket", encode(BINARY, mask=MASK)),
    "empty frames down": frames_down("WebSocket", encode(BINARY)),
    "empty messages to a terminal": frames_up("terminal", encode(BINARY, mask=MASK)),
    "empty fragments to a terminal": frames_up("terminal", encode(CONTINUATION, mask=MASK)),
    "empty messages of a terminal": frames_down("terminal", encode(BINARY)),
    "pings, pongs not read": frames_up("desktop", _PING, reading=False, mode="view"),
    "4-byte RFB messages, view only": frames_up("desktop", _VIEW, mode="view"),
    "connections that come and go": come_and_go,
    "heads byte by byte": slow_heads,
    "downloads that stall": leaving("download", "talks", Browser.reset),
    "public links that stall": leaving("public link", "talks", Browser.fin),
    "event streams that are left": leaving("event stream", "silent", Browser.fin),
}


async def attack_on(ground: PressureRig, attack: Attack) -> None:
    """Attack until cancelled; start again whenever the gateway ends the attack.

    A failure during the teardown of a cancelled attack may hide the cancellation.
    """
    task = asyncio.current_task()
    while task is None or not task.cancelling():
        with suppress(GatewayClosed, StreamEnded, OSError, TimeoutError, AssertionError):
            await attack(ground)
        await asyncio.sleep(0.01)
