"""Large bodies of an exchange that the kernel moves: towards the app, and towards the browser."""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from typing import TYPE_CHECKING

from gateway.core.framing import Body, LengthBody
from gateway.relay.pipes import Pipes
from gateway.relay.readiness import Readiness
from gateway.relay.splice import Splice, descriptor_of
from gateway.relay.transports import resume_reading

if TYPE_CHECKING:
    from gateway.relay.exchange import Exchange


def make_upload(exchange: Exchange) -> Upload | None:
    """Return what moves the rest of a request's body; None when that is not for the kernel."""
    large = _large(exchange, exchange.request)
    if large is None:
        return None
    body, browser, app = large
    return Upload(exchange, body, browser, app)


def make_download(exchange: Exchange) -> Download | None:
    """Return what moves the rest of an answer's body; None when that is not for the kernel.

    Not while the request's body is written by a transport: when that fails, the app's connection
    is closed with what it still holds.
    """
    if not exchange.request.done and exchange.upload is None:
        return None
    large = _large(exchange, exchange.answer)
    if large is None:
        return None
    body, browser, app = large
    return Download(exchange, body, app, browser)


def _large(
    exchange: Exchange, body: Body | None
) -> tuple[LengthBody, asyncio.Transport, asyncio.Transport] | None:
    """Return *body*, the browser's transport and the app's, if it is worth it.

    That is: its rest passes unchanged and is long enough, and both are plain sockets.
    """
    least = exchange.front.path.parts.limits.splice_bytes
    if not isinstance(body, LengthBody) or not body.left >= least > 0:
        return None
    upstream = exchange.upstream
    browser, app = exchange.front.transport, upstream.transport if upstream is not None else None
    if browser is None or app is None or not (Pipes.possible and Readiness.possible):
        return None
    return (body, browser, app) if _is_plain(browser) and _is_plain(app) else None


def _is_plain(transport: asyncio.Transport) -> bool:
    return not transport.is_closing() and descriptor_of(transport) >= 0


class _Body(Splice):
    """A body of *exchange*."""

    __slots__ = ("_exchange",)

    def __init__(
        self,
        exchange: Exchange,
        body: LengthBody,
        source: asyncio.Transport,
        sink: asyncio.Transport,
    ) -> None:
        super().__init__(exchange.front.path, body, source, sink)
        self._exchange = exchange


class Upload(_Body):
    """A request's body, from the browser to the app."""

    __slots__ = ()

    def came(self, size: int) -> None:
        """Count it."""
        self._exchange.uploaded += size
        self._path.meters.http.up += size

    def went(self, size: int) -> None:
        """The app's side is not counted."""

    def passed(self) -> None:
        """Wait for the answer; what the browser sends now is its next request."""
        self._exchange.upload = None
        self._exchange.front.request_ended()

    def handed_back(self) -> None:
        """Read from the browser again."""
        self._exchange.upload = None
        self._exchange.regulate()

    def sink_lost(self, error: OSError) -> None:
        """The app may have answered before it closed: what the kernel holds of that goes on."""
        upstream = self._exchange.upstream
        if upstream is not None and self._exchange.download is None:
            upstream.fail(error)


class Download(_Body):
    """An answer's body, from the app to the browser."""

    __slots__ = ()

    def came(self, size: int) -> None:
        """The app's side is not counted."""

    def went(self, size: int) -> None:
        """Count it."""
        self._path.meters.http.down += size

    def passed(self) -> None:
        """The answer is whole; an app that has sent more is not asked again."""
        exchange = self._exchange
        exchange.download = None
        if has_unread(self._from):
            exchange.close_after = True
        if exchange.upstream is not None:
            resume_reading(exchange.upstream.transport)
        exchange.complete()

    def handed_back(self) -> None:
        """Read from the app again."""
        self._exchange.download = None
        self._exchange.go_on()

    def sink_lost(self, error: OSError) -> None:
        """The browser has gone; its transport finds nothing wrong by itself."""
        browser = self._exchange.front.transport
        if browser is not None:
            browser.abort()


def has_unread(descriptor: int) -> bool:
    """Say whether a socket holds bytes that nobody has read."""
    (size,) = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4))
    return bool(size)
