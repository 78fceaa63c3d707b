"""Accepting downstream connections, with limits per turn and a pause without descriptors.

Connections are accepted here and not by the loop's own server, for two reasons. The PROXY header
has to be read before TLS starts. And without descriptors a loop's server accepts and closes at once
(uvloop), or stops for a second (asyncio). Here accepting pauses while descriptors remain for open
connections, and the kernel queues new ones.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import os
import socket
import ssl
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from time import perf_counter
from typing import Any, Final

from gateway.core.limits.addresses import (
    FIXED_BYTES,
    SIGNATURE,
    BadProxyHeader,
    is_within,
    remaining_bytes,
    source_address,
    unmapped,
)
from gateway.relay.ending.closer import SHUTDOWN_SECONDS
from gateway.relay.gateway import DataPath
from gateway.relay.http.downstream import DownstreamConnection
from gateway.relay.tls_records import connect_tls
from gateway.relay.transports import descriptor_ceiling, keep_accepted_alive, keepalive_delays

log = logging.getLogger(__name__)

PAUSE_SECONDS: Final = 0.1
AT_ONCE: Final = 128
"""The maximum number accepted in one turn of the loop."""
ACCEPT_SECONDS: Final = 0.0005
"""The maximum time for that, except for the last accept: each takes about 50 microseconds."""
AT_THE_END: Final = 1024
"""The maximum number accepted when the listener closes."""
_HOLD_SECONDS: Final = 0.005
_AFTER_HOLD: Final = 16
"""Accepted after having left connections to other processes: they may be unable to accept."""
_SHORT_OF: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_LOG_SECONDS: Final = 10.0


_FAMILY: Final[Any] = socket.SocketType.family
_TYPE: Final[Any] = socket.SocketType.type
_ACCEPT: Final[Any] = socket.SocketType._accept  # type: ignore[attr-defined]  # accept's own call


class PlainSocket(socket.socket):
    """A socket whose ``family`` and ``type`` are integers.

    Python's sockets create an enumeration member on each read of them: five times for a connection
    that is accepted and passed to a loop. That costs more than the kernel's part.
    """

    __slots__ = ()

    family = _FAMILY
    type = _TYPE


def accept(listening: socket.socket) -> tuple[PlainSocket, Any]:
    """Return the next connection of *listening*, and the address of its peer.

    Raises:
        BlockingIOError: If none is waiting.
        OSError: As ``socket.accept`` does.
    """
    descriptor, address = _ACCEPT(listening)
    family, kind = _FAMILY.__get__(listening), _TYPE.__get__(listening)
    return PlainSocket(family, kind, listening.proto, fileno=descriptor), address


class Listener:
    """Accepts connections for *path* until it is closed.

    If several processes accept from the same sockets, each accepts *at_once* in one turn. While a
    process is *over* its share it leaves new connections to the others for a moment.

    Args:
        path: The data path that serves them.
        sockets: Bound and listening; closed with the listener.
        tls: Returns the TLS context for the next connection, None for plain TCP.
        descriptors: Accepting pauses when this many descriptors, less a reserve, are open. None for
            the limit of the process.
        at_once: How many are accepted in one turn.
        over: Returns whether another process should accept the next connection.
        held: Connections wait in the kernel until :meth:`begin`.
    """

    def __init__(
        self,
        path: DataPath,
        sockets: Sequence[socket.socket],
        *,
        tls: Callable[[], ssl.SSLContext | None] = lambda: None,
        descriptors: int | None = None,
        at_once: int = AT_ONCE,
        over: Callable[[], bool] = lambda: False,
        held: bool = False,
    ) -> None:
        self._path = path
        self._loop = path.loop
        self.sockets = tuple(sockets)
        self._tls = tls
        self._at_once = at_once
        self._over = over
        self._ceiling = descriptor_ceiling(descriptors)
        self._timer: asyncio.TimerHandle | None = None
        self._logged_at = float("-inf")
        self._closed = False
        stall_seconds = path.limits.write_stall_seconds
        self._probed_after = keepalive_delays(stall_seconds=stall_seconds)
        keep_accepted_alive(self.sockets, stall_seconds=stall_seconds)
        for listening in self.sockets:
            listening.setblocking(False)
        if not held:
            self._resume()

    def begin(self) -> None:
        """Accept connections, waiting ones first; no effect after :meth:`close`."""
        if not self._closed:
            self._resume()

    @property
    def address(self) -> tuple[str, int]:
        """The address of the first socket."""
        host, port = self.sockets[0].getsockname()[:2]
        return host, port

    def close(self) -> None:
        """Accept the connections that wait in the kernel, and no more.

        The kernel resets connections in its queue when their socket closes, although their clients
        consider them open and may have sent a request.
        """
        if self._closed:
            return
        self._closed = True
        for listening in self.sockets:
            self._accept_some(listening, AT_THE_END)
        self._pause()
        for listening in self.sockets:
            listening.close()

    # Pausing

    def _pause(self) -> None:
        # A timer of an earlier pause must not end this one.
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for listening in self.sockets:
            self._loop.remove_reader(listening)

    def _hold_back(self) -> None:
        self._pause()
        self._timer = self._loop.call_later(_HOLD_SECONDS, self._go_on)

    def _go_on(self) -> None:
        self._timer = None
        self._resume()
        for listening in self.sockets:
            if self._timer is None:
                self._accept_some(listening, _AFTER_HOLD)

    def _resume(self) -> None:
        for listening in self.sockets:
            self._loop.add_reader(listening, self._accept, listening)

    def _wait_for_descriptors(self) -> None:
        self._pause()
        self._path.meters.accept_pauses += 1
        now = self._loop.time()
        if now - self._logged_at >= _LOG_SECONDS:
            self._logged_at = now
            log.warning("accepting pauses: no descriptors are left")
        self._look_later()

    def _look_later(self) -> None:
        self._path.evict_idle(self._at_once)
        self._timer = self._loop.call_later(PAUSE_SECONDS, self._look)

    def _look(self) -> None:
        """Resume once descriptors are free: the kernel assigns the lowest free one."""
        try:
            lowest = os.dup(self.sockets[0].fileno())
        except OSError:
            lowest = self._ceiling
        else:
            os.close(lowest)
        if lowest < self._ceiling:
            self._timer = None
            self._resume()
        else:
            self._look_later()

    # Accepting

    def _accept(self, listening: socket.socket) -> None:
        if self._over():
            self._hold_back()
        else:
            until = perf_counter() + ACCEPT_SECONDS
            self._accept_some(listening, self._at_once, until=until)

    def _accept_some(self, listening: socket.socket, most: int, *, until: float = math.inf) -> None:
        for _ in range(most):
            try:
                sock, address = accept(listening)
            except BlockingIOError:
                return
            except OSError as error:
                if error.errno in _SHORT_OF:
                    self._wait_for_descriptors()
                    return
                continue  # it was closed before it was accepted
            descriptor = sock.fileno()
            self._path.turns.note_descriptor(descriptor)
            self._begin(sock, unmapped(str(address[0])))
            if descriptor >= self._ceiling:
                self._wait_for_descriptors()
                return
            if perf_counter() >= until:
                return  # yield to other connections; the loop reports waiting ones next turn

    def _begin(self, sock: socket.socket, peer: str) -> None:
        """Pass the connection to its protocol, at once if its client is known."""
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, next(self._probed_after))
        except OSError as error:
            self._arrival_failed(sock, peer, None, error)
            return
        trusted = self._path.site.trusted_proxies
        if trusted and is_within(peer, trusted):
            failed = partial(self._arrival_failed, sock, peer, None)
            self._path.arriving.spawn(self._read_proxy_header(sock, peer), failed=failed)
        else:
            self._serve(sock, peer)

    def _serve(self, sock: socket.socket, client: str) -> None:
        # It counts from here on: a handshake uses the quota too.
        connection = self._path.accept(client)
        if connection is None:
            sock.close()
        else:
            failed = partial(self._arrival_failed, sock, client, connection)
            task = self._path.arriving.spawn(self._connect(sock, connection), failed=failed)
            connection.note_arrival(task)

    def _arrival_failed(
        self,
        sock: socket.socket,
        peer: str,
        connection: DownstreamConnection | None,
        error: BaseException,
    ) -> None:
        sock.close()
        if connection is not None:
            connection.task = None  # its error refers to it: a cycle that keeps TLS buffers
            self._path.connection_quota.remove(connection)
        if isinstance(error, OSError | BadProxyHeader):
            self._path.meters.failed_arrivals += 1
            log.debug("a connection came to nothing", extra={"peer": peer, "why": str(error)})
        elif not isinstance(error, asyncio.CancelledError):
            log.error("a connection could not be taken", exc_info=error)

    async def _read_proxy_header(self, sock: socket.socket, peer: str) -> None:
        """Read the client's address from the proxy at *peer*."""
        sock.setblocking(False)
        limits = self._path.limits
        client = await read_proxy_header(
            sock,
            loop=self._loop,
            idle_seconds=limits.idle_seconds,
            seconds=limits.head_seconds,
        )
        self._serve(sock, client or peer)

    def _connect(
        self, sock: socket.socket, connection: DownstreamConnection
    ) -> Coroutine[Any, Any, object]:
        context = self._tls()
        if context is None:
            return self._loop.connect_accepted_socket(lambda: connection, sock)
        return connect_tls(
            connection,
            context,
            lambda factory: self._loop.connect_accepted_socket(factory, sock),
            server_side=True,
            ssl_handshake_timeout=self._path.limits.head_seconds,
            ssl_shutdown_timeout=SHUTDOWN_SECONDS,
        )


async def read_proxy_header(
    sock: socket.socket, *, loop: asyncio.AbstractEventLoop, idle_seconds: float, seconds: float
) -> str | None:
    """Return the address of the client behind *sock*; None if it is the proxy itself.

    Only the PROXY header is read from the socket: later bytes, such as a TLS handshake, remain for
    the protocol. A proxy that speaks HTTP sends no such header and names the client in a field of
    each request. No request and no TLS handshake starts like the header.

    Args:
        sock: A non-blocking connection of a trusted proxy.
        loop: The running loop.
        idle_seconds: The deadline for the first byte: proxies connect ahead of requests.
        seconds: The deadline from there to the end of the header.

    Raises:
        BadProxyHeader: For a header that cannot be parsed.
        OSError: If the proxy closes the connection or is too slow.
    """
    async with asyncio.timeout(idle_seconds):
        await _readable(sock, loop)
    first = sock.recv(1, socket.MSG_PEEK)
    if first != SIGNATURE[:1]:
        return None
    async with asyncio.timeout(seconds):
        fixed = await _exactly(sock, FIXED_BYTES, loop)
        rest = await _exactly(sock, remaining_bytes(fixed), loop)
    return source_address(fixed, rest)


async def _readable(sock: socket.socket, loop: asyncio.AbstractEventLoop) -> None:
    ready: asyncio.Future[None] = loop.create_future()

    def arrived() -> None:
        if not ready.done():
            ready.set_result(None)

    loop.add_reader(sock, arrived)
    try:
        await ready
    finally:
        loop.remove_reader(sock)


async def _exactly(sock: socket.socket, size: int, loop: asyncio.AbstractEventLoop) -> bytes:
    data = b""
    while len(data) < size:
        piece = await loop.sock_recv(sock, size - len(data))
        if not piece:
            raise ConnectionResetError("the proxy went away")
        data += piece
    return data
