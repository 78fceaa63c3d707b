"""Connects to a target once, and sends an app one request: bounded in time and in bytes.

Only addresses that the cluster reports for a job's pod or Service, or a hub of this installation,
are used (see ``explainer``). Redirects are not followed.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress
from dataclasses import dataclass
from typing import Final, Literal

DIAL_SECONDS: Final = 2.0
ANSWER_SECONDS: Final = 3.0
MOST_BYTES: Final = 1024


@dataclass(frozen=True, slots=True)
class Probed:
    """The result of the connection attempt, and the status of the app's response, if any."""

    connected: Literal["open", "refused", "unanswered"]
    sent: bool = False
    status: int | None = None


async def probe(host: str, port: int, *, path: str | None = None, name: str = "") -> Probed:
    """Connect to *host* and *port*.

    With *path*, send a request for it; *name* is its ``Host``.
    """
    try:
        async with asyncio.timeout(DIAL_SECONDS):
            reader, writer = await asyncio.open_connection(host, port, limit=MOST_BYTES)
    except ConnectionRefusedError:
        return Probed("refused")
    except (OSError, TimeoutError):
        return Probed("unanswered")
    try:
        if path is None:
            return Probed("open")
        head = f"GET {path} HTTP/1.1\r\nHost: {name}\r\nUser-Agent: fumarole-explain\r\n"
        writer.write(f"{head}Accept: */*\r\nConnection: close\r\n\r\n".encode("latin-1"))
        status = None
        with suppress(
            OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError
        ):
            async with asyncio.timeout(ANSWER_SECONDS):
                status = _status(await reader.readuntil(b"\n"))
        return Probed("open", sent=True, status=status)
    finally:
        writer.transport.abort()


def _status(line: bytes) -> int | None:
    version, _, rest = line.partition(b" ")
    digits = rest[:3]
    return int(digits) if version.startswith(b"HTTP/1.") and digits.isdigit() else None
