"""Accepting browsers' connections: from whom, how many at once, and when to wait with it.

Connections are accepted here and not by the loop's own server, for two reasons. Who is behind a
proxy has to be read before TLS begins. And when descriptors run out, a loop's server accepts and
closes what comes at once (uvloop), or stops for a whole second (asyncio); here accepting pauses
while there are still some left for what is open, and the kernel keeps those who come waiting.
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
from typing import TYPE_CHECKING, Any, Final

from gateway.core.limits.addresses import is_within, unmapped
from gateway.core.limits.proxy_header import (
    FIXED_BYTES,
    SIGNATURE,
    BadProxyHeader,
    remaining_bytes,
    source_address,
)
from gateway.relay.ending.ends import SHUTDOWN_SECONDS
from gateway.relay.ending.kernel import keep_accepted_alive, probed_after
from gateway.relay.plain_sockets import accept
from gateway.relay.tls_records import secure
from gateway.relay.transports import ceiling

if TYPE_CHECKING:
    from gateway.relay.gateway import DataPath
    from gateway.relay.http.downstream import DownstreamConnection

log = logging.getLogger(__name__)

PAUSE_SECONDS: Final = 0.1
AT_ONCE: Final = 128
"""Accepted before the loop turns, at most."""
ACCEPT_SECONDS: Final = 0.0005
"""And for how long, but for the last of them: each takes some 50 microseconds."""
AT_THE_END: Final = 1024
"""Accepted when the listener closes."""
_HOLD_SECONDS: Final = 0.005
_AFTER_HOLD: Final = 16
"""Accepted after having held back: nobody else did, for whatever reason."""
_SHORT_OF: Final = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
_LOG_SECONDS: Final = 10.0


class Listener:
    """Accepts connections for *path* until it is closed.

    Where several processes accept from the same sockets, each takes *at_once* before its loop
    turns, and leaves the next ones to the others for a moment while it is *over* its share.

    Args:
        path: What serves them.
        sockets: Bound and listening; closed with this.
        tls: Returns the context that the next connection is secured with, None for plain ones.
        descriptors: Accepting pauses while this many are open, less a reserve; None for what the
            process may have.
        at_once: How many are accepted before the loop turns.
        over: Says whether the next one should be left to another process.
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
        self._loop = path.parts.loop
        self.sockets = tuple(sockets)
        self._tls = tls
        self._at_once = at_once
        self._over = over
        self._ceiling = ceiling(descriptors)
        self._timer: asyncio.TimerHandle | None = None
        self._logged_at = float("-inf")
        self._closed = False
        stall_seconds = path.parts.limits.write_stall_seconds
        self._probed_after = probed_after(stall_seconds=stall_seconds)
        keep_accepted_alive(self.sockets, stall_seconds=stall_seconds)
        for listening in self.sockets:
            listening.setblocking(False)
        if not held:
            self._resume()

    def begin(self) -> None:
        """Accept connections, those that have waited first; no more once it is closed."""
        if not self._closed:
            self._resume()

    @property
    def address(self) -> tuple[str, int]:
        """Where the first of the sockets listens."""
        host, port = self.sockets[0].getsockname()[:2]
        return host, port

    def close(self) -> None:
        """Accept what waits in the kernel, and nothing after it.

        The kernel resets connections that nobody has accepted when their socket closes, though
        their clients take them for open and may have sent a request.
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
        # Whatever was to end another pause, of another socket, ends this one no more.
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
        """Go on when there are descriptors again: the kernel gives the lowest that is free."""
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
                continue  # it has gone before it was accepted
            descriptor = sock.fileno()
            self._path.turns.accepted(descriptor)
            self._begin(sock, unmapped(str(address[0])))
            if descriptor >= self._ceiling:
                self._wait_for_descriptors()
                return
            if perf_counter() >= until:
                return  # the others first; the loop tells of those who wait in its next turn

    def _begin(self, sock: socket.socket, peer: str) -> None:
        """Hand the connection to its protocol, at once where it is known whose it is."""
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, next(self._probed_after))
        except OSError as error:
            self._came_to_nothing(sock, peer, None, error)
            return
        trusted = self._path.parts.site.trusted_proxies
        if trusted and is_within(peer, trusted):
            failed = partial(self._came_to_nothing, sock, peer, None)
            self._path.arriving.begin(self._ask_proxy(sock, peer), failed=failed)
        else:
            self._welcome(sock, peer)

    def _welcome(self, sock: socket.socket, client: str) -> None:
        # It has its place from here on: a handshake holds one as well.
        connection = self._path.welcome(client)
        if connection is None:
            sock.close()
        else:
            failed = partial(self._came_to_nothing, sock, client, connection)
            task = self._path.arriving.begin(self._connect(sock, connection), failed=failed)
            connection.arrives(task)

    def _came_to_nothing(
        self,
        sock: socket.socket,
        peer: str,
        connection: DownstreamConnection | None,
        error: BaseException,
    ) -> None:
        sock.close()
        if connection is not None:
            connection.task = None  # its error knows it: a cycle, with the buffers of TLS in it
            self._path.connection_quota.remove(connection)
        if isinstance(error, OSError | BadProxyHeader):
            self._path.meters.failed_arrivals += 1
            log.debug("a connection came to nothing", extra={"peer": peer, "why": str(error)})
        elif not isinstance(error, asyncio.CancelledError):
            log.error("a connection could not be taken", exc_info=error)

    async def _ask_proxy(self, sock: socket.socket, peer: str) -> None:
        """Learn from the proxy at *peer* whose connection it is."""
        sock.setblocking(False)
        limits = self._path.parts.limits
        client = await read_preamble(
            sock,
            loop=self._loop,
            idle_seconds=limits.idle_seconds,
            seconds=limits.head_seconds,
        )
        self._welcome(sock, client or peer)

    def _connect(
        self, sock: socket.socket, connection: DownstreamConnection
    ) -> Coroutine[Any, Any, object]:
        context = self._tls()
        if context is None:
            return self._loop.connect_accepted_socket(lambda: connection, sock)
        return secure(
            connection,
            context,
            lambda factory: self._loop.connect_accepted_socket(factory, sock),
            server_side=True,
            ssl_handshake_timeout=self._path.parts.limits.head_seconds,
            ssl_shutdown_timeout=SHUTDOWN_SECONDS,
        )


async def read_preamble(
    sock: socket.socket, *, loop: asyncio.AbstractEventLoop, idle_seconds: float, seconds: float
) -> str | None:
    """Return the address of the client whose connection *sock* is; None for the proxy's own.

    Only what belongs to the PROXY header is taken from the socket: what follows it, a TLS handshake
    perhaps, is left for whoever speaks with the browser. A proxy that speaks HTTP sends no such
    header, and says in a field of each request for whom it asks: no request, and no TLS handshake,
    begins as the header does.

    Args:
        sock: A connection of a trusted proxy, non-blocking.
        loop: The running loop.
        idle_seconds: For the first byte: proxies connect before they are asked for anything.
        seconds: From there to the header's end.

    Raises:
        BadProxyHeader: For a header that is not to be understood.
        OSError: If the proxy goes away, or is too slow.
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
