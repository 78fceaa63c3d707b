"""Server-sent events (HTML standard, section 9.2) with backpressure."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import aiohttp
from aiohttp import web

from controller.api.error_responses import ApiError
from controller.api.operations import EVENTS
from shared.tokens import LONGEST_SERVICE_SECONDS

KEEP_ALIVE_SECONDS: Final = 15.0
"""A comment is sent after this time without an event, so that proxies keep the stream open."""

STALLED_SECONDS: Final = 30.0
"""A reader that accepts nothing for this time is disconnected. It can resume where it stopped."""

MOST_STREAMS: Final = 256

CHECK_SECONDS: Final = 1.0
"""How often streams are checked for readers that have disconnected. A silent stream writes nothing
by which it would notice, and keeps its place until then."""


@dataclass(frozen=True, slots=True)
class StreamSource:
    """An opened source: *send* writes it to the stream, whose response has *headers*."""

    send: Callable[[EventStream], Awaitable[None]]
    headers: Mapping[str, str] = field(default_factory=dict)


class EventStreams:
    """Counts open streams, so that their number stays bounded.

    Args:
        longest_seconds: After this time a stream of events is reset. A token is verified when its
            stream begins, and none is valid for longer. The reader resumes with a new one.
    """

    def __init__(self, longest_seconds: float = LONGEST_SERVICE_SECONDS) -> None:
        self.longest_seconds = longest_seconds
        self._scopes: dict[asyncio.Timeout, web.Request] = {}
        self._check: asyncio.TimerHandle | None = None
        self._closed = False
        self._encoding = asyncio.Lock()

    @property
    def open(self) -> int:
        """The number of open streams."""
        return len(self._scopes)

    @property
    def full(self) -> bool:
        """Whether no further stream may open."""
        return self._closed or self.open >= MOST_STREAMS

    def close(self) -> None:
        """Abort all streams and refuse new ones, because the process ends."""
        self._closed = True
        for scope in self._scopes:
            _abort(scope)

    def _add(self, scope: asyncio.Timeout, request: web.Request) -> None:
        self._scopes[scope] = request
        if self._check is None:
            self._check = asyncio.get_running_loop().call_later(CHECK_SECONDS, self._abort_left)

    def _abort_left(self) -> None:
        """Abort the streams whose readers have disconnected; repeated while streams are open."""
        self._check = None
        for scope, request in self._scopes.items():
            if request.transport is None or request.transport.is_closing():
                _abort(scope)
        if self._scopes:
            self._check = asyncio.get_running_loop().call_later(CHECK_SECONDS, self._abort_left)

    async def run(
        self,
        request: web.Request,
        content_type: str,
        opening: AbstractAsyncContextManager[StreamSource],
    ) -> web.StreamResponse:
        """Respond to *request* with the source that *opening* yields.

        The stream is counted before its source is opened, which may take connections of its own.
        A stream that fails is reset, so that the reader can tell a failure from the end.
        A response to HEAD ends after the header section (RFC 9110, section 9.3.2).

        Raises:
            ApiError: 503 if there are too many streams; nothing was opened.
            Exception: That of *opening*; the response has not begun.
        """
        if self.full:
            raise ApiError("too_many_streams")
        response = web.StreamResponse(
            headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        )
        response.content_type, response.charset = content_type, "utf-8"
        scope = asyncio.timeout(self.longest_seconds if content_type == EVENTS else None)
        try:
            async with scope:
                self._add(scope, request)
                async with opening as source:
                    response.headers.update(source.headers)
                    await response.prepare(request)
                    stream = EventStream(response, self._encoding)
                    if request.method != "HEAD":
                        await source.send(stream)
                    await stream.end()
        except (OSError, TimeoutError, aiohttp.ClientError):
            if not (response.prepared or scope.expired()):
                raise
            # The reader disconnected or stalled, the source failed, the stream has lasted as long
            # as it may, or the process ends.
            if request.transport is not None:
                request.transport.abort()
        finally:
            self._scopes.pop(scope, None)
        return response


def _abort(scope: asyncio.Timeout) -> None:
    if not scope.expired():
        scope.reschedule(0.0)


class EventStream:
    """Writes events to one reader.

    Args:
        encoding: The lock of all streams, for :meth:`turn`.
    """

    def __init__(self, response: web.StreamResponse, encoding: asyncio.Lock) -> None:
        self._response = response
        self._encoding = encoding

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        """Let this stream alone encode a few events in this turn of the event loop.

        Writes to fast readers never yield, so many streams would occupy the loop in a row.
        """
        async with self._encoding:
            yield
            await asyncio.sleep(0)  # all other tasks run before the next stream's turn

    async def event(self, name: str, data: Any) -> None:
        """Send an event.

        Raises:
            TimeoutError: If the reader accepts nothing.
            ConnectionError: If the reader has disconnected.
        """
        await self.write(encode_event(name, data))

    async def keep_alive(self) -> None:
        """Send a comment."""
        await self.write(b": here\n\n")

    async def write(self, content: bytes) -> None:
        """Send *content* once the reader has accepted the earlier content.

        Raises:
            TimeoutError: If the reader accepts nothing.
            ConnectionError: If the reader has disconnected.
        """
        async with asyncio.timeout(STALLED_SECONDS):
            await self._response.write(content)

    async def end(self) -> None:
        """End the response."""
        async with asyncio.timeout(STALLED_SECONDS):
            await self._response.write_eof()


def encode_event(name: str, data: Any, *, place: str | None = None) -> bytes:
    """Return an encoded event; *place* is its id, after which the reader can resume."""
    # JSON contains no line break, so that one data field is enough.
    lines = [] if place is None else [f"id: {place}"]
    lines += [f"event: {name}", f"data: {json.dumps(data, separators=(',', ':'))}", "", ""]
    return "\n".join(lines).encode()
