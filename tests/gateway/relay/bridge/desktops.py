"""Desktops and terminals behind a data path: real bridges, raw peers on both sides."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any

import msgspec
from websockets.frames import Frame, Opcode

from gateway.core.limits.values import Limits
from gateway.relay.bridge.vnc import VncBridge
from gateway.relay.context import UpgradeRequest
from shared.link import Seal
from tests.gateway.relay.harness import (
    GRANT,
    KEYS,
    Peer,
    Rig,
    rig,
    status_of,
    upgrade,
)

ASK = upgrade("/.fumarole/connect", "Sec-WebSocket-Protocol: binary")
VIEW = f"fumarole={KEYS.sign(msgspec.structs.replace(GRANT, mode='view'))}"
ASK_TO_VIEW = upgrade(
    "/.fumarole/connect", "Sec-WebSocket-Protocol: binary", credential=f"Cookie: {VIEW}"
)
SWITCH = (
    b"HTTP/1.1 101 Switching Protocols\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n"
    b"Sec-WebSocket-Protocol: binary\r\nSec-WebSocket-Accept: %b\r\n\r\n"
)


@asynccontextmanager
async def desktops(
    limits: Limits | None = None,
    *,
    scheme: str = "tcp",
    target: Mapping[str, Any] | None = None,
    trust: ssl.SSLContext | None = None,
) -> AsyncIterator[Rig]:
    """A rig whose session is a desktop that relays bytes.

    The desktop is the rig's app, by *scheme*, or what *target* says, whose certificate *trust*
    verifies. Turns are timed by this thread's CPU time, so that a busy machine does not make them
    longer.
    """

    def bridge(request: UpgradeRequest) -> VncBridge:
        return VncBridge(request, Seal(bytes(32)))

    changes: dict[str, Any] = {"kind": "vnc", "target": target or {"scheme": scheme}}
    async with rig(bridges={"vnc": bridge}, route_changes=changes, limits=limits, trust=trust) as r:
        r.path.turns._clock = time.thread_time
        yield r


async def joined(r: Rig) -> tuple[Peer, Peer]:
    """Return a browser and the desktop that it is connected to."""
    browser = await r.browser()
    browser.send(ASK)
    desktop = await r.app.connection()
    assert status_of(await browser.head()) == 101
    return browser, desktop


async def viewing(r: Rig) -> tuple[Peer, Peer]:
    """Return a browser that may only view, and the desktop, after the handshake."""
    browser = await r.browser()
    browser.send(ASK_TO_VIEW)
    desktop = await r.app.connection()
    assert status_of(await browser.head()) == 101
    desktop.send(b"RFB 003.008\n\x01\x01")
    assert await desktop.exactly(13) == b"RFB 003.008\n\x01"
    await browser.until(b"RFB 003.008\n")
    browser.send(said(b"RFB 003.008\n"))
    await browser.until(b"\x01\x01")
    browser.send(said(b"\x01"))
    desktop.send(bytes(4))
    await browser.until(bytes(4))
    browser.send(said(b"\x01"))
    assert await desktop.exactly(1) == b"\x01"
    return browser, desktop


def said(data: bytes, opcode: Opcode = Opcode.BINARY) -> bytes:
    """Return a frame as a browser sends it."""
    return Frame(opcode, data).serialize(mask=True)


async def narrow_socket(r: Rig) -> socket.socket:
    """Return a browser's socket whose kernel accepts few unread bytes."""
    sock = socket.socket()
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, r.address)
    return sock


def longest_turn(r: Rig) -> int:
    """Return the bucket of the histogram that holds the longest turn."""
    return max((at for at, count in enumerate(r.path.turns.counts) if count), default=0)
