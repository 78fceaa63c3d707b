"""The kinds of connection: how each begins on both sides, and the framing of its payload."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from tests.contract import frames
from tests.contract.messages import request
from tests.contract.rig import Rig, Session
from tests.contract.upstream import upgrade_response
from tests.pump.flow import QUIET_SECONDS
from tests.pump.framings import (
    Chunks,
    Frames,
    Plain,
    Unwrap,
    Wrap,
    chunk,
    frame,
    masking,
    plain,
)

TERMINAL = "fumarole.terminal.v1"


@dataclass(frozen=True)
class Ends:
    """One end of a connection, and the user."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    async def head(self) -> bytes:
        """Read a head."""
        async with asyncio.timeout(QUIET_SECONDS):
            return await self.reader.readuntil(b"\r\n\r\n")


@dataclass(frozen=True, kw_only=True)
class Kind:
    """One kind. ``route`` is merged into the session's, ``ask`` makes the browser's head.

    Bodies of HTTP go one way after the other, messages of sockets both ways at once.
    """

    name: str
    ask: Callable[[Rig, Session, str, int], bytes]
    greet: Callable[[Ends, int], Awaitable[None]]
    up: Callable[[random.Random], Wrap] = lambda _: plain
    came_up: Callable[[], Unwrap] = Plain
    down: Wrap = plain
    came_down: Callable[[], Unwrap] = Plain
    last: bytes = b""
    """What ends a body."""
    at_once: bool = False
    route: Mapping[str, Any] = field(default_factory=dict)


def _put(rig: Rig, session: Session, cookie: str, framing: str) -> bytes:
    name, _, value = framing.partition(": ")
    fields = [*rig.own(session, cookie), (name, value)]
    return request("PUT", "/", host=session.host, fields=fields)


def _ask_length(rig: Rig, session: Session, cookie: str, size: int) -> bytes:
    return _put(rig, session, cookie, f"Content-Length: {size}")


def _ask_chunked(rig: Rig, session: Session, cookie: str, size: int) -> bytes:
    return _put(rig, session, cookie, "Transfer-Encoding: chunked")


async def _response_length(ends: Ends, size: int) -> None:
    ends.writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n" % size)


async def _response_chunked(ends: Ends, size: int) -> None:
    ends.writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")


def _ask_socket(path: str, protocol: str | None) -> Callable[[Rig, Session, str, int], bytes]:
    def ask(rig: Rig, session: Session, cookie: str, size: int) -> bytes:
        fields = [*frames.HANDSHAKE, *rig.own(session, cookie)]
        if protocol is not None:
            fields.append(("Sec-WebSocket-Protocol", protocol))
        return request("GET", path, host=session.host, fields=fields)

    return ask


async def _accept(ends: Ends, size: int, *fields: str) -> None:
    head = await ends.head()
    key = next(
        line.partition(b":")[2].strip().decode()
        for line in head.split(b"\r\n")
        if line.lower().startswith(b"sec-websocket-key:")
    )
    ends.writer.write(upgrade_response(key, *fields))


async def _accept_terminal(ends: Ends, size: int) -> None:
    await _accept(ends, size, f"Sec-WebSocket-Protocol: {TERMINAL}")


async def _no_greeting(ends: Ends, size: int) -> None:
    """A desktop in ``control`` without a password of ours: the gateway does not parse its bytes."""


HTTP_KINDS = (
    Kind(name="length", ask=_ask_length, greet=_response_length),
    Kind(
        name="chunked",
        ask=_ask_chunked,
        greet=_response_chunked,
        up=lambda _: chunk,
        came_up=Chunks,
        down=chunk,
        came_down=Chunks,
        last=b"0\r\n\r\n",
    ),
)
SOCKET_KINDS = (
    # A tunnel forwards frames unchanged, so they are compared with their headers and masks.
    Kind(name="tunnel", ask=_ask_socket("/ws", None), greet=_accept, at_once=True),
    Kind(
        name="vnc",
        ask=_ask_socket("/.fumarole/connect", "binary"),
        greet=_no_greeting,
        up=masking,
        came_down=Frames,
        at_once=True,
        route={"kind": "vnc", "target": {"scheme": "tcp"}},
    ),
    Kind(
        name="terminal",
        ask=_ask_socket("/.fumarole/connect", TERMINAL),
        greet=_accept_terminal,
        up=masking,
        came_up=Frames,
        down=frame,
        came_down=Frames,
        at_once=True,
        route={"kind": "terminal", "target": {"scheme": "ws", "base_path": "/terminals/x"}},
    ),
)
KINDS = (*HTTP_KINDS, *SOCKET_KINDS)
