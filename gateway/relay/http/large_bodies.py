"""Large bodies that the kernel moves, in both directions."""

from __future__ import annotations

import asyncio
import fcntl
import struct
import termios

from gateway.core.access.access_right import ActivityCounter
from gateway.core.downstream.connection import Connection
from gateway.core.http.framing import Body, LengthBody
from gateway.relay.context import Context
from gateway.relay.ending.kernel import descriptor_of, is_tls
from gateway.relay.http.pipes import Pipes
from gateway.relay.http.readiness import Readiness
from gateway.relay.http.splice import Splice
from gateway.relay.http.upstream import UpstreamConnection


class SplicingConnection(Connection):
    """A downstream connection whose large bodies the kernel moves.

    ``upload`` and ``download`` exist while the kernel moves the respective body. ``activity``
    counts their bytes.
    """

    __slots__ = ("activity", "context", "download", "transport", "upload")

    activity: ActivityCounter
    context: Context
    download: Download | None
    transport: asyncio.Transport | None
    upload: Upload | None
    upstream: UpstreamConnection | None

    def sync_reading(self) -> None:
        """Read from the browser or pause, except for a body that the kernel moves."""
        if self.upload is None:
            super().sync_reading()
        elif self.upstream is not None and self.upstream.writable:
            self.upload.sink_drained()

    def set_write_full(self, full: bool) -> None:
        """Note whether the write buffer is full; the kernel starts once it is empty."""
        super().set_write_full(full)
        if not full and self.download is not None:
            self.download.sink_drained()

    def resume_response(self) -> None:
        """Read from the app again, unless the kernel does."""
        if self.download is None:
            super().resume_response()

    def is_upstream_writable(self) -> bool:
        """Return whether the request body waits for the browser and not for the app."""
        return super().is_upstream_writable() and not (
            self.upload is not None and self.upload.blocked
        )

    def splice_request(self) -> None:
        """Let the kernel move the rest of a large request body, if possible."""
        large = _large(self, self.request)
        if large is None:
            return
        body, browser, app = large
        self.upload = Upload(self, body, browser, app)
        # Splicing reports its bytes; the watch reports a browser that leaves.
        self.reading = False
        self.context.closer.hangups.watch(browser, self.hung_up)
        self.upload.begin()

    def upload_finished(self) -> None:
        """Read by the transport again: the body is complete, or the kernel has handed it back."""
        self.upload = None
        if self.request.done:
            self.request_spliced()
        else:
            self.sync_reading()

    def splice_response(self) -> None:
        """Let the kernel move the rest of a large response body, if possible.

        Not while a transport writes the request body: if that fails, the upstream connection closes
        with the bytes that it still holds.
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

    def download_finished(self) -> None:
        """Read by the transport again: the body is complete, or the kernel has handed it back."""
        self.download = None
        if self.response is not None and self.response.done:
            self.finish_response()
        elif not self.write_full:
            self.resume_response()

    def stop_splicing(self) -> None:
        """Stop the kernel from moving any body."""
        upload, self.upload = self.upload, None
        if upload is not None:
            upload.stop()
        download, self.download = self.download, None
        if download is not None:
            download.stop()

    def is_splicing_response(self) -> bool:
        """Return whether the kernel moves, and so reads, the response body."""
        return self.download is not None


def _large(
    connection: SplicingConnection, body: Body | None
) -> tuple[LengthBody, asyncio.Transport, asyncio.Transport] | None:
    """Return *body* and both transports if the kernel should move it.

    That is, if its rest is forwarded unchanged and is long enough, and both sockets are plain TCP.
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
    return not (transport.is_closing() or is_tls(transport)) and descriptor_of(transport) >= 0


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
    """A request body, from the browser to the app."""

    __slots__ = ()

    def bytes_read(self, size: int) -> None:
        """Count the bytes."""
        self._connection.uploaded += size
        self._context.meters.http.up += size
        self._connection.activity.up += size

    def bytes_written(self, size: int) -> None:
        """Count nothing: the upstream side is not counted."""

    def sink_blocked(self) -> None:
        """Watch the app: one that reads nothing for long is given up."""
        self._context.closer.watch_writes(self._sink, self._connection.upstream_stalled, app=True)

    def finished(self) -> None:
        """Read from the browser again: the rest of the body, or its next request."""
        self._connection.upload_finished()

    def sink_lost(self, error: OSError) -> None:
        """Relay the response that the kernel holds: the app may have sent it before it closed."""
        upstream = self._connection.upstream
        if upstream is not None and not self._connection.is_splicing_response():
            upstream.fail(error)


class Download(_Body):
    """A response body, from the app to the browser."""

    __slots__ = ()

    def bytes_read(self, size: int) -> None:
        """Count nothing: the upstream side is not counted."""

    def bytes_written(self, size: int) -> None:
        """Count the bytes."""
        self._context.meters.http.down += size
        self._connection.activity.down += size

    def sink_blocked(self) -> None:
        """Watch the browser: one that reads nothing for long is reset."""
        self._context.closer.watch_writes(self._sink)

    def finished(self) -> None:
        """Read from the app again, or complete; an app that has sent more is not reused."""
        if self.body.done and has_unread(self._from):
            self._connection.upstream_closes = True
        self._connection.download_finished()

    def sink_lost(self, error: OSError) -> None:
        """Abort the downstream connection: its transport notices nothing by itself."""
        if self._connection.transport is not None:
            self._connection.transport.abort()


def has_unread(descriptor: int) -> bool:
    """Return whether a socket holds unread bytes."""
    (size,) = struct.unpack("i", fcntl.ioctl(descriptor, termios.FIONREAD, b"\0" * 4))
    return bool(size)
