"""Large bodies, whose rest the kernel moves from socket to socket (``splice(2)``).

Python does not see these bytes. The transports keep their sockets: the source's is paused, and the
sink's has an empty write buffer. A body that is handed back continues as any other.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import struct
import termios
from abc import abstractmethod
from collections.abc import Mapping
from enum import IntEnum
from typing import Final

from gateway.core.access.access_right import ActivityCounter
from gateway.core.downstream.connection import Connection
from gateway.core.http.framing import Body, LengthBody
from gateway.relay.context import Context
from gateway.relay.http.pipes import Pipe
from gateway.relay.http.upstream import UpstreamConnection
from gateway.relay.transports import descriptor_of, is_tls, pause_reading

_FLAGS: Final = os.SPLICE_F_NONBLOCK | os.SPLICE_F_MOVE
_ROUNDS: Final = 4
"""Full pipes moved in one turn of the loop: about a quarter of a millisecond."""


class SpliceState(IntEnum):
    """The state of a spliced body."""

    DRAINING = 0
    """Bytes of the body that were read before are still being written."""
    FLOWING = 1
    """Waits for the source; the pipe is empty, or there is none."""
    BLOCKED = 2
    """Waits for the sink; the pipe holds bytes."""
    OVER = 3
    """Nothing is moved any more."""


class SpliceEvent(IntEnum):
    """What happened to it, in the past tense."""

    DRAINED = 0
    """The sink's write buffer is empty."""
    BLOCKED = 1
    """The sink did not accept all bytes."""
    UNBLOCKED = 2
    """The sink has accepted the rest."""
    PASSED = 3
    """The sink has accepted the body's last byte."""
    HANDED_BACK = 4
    """There is no pipe, or the source has ended: the transports continue."""
    LOST = 5
    """A connection is closed, or its access right has ended."""


S, E = SpliceState, SpliceEvent

NEXT: Final[Mapping[tuple[SpliceState, SpliceEvent], SpliceState]] = {
    (S.DRAINING, E.DRAINED): S.FLOWING,
    (S.DRAINING, E.LOST): S.OVER,
    (S.FLOWING, E.BLOCKED): S.BLOCKED,
    (S.FLOWING, E.PASSED): S.OVER,
    (S.FLOWING, E.HANDED_BACK): S.OVER,
    (S.FLOWING, E.LOST): S.OVER,
    (S.BLOCKED, E.UNBLOCKED): S.FLOWING,
    (S.BLOCKED, E.PASSED): S.OVER,
    (S.BLOCKED, E.LOST): S.OVER,
}
"""The only source of state changes; an event that a state does not list is a bug of the gateway and
raises KeyError."""


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
        large = _large(self, self.request_body)
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
        if self.request_body.done:
            self.request_sent()
        else:
            self.sync_reading()

    def splice_response(self) -> None:
        """Let the kernel move the rest of a large response body, if possible.

        Not while a transport writes the request body: if that fails, the upstream connection closes
        with the bytes that it still holds.
        """
        large = None
        if self.request_body.done or self.upload is not None:
            large = _large(self, self.response_body)
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
        if self.response_body is not None and self.response_body.done:
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
    least = connection.context.limits.splice_bytes
    if not isinstance(body, LengthBody) or not body.remaining >= least > 0:
        return None
    upstream = connection.upstream
    browser, app = connection.transport, upstream.transport if upstream is not None else None
    if browser is None or app is None:
        return None
    return (body, browser, app) if _is_plain(browser) and _is_plain(app) else None


def _is_plain(transport: asyncio.Transport) -> bool:
    return not (transport.is_closing() or is_tls(transport)) and descriptor_of(transport) >= 0


class Splice:
    """Moves *body* of *connection* from *source* to *sink*.

    Args:
        connection: The downstream connection; it has pipes, readiness and limits.
        body: The remaining bytes are moved, and counted as the sink accepts them.
        source: A plain TCP transport that has delivered everything it read.
        sink: Another one; its write buffer is sent first.
    """

    def __init__(
        self,
        connection: SplicingConnection,
        body: LengthBody,
        source: asyncio.Transport,
        sink: asyncio.Transport,
    ) -> None:
        self._connection = connection
        self.body = body
        self._sink = sink
        self._from = descriptor_of(source)
        self._to = descriptor_of(sink)
        self._pipe: Pipe | None = None
        self.in_pipe = 0
        """Bytes in the pipe."""
        self.state = SpliceState.DRAINING
        pause_reading(source)

    @abstractmethod
    def count(self, size: int) -> None:
        """Count *size* bytes that were read from the source."""

    @abstractmethod
    def sink_blocked(self) -> None:
        """Watch the sink until the splice ends; it may block a thousand times."""

    @abstractmethod
    def finished(self) -> None:
        """Continue: the body is complete, or its rest is relayed as any other body."""

    @abstractmethod
    def sink_lost(self, error: OSError) -> None:
        """The sink accepts no more bytes."""

    # Called by the owner

    def begin(self) -> None:
        """Have the sink's write buffer sent first."""
        # A high-water mark of 0 makes it report when the buffer is empty, and pause at once if it
        # is not.
        self._sink.set_write_buffer_limits(high=0)
        if not self._sink.get_write_buffer_size():
            self.sink_drained()

    def sink_drained(self) -> None:
        """Start moving: the sink's transport has written everything."""
        if self.state is not SpliceState.DRAINING:
            return
        self._sink.set_write_buffer_limits(high=self._connection.context.limits.write_high_bytes)
        self.state = NEXT[self.state, SpliceEvent.DRAINED]
        self._connection.context.readiness.readable(self._from, self._flow)

    @property
    def blocked(self) -> bool:
        """Whether the sink is waited for."""
        return self.state is not SpliceState.FLOWING

    def stop(self) -> None:
        """Stop moving; bytes in the pipe are lost."""
        if self.state is not SpliceState.OVER:
            self._end(SpliceEvent.LOST)

    # Moving

    def _flow(self) -> None:
        """Move the source's bytes through a pipe that is empty before and after."""
        pipe = self._connection.context.pipes.take()
        if pipe is None:
            self._hand_back()
            return
        self._pipe = pipe
        for _ in range(_ROUNDS):
            if not self._fill(pipe) or not self._empty(pipe):
                break
        if self._pipe is not None and not self.in_pipe:
            self._pipe = None
            self._connection.context.pipes.give(pipe)

    def _fill(self, pipe: Pipe) -> bool:
        """Fill *pipe* from the source; return False if no bytes were read."""
        wanted = min(self.body.remaining, pipe.size)
        try:
            size = os.splice(self._from, pipe.write_end, wanted, flags=_FLAGS)
        except BlockingIOError:
            return False
        except OSError:
            size = 0
        if not size:
            # The transport gets the same result when it reads: the end, a reset, or no splice(2).
            self._hand_back()
            return False
        self.in_pipe = size
        self.count(size)
        return True

    def _empty(self, pipe: Pipe) -> bool:
        """Empty *pipe* into the sink; return True if the source may have more."""
        if not self._drain(pipe):
            return False
        if self.in_pipe:
            self.state = NEXT[self.state, SpliceEvent.BLOCKED]
            self.sink_blocked()
            self._connection.context.readiness.readable(self._from, None)
            self._connection.context.readiness.writable(self._to, self._go_on)
            return False
        if self.body.done:
            self._end(SpliceEvent.PASSED)
            self.finished()
            return False
        return True

    def _go_on(self) -> None:
        """Continue: the sink accepts bytes again."""
        pipe = self._pipe
        if pipe is None or not self._drain(pipe) or self.in_pipe:
            return
        if self.body.done:
            self._end(SpliceEvent.PASSED)
            self.finished()
            return
        self.state = NEXT[self.state, SpliceEvent.UNBLOCKED]
        self._connection.context.readiness.writable(self._to, None)
        self._pipe = None
        self._connection.context.pipes.give(pipe)
        self._connection.context.readiness.readable(self._from, self._flow)

    def _drain(self, pipe: Pipe) -> bool:
        """Give the sink what it accepts; return False if it is lost."""
        try:
            size = os.splice(pipe.read_end, self._to, self.in_pipe, flags=_FLAGS)
        except BlockingIOError:
            return True
        except OSError as error:
            self._end(SpliceEvent.LOST)
            self.sink_lost(error)
            return False
        self.in_pipe -= size
        self.body.advance(size)
        return True

    # Ending

    def _hand_back(self) -> None:
        self._end(SpliceEvent.HANDED_BACK)
        self.finished()

    def _end(self, event: SpliceEvent) -> None:
        before, self.state = self.state, NEXT[self.state, event]
        if before is SpliceState.FLOWING:
            self._connection.context.readiness.readable(self._from, None)
        elif before is SpliceState.BLOCKED:
            self._connection.context.readiness.writable(self._to, None)
        if before in (SpliceState.FLOWING, SpliceState.BLOCKED):
            self._connection.context.closer.stalls.forget(self._sink)
        pipe, self._pipe = self._pipe, None
        if pipe is not None:
            pipes = self._connection.context.pipes
            (pipes.drop if self.in_pipe else pipes.give)(pipe)


class Upload(Splice):
    """A request body, from the browser to the app."""

    def count(self, size: int) -> None:
        """Count the bytes, also for the speed of the upload."""
        self._connection.uploaded += size
        self._connection.context.meters.http.up += size
        self._connection.activity.up += size

    def sink_blocked(self) -> None:
        """Watch the app: one that reads nothing for long is given up."""
        connection = self._connection
        connection.context.closer.watch_writes(self._sink, connection.upstream_stalled, app=True)

    def finished(self) -> None:
        """Read from the browser again: the rest of the body, or its next request."""
        self._connection.upload_finished()

    def sink_lost(self, error: OSError) -> None:
        """Relay the response that the kernel holds: the app may have sent it before it closed."""
        upstream = self._connection.upstream
        if upstream is not None and not self._connection.is_splicing_response():
            upstream.fail(error)


class Download(Splice):
    """A response body, from the app to the browser."""

    def count(self, size: int) -> None:
        """Count the bytes."""
        self._connection.context.meters.http.down += size
        self._connection.activity.down += size

    def sink_blocked(self) -> None:
        """Watch the browser: one that reads nothing for long is reset."""
        self._connection.context.closer.watch_writes(self._sink)

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
