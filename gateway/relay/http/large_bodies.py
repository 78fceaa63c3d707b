"""Large bodies that the kernel moves: towards the app, and towards the browser."""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios
from typing import TYPE_CHECKING

from gateway.core.downstream.connection import Connection
from gateway.core.http.framing import Body, LengthBody
from gateway.relay.ending.kernel import descriptor_of, is_secured
from gateway.relay.http.pipes import Pipes
from gateway.relay.http.readiness import Readiness
from gateway.relay.http.splice import Splice

if TYPE_CHECKING:
    from gateway.core.access.access_right import ActivityCounter
    from gateway.relay.context import Context
    from gateway.relay.http.upstream import UpstreamConnection


class SplicingConnection(Connection):
    """A downstream connection whose large bodies the kernel moves.

    ``upload`` and ``download`` are there each while the kernel moves that body's bytes;
    ``activity`` is where they are counted.
    """

    __slots__ = ("activity", "context", "download", "transport", "upload")

    activity: ActivityCounter
    context: Context
    download: Download | None
    transport: asyncio.Transport | None
    upload: Upload | None
    upstream: UpstreamConnection | None

    def sync_reading(self) -> None:
        """Read from the browser, or not; nothing of a body that the kernel moves."""
        if self.upload is None:
            super().sync_reading()
        elif self.upstream is not None and self.upstream.writable:
            self.upload.emptied()

    def set_write_full(self, full: bool) -> None:
        """Note whether more waits for the browser than may; the kernel waits until none does."""
        super().set_write_full(full)
        if not full and self.download is not None:
            self.download.emptied()

    def resume_response(self) -> None:
        """Read from the app again, unless the kernel does."""
        if self.download is None:
            super().resume_response()

    def is_upstream_writable(self) -> bool:
        """Say whether it is the browser that a request's body waits for, and not the app."""
        return super().is_upstream_writable() and not (
            self.upload is not None and self.upload.blocked
        )

    def splice_request(self) -> None:
        """Have the kernel move the rest of a large body, if it can."""
        large = _large(self, self.request)
        if large is None:
            return
        body, browser, app = large
        self.upload = Upload(self, body, browser, app)
        # What the kernel reads is not asked for here; its end is.
        self.reading = False
        self.context.ends.hangups.watch(browser, self.hung_up)
        self.upload.begin()

    def upload_over(self) -> None:
        """The transport reads on: the body has passed, or the kernel has handed it back."""
        self.upload = None
        if self.request.done:
            self.request_spliced()
        else:
            self.sync_reading()

    def splice_response(self) -> None:
        """Have the kernel move the rest of a large body, if it can.

        Not while the request's body is written by a transport: when that fails, the app's
        connection is closed with what it still holds.
        """
        large = None
        if self.request.done or self.upload is not None:
            large = _large(self, self.response)
        if large is None:
            return
        body, browser, app = large
        self.download = Download(self, body, app, browser)
        if self.upstream is not None:
            self.upstream.reading = False
        self.download.begin()

    def download_over(self) -> None:
        """The transport reads on: the body has passed, or the kernel has handed it back."""
        self.download = None
        if self.response is not None and self.response.done:
            self.finish_response()
        elif not self.write_full:
            self.resume_response()

    def stop_splicing(self) -> None:
        """Have the kernel move nothing more."""
        upload, self.upload = self.upload, None
        if upload is not None:
            upload.stop()
        download, self.download = self.download, None
        if download is not None:
            download.stop()

    def is_splicing_response(self) -> bool:
        """Say whether the kernel moves the response's body, and reads it."""
        return self.download is not None


def _large(
    connection: SplicingConnection, body: Body | None
) -> tuple[LengthBody, asyncio.Transport, asyncio.Transport] | None:
    """Return *body*, the browser's transport and the app's, if it is worth it.

    That is: its rest passes unchanged and is long enough, and both are plain sockets.
    """
    least = connection.context.parts.limits.splice_bytes
    if not isinstance(body, LengthBody) or not body.remaining >= least > 0:
        return None
    upstream = connection.upstream
    browser, app = connection.transport, upstream.transport if upstream is not None else None
    if browser is None or app is None or not (Pipes.possible and Readiness.possible):
        return None
    return (body, browser, app) if _is_plain(browser) and _is_plain(app) else None


def _is_plain(transport: asyncio.Transport) -> bool:
    return not (transport.is_closing() or is_secured(transport)) and descriptor_of(transport) >= 0


class _Body(Splice):
    """A body of *connection*."""

    __slots__ = ("_connection",)

    def __init__(
        self,
        connection: SplicingConnection,
        body: LengthBody,
        source: asyncio.Transport,
        sink: asyncio.Transport,
    ) -> None:
        super().__init__(connection.context, body, source, sink)
        self._connection = connection


class Upload(_Body):
    """A request's body, from the browser to the app."""

    __slots__ = ()

    def came(self, size: int) -> None:
        """Count it."""
        self._connection.uploaded += size
        self._context.meters.http.up += size
        self._connection.activity.up += size

    def went(self, size: int) -> None:
        """The app's side is not counted."""

    def waits(self) -> None:
        """An app that takes nothing for long is given up."""
        self._context.ends.writes_wait(self._sink, self._connection.upstream_stalled, app=True)

    def over(self) -> None:
        """Read from the browser again: the rest of the body, or its next request."""
        self._connection.upload_over()

    def sink_lost(self, error: OSError) -> None:
        """The app may have responded before it closed: what the kernel holds of that goes on."""
        upstream = self._connection.upstream
        if upstream is not None and not self._connection.is_splicing_response():
            upstream.fail(error)


class Download(_Body):
    """A response's body, from the app to the browser."""

    __slots__ = ()

    def came(self, size: int) -> None:
        """The app's side is not counted."""

    def went(self, size: int) -> None:
        """Count it."""
        self._context.meters.http.down += size
        self._connection.activity.down += size

    def waits(self) -> None:
        """A browser that takes nothing for long is reset."""
        self._context.ends.writes_wait(self._sink)

    def over(self) -> None:
        """Read from the app again, or complete; one that has sent more is not asked again."""
        if self.body.done and has_unread(self._from):
            self._connection.upstream_closes = True
        self._connection.download_over()

    def sink_lost(self, error: OSError) -> None:
        """The browser has gone; its transport finds nothing wrong by itself."""
        if self._connection.transport is not None:
            self._connection.transport.abort()


def has_unread(descriptor: int) -> bool:
    """Say whether a socket holds bytes that nobody has read."""
    (size,) = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4))
    return bool(size)
