"""Large bodies of an exchange that the kernel moves: towards the app, and towards the browser."""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from typing import TYPE_CHECKING, Protocol

from gateway.core.http.framing import Body, LengthBody
from gateway.relay.ending.kernel import descriptor_of, is_secured
from gateway.relay.http.pipes import Pipes
from gateway.relay.http.readiness import Readiness
from gateway.relay.http.splice import Splice

if TYPE_CHECKING:
    from gateway.core.access.access_right import Activity
    from gateway.relay.context import Context
    from gateway.relay.http.upstream import UpstreamConnection


class Exchange(Protocol):
    """Whose bodies are moved: :class:`gateway.relay.http.downstream.DownstreamConnection`."""

    activity: Activity
    context: Context
    transport: asyncio.Transport | None
    upstream: UpstreamConnection | None
    upstream_closes: bool
    uploaded: int
    upload: Upload | None
    request: Body
    response: Body | None

    def upload_over(self) -> None:
        """The request's body has passed, or is handed back."""
        ...

    def download_over(self) -> None:
        """The response's body has passed, or is handed back."""
        ...

    def is_moving(self) -> bool:
        """Say whether the kernel moves the response's body."""
        ...

    def app_stalled(self) -> None:
        """The app has taken nothing for as long as it may."""
        ...


def make_upload(exchange: Exchange) -> Upload | None:
    """Return what moves the rest of a request's body; None when that is not for the kernel."""
    large = _large(exchange, exchange.request)
    if large is None:
        return None
    body, browser, app = large
    return Upload(exchange, body, browser, app)


def make_download(exchange: Exchange) -> Download | None:
    """Return what moves the rest of a response's body; None when that is not for the kernel.

    Not while the request's body is written by a transport: when that fails, the app's connection
    is closed with what it still holds.
    """
    if not exchange.request.done and exchange.upload is None:
        return None
    large = _large(exchange, exchange.response)
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
    least = exchange.context.parts.limits.splice_bytes
    if not isinstance(body, LengthBody) or not body.left >= least > 0:
        return None
    upstream = exchange.upstream
    browser, app = exchange.transport, upstream.transport if upstream is not None else None
    if browser is None or app is None or not (Pipes.possible and Readiness.possible):
        return None
    return (body, browser, app) if _is_plain(browser) and _is_plain(app) else None


def _is_plain(transport: asyncio.Transport) -> bool:
    return not (transport.is_closing() or is_secured(transport)) and descriptor_of(transport) >= 0


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
        super().__init__(exchange.context, body, source, sink)
        self._exchange = exchange


class Upload(_Body):
    """A request's body, from the browser to the app."""

    __slots__ = ()

    def came(self, size: int) -> None:
        """Count it."""
        self._exchange.uploaded += size
        self._context.meters.http.up += size
        self._exchange.activity.up += size

    def went(self, size: int) -> None:
        """The app's side is not counted."""

    def waits(self) -> None:
        """An app that takes nothing for long is given up."""
        self._context.ends.app_writes_wait(self._sink, self._exchange.app_stalled)

    def over(self) -> None:
        """Read from the browser again: the rest of the body, or its next request."""
        self._exchange.upload_over()

    def sink_lost(self, error: OSError) -> None:
        """The app may have responded before it closed: what the kernel holds of that goes on."""
        upstream = self._exchange.upstream
        if upstream is not None and not self._exchange.is_moving():
            upstream.fail(error)


class Download(_Body):
    """A response's body, from the app to the browser."""

    __slots__ = ()

    def came(self, size: int) -> None:
        """The app's side is not counted."""

    def went(self, size: int) -> None:
        """Count it."""
        self._context.meters.http.down += size
        self._exchange.activity.down += size

    def waits(self) -> None:
        """A browser that takes nothing for long is reset."""
        self._context.ends.writes_wait(self._sink)

    def over(self) -> None:
        """Read from the app again, or complete; one that has sent more is not asked again."""
        if self.body.done and has_unread(self._from):
            self._exchange.upstream_closes = True
        self._exchange.download_over()

    def sink_lost(self, error: OSError) -> None:
        """The browser has gone; its transport finds nothing wrong by itself."""
        if self._exchange.transport is not None:
            self._exchange.transport.abort()


def has_unread(descriptor: int) -> bool:
    """Say whether a socket holds bytes that nobody has read."""
    (size,) = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4))
    return bool(size)
