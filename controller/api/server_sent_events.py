"""Server-sent events (HTML standard, section 9.2): written as fast as they are read, no faster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import aiohttp
from aiohttp import web

from controller.api.error_responses import ApiError

KEEP_ALIVE_SECONDS: Final = 15.0
"""A comment is sent when nothing else was: proxies and clients see that the stream lives."""

STALLED_SECONDS: Final = 30.0
"""A reader that takes nothing for so long is cut off; it can go on from what it has read."""

MOST_STREAMS: Final = 256


class EventStreams:
    """Counts the streams that are open, so that they stay bounded."""

    def __init__(self) -> None:
        self._scopes: set[asyncio.Timeout] = set()
        self._closed = False

    @property
    def open(self) -> int:
        """How many there are."""
        return len(self._scopes)

    @property
    def full(self) -> bool:
        """Whether there are as many as there may be."""
        return self._closed or self.open >= MOST_STREAMS

    def close(self) -> None:
        """Break all of them off, and begin no more: this process ends."""
        self._closed = True
        for scope in self._scopes:
            scope.reschedule(0.0)

    async def run(
        self,
        request: web.Request,
        content_type: str,
        send: Callable[[EventStream], Awaitable[None]],
        headers: Mapping[str, str] | None = None,
    ) -> web.StreamResponse:
        """Answer *request* with what *send* writes, and with *headers*.

        What it cannot go on with breaks off: a reader that sees the end knows that it is one.
        A response to HEAD ends after the header section (RFC 9110, section 9.3.2).

        Raises:
            ApiError: 503 if there are too many.
        """
        if self.full:
            raise ApiError("too_many_streams")
        response = web.StreamResponse(
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no", **(headers or {})}
        )
        response.content_type, response.charset = content_type, "utf-8"
        scope = asyncio.timeout(None)
        try:
            async with scope:
                self._scopes.add(scope)
                await response.prepare(request)
                stream = EventStream(response)
                if request.method != "HEAD":
                    await send(stream)
                await stream.end()
        except (OSError, TimeoutError, aiohttp.ClientError):
            # The reader is gone or takes nothing, or what it reads from is, or we are to end.
            if request.transport is not None:
                request.transport.abort()
        finally:
            self._scopes.discard(scope)
        return response


class EventStream:
    """Writes to one reader."""

    def __init__(self, response: web.StreamResponse) -> None:
        self._response = response

    async def event(self, name: str, data: Any, *, number: int | None = None) -> None:
        """Send an event; *number* is from where the reader can go on.

        Raises:
            TimeoutError: If the reader takes nothing.
            ConnectionError: If it is gone.
        """
        await self.write(encode_event(name, data, place=None if number is None else str(number)))

    async def keep_alive(self) -> None:
        """Send a comment."""
        await self.write(b": here\n\n")

    async def write(self, content: bytes) -> None:
        """Send *content* once the reader has taken what came before.

        Raises:
            TimeoutError: If the reader takes nothing.
            ConnectionError: If it is gone.
        """
        async with asyncio.timeout(STALLED_SECONDS):
            await self._response.write(content)

    async def end(self) -> None:
        """Say that there will be no more."""
        async with asyncio.timeout(STALLED_SECONDS):
            await self._response.write_eof()


def encode_event(name: str, data: Any, *, place: str | None = None) -> bytes:
    """Return an event; *place* is its id, from where a reader can go on."""
    # JSON has no line break that would have to be split.
    lines = [] if place is None else [f"id: {place}"]
    lines += [f"event: {name}", f"data: {json.dumps(data, separators=(',', ':'))}", "", ""]
    return "\n".join(lines).encode()
