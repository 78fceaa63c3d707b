"""Listening sockets, and an aiohttp application with deadlines on a listener of its own."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from time import perf_counter
from typing import Any, Final, cast

from aiohttp import web
from aiohttp.streams import EMPTY_PAYLOAD

BACKLOG: Final = 4096
"""The backlog of connections in the kernel, which limits it further (``net.core.somaxconn``)."""


def listen(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen at every address of *host*, all at one port.

    ``::`` accepts IPv4 as well, whatever the kernel's default is; other IPv6 addresses do not. With
    port 0 the first socket gets a free port, which the others use, too.

    Raises:
        OSError: If an address cannot be bound, with its name; no socket is left open.
    """
    taken: list[socket.socket] = []
    try:
        for family, address in _addresses(host, port):
            at = taken[0].getsockname()[1] if taken else port
            taken.append(_listen(family, (address, at), dual=host == "::"))
    except OSError as error:
        for sock in taken:
            sock.close()
        where = f"cannot listen at {host}:{port}: {error.strerror}"
        raise type(error)(error.errno, where) from error
    return taken


def _addresses(host: str, port: int) -> list[tuple[int, str]]:
    found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    # A name may have the same address twice in /etc/hosts.
    return list(dict.fromkeys((int(info[0]), str(info[4][0])) for info in found))


def _listen(family: int, address: tuple[str, int], *, dual: bool) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    try:
        sock.setblocking(False)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:
            sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, int(not dual))
        sock.bind(address)
        sock.listen(BACKLOG)
    except OSError:
        sock.close()
        raise
    return sock


HEAD_SECONDS: Final = 30.0
"""The deadline for the head of the first request on a connection."""
MOST_HEAD_BYTES: Final = 64 * 1024
"""A connection whose head is longer is closed; up to one more read (256 KiB) is taken before."""
SMALL_BYTES: Final = 512
"""So much input is parsed as soon as it arrives: some eighty of the smallest chunks or frames."""
SLICE_BYTES: Final = 4096
"""Other input waits and is parsed in slices; the smallest chunks or frames in one take 0.4 ms."""
SLICES_SECONDS: Final = 0.002
"""The time of all slices of a listener in one turn of the loop."""
WHOLE_BYTES: Final = 8192
"""So much of a head is parsed as soon as it arrives."""
LINGER_SECONDS: Final = 2.0
"""After a response that came before the end of its request, input is discarded for this time."""
STALLED_SECONDS: Final = 60.0
"""The deadline for a client to read a response, while writing is paused."""
MOST_WAITING: Final = 1024
"""The maximum number of idle connections of a listener; it is checked by :data:`LOOK_AFTER`."""
LOOK_AFTER: Final = 64
"""Idle connections are counted once in this many accepts, since a hub has thousands of others."""

_SERVER: Final = "fumarole"
_BACKLOG: Final = 128


@asynccontextmanager
async def listening(
    app: web.Application, address: tuple[str, int], *, shutdown_seconds: float = 2.0
) -> AsyncIterator[tuple[str, int]]:
    """Serve *app* at *address*; yield the bound address, which matters for port 0.

    - Responses do not name versions of software.
    - A malformed request gets a JSON error that does not quote it, since it may hold a token.
    - Content codings of request bodies are not decoded before the client is authenticated.
    - The head of the first request must arrive within :data:`HEAD_SECONDS`.
    - A head may have about :data:`MOST_HEAD_BYTES`.
    - Input is parsed in slices, so that no client delays the others, however small the parts of a
      body or the frames of a WebSocket are.
    - A response that comes before the end of its request closes the connection. The rest of the
      request is discarded and not parsed.
    - About :data:`MOST_WAITING` connections may be idle; beyond that the oldest are closed.
    - A client that does not read its response for :data:`STALLED_SECONDS` is disconnected.

    Raises:
        OSError: If the address cannot be bound.
    """
    app.on_response_prepare.append(hide_versions)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=shutdown_seconds)
    await runner.setup()
    try:
        async with _accepting(runner, address) as taken:
            yield taken
    finally:
        await runner.cleanup()


@asynccontextmanager
async def _accepting(
    runner: web.AppRunner, address: tuple[str, int]
) -> AsyncIterator[tuple[str, int]]:
    loop = asyncio.get_running_loop()
    manager = cast(web.Server, runner.server)  # there is one: the runner was set up
    accepted, slices = itertools.count(1), _Slices(loop)

    def connection() -> Connection:
        if next(accepted) % LOOK_AFTER == 0:
            _make_room(manager)
        # As the runner's own sites do, which cannot use another class.
        return Connection(
            manager,
            slices,
            loop=loop,
            access_log=None,  # none
            auto_decompress=False,
            lingering_time=LINGER_SECONDS,
        )

    servers: list[asyncio.Server] = []
    try:
        for sock in listen(*address):
            server = await loop.create_server(connection, sock=sock, backlog=_BACKLOG)
            servers.append(server)
        host, port = servers[0].sockets[0].getsockname()[:2]
        yield host, port
    finally:
        for server in servers:
            server.close()


def _make_room(manager: web.Server) -> None:
    connections = cast(list[Connection], manager.connections)  # oldest first
    if len(connections) > MOST_WAITING:
        for one in [one for one in connections if one.waits][:-MOST_WAITING]:
            one.abort()


class _Slices:
    """Parses the input that connections have waiting: one slice each, in turn."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._waiting: deque[Connection] = deque()

    def add(self, connection: Connection) -> None:
        if not self._waiting:
            self._loop.call_soon(self._run)
        self._waiting.append(connection)

    def _run(self) -> None:
        until = perf_counter() + SLICES_SECONDS
        try:
            while self._waiting and perf_counter() < until:
                connection = self._waiting.popleft()
                try:
                    if connection.parse_slice():
                        self._waiting.append(connection)
                except BaseException:
                    connection.abort()  # as the loop does if data_received() fails
                    raise
        finally:
            if self._waiting:
                self._loop.call_soon(self._run)


class Connection(web.RequestHandler):
    """A connection of a listener; ``request.protocol`` of its requests.

    Attributes:
        received_bytes: The number of bytes received so far, parsed or not.
    """

    __slots__ = (
        "_body", "_discards", "_head_bytes", "_head_timer", "_parsed", "_queued", "_slices",
        "_stall_timer", "_unparsed", "received_bytes",
    )  # fmt: skip

    def __init__(self, manager: web.Server, slices: _Slices, **options: Any) -> None:
        super().__init__(manager, **options)
        self._slices = slices

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Start the deadline for the first request; aiohttp itself waits for an hour."""
        super().connection_made(transport)
        self._head_timer = self._loop.call_later(HEAD_SECONDS, self._head_due)
        self._stall_timer: asyncio.TimerHandle | None = None
        self._head_bytes, self._body = 0, EMPTY_PAYLOAD
        self._unparsed, self._parsed, self._queued = b"", 0, False
        self._discards, self.received_bytes = False, 0

    def data_received(self, data: bytes) -> None:
        """Parse *data* in slices; aiohttp calls this without data to resume its parser."""
        self.received_bytes += len(data)
        if self._discards:
            return
        if not data:
            self._parse(data)
            return
        at = 0 if self._unparsed else self._parse_at_once(data)
        self._unparsed += data[at:]
        if self._unparsed:
            self._pause_transport_reading()
            self._queue()

    def _parse_at_once(self, data: bytes) -> int:
        """Parse the begin of *data* that need not wait; return its length.

        A head costs little, and its request should not wait for the bodies of others.
        """
        at, is_small = 0, len(data) <= SMALL_BYTES
        while at < min(len(data), WHOLE_BYTES) and not self._is_held:
            if not is_small and not self._is_in_head:
                break
            self._parse(data[at : at + SMALL_BYTES])
            at += SMALL_BYTES
        return at

    def parse_slice(self) -> bool:
        """Parse the next slice; return whether there is one more."""
        begin = self._parsed
        if begin < len(self._unparsed) and not self._is_held and self.transport is not None:
            self._parsed += SLICE_BYTES
            self._parse(self._unparsed[begin : self._parsed])
        if self._parsed >= len(self._unparsed):
            self._unparsed, self._parsed = b"", 0
        self._queued = bool(self._unparsed) and not self._is_held and self.transport is not None
        if not self._unparsed:
            self._resume_parsing()
        return self._queued

    def _queue(self) -> None:
        if not self._queued and not self._is_held:
            self._queued = True
            self._slices.add(self)

    @property
    def _is_in_head(self) -> bool:
        return self._body.is_eof() and not self._upgraded

    @property
    def _is_held(self) -> bool:
        """Whether no input is parsed: a body, messages or an upgrade wait for their handler."""
        awaits_upgrade = self._upgraded and self._payload_parser is None
        return self._reading_paused or self._buffer_paused or awaits_upgrade

    def _resume_parsing(self) -> None:
        if not self._is_held:
            self._resume_transport_reading()

    def _resume_transport_reading(self) -> None:
        if self._unparsed:
            self._queue()
        else:
            super()._resume_transport_reading()

    def _parse(self, data: bytes) -> None:
        """Bound the head: aiohttp bounds each field and their number, 1 MiB together."""
        received, is_head = self._request_count, self._is_in_head
        super().data_received(data)
        if self._request_count != received:
            self._head_bytes, self._body = 0, self._messages[-1][1]
        elif is_head:
            self._head_bytes += len(data)
            if self._head_bytes > MOST_HEAD_BYTES:
                self.abort()

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send *resp*; parse nothing more of a request that has not arrived completely."""
        if self._unparsed and not request.content.is_eof():
            await asyncio.sleep(0)  # The next slice may hold the rest.
        if not request.content.is_eof():
            resp.force_close()
            self._discards, self._unparsed, self._parsed = True, b"", 0
            self._resume_transport_reading()
        declines = self._upgraded and not self._messages and self._payload_parser is None
        if declines:
            # aiohttp would parse at once what followed the upgrade.
            self._unparsed = self._message_tail + self._unparsed[self._parsed :]
            self._message_tail, self._parsed = b"", 0
        sent = await super().finish_response(request, resp, start_time)
        if declines:
            self._resume_parsing()
        return sent

    def set_parser(self, *parser: Any, **options: Any) -> None:
        """Parse the messages that followed an accepted upgrade."""
        super().set_parser(*parser, **options)
        self._resume_parsing()

    @property
    def waits(self) -> bool:
        """Whether no request is under way."""
        return not self._request_in_progress and not self._messages

    def _head_due(self) -> None:
        if not self._request_count:
            self.abort()

    def pause_writing(self) -> None:
        """Start the write-stall deadline."""
        super().pause_writing()
        self._stall_timer = self._loop.call_later(STALLED_SECONDS, self.abort)

    def resume_writing(self) -> None:
        """Stop the write-stall deadline."""
        super().resume_writing()
        self._stop_stall_timer()

    def abort(self) -> None:
        """Close the connection at once; drop unsent data."""
        if self.transport is not None:
            self.transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Stop all timers."""
        self._head_timer.cancel()
        self._stop_stall_timer()
        super().connection_lost(exc)

    def _stop_stall_timer(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """Respond to a malformed request, and to an exception in a handler."""
        super().handle_error(request, status, exc, message)
        response = web.json_response(refusal(status), status=status, headers={"Server": _SERVER})
        response.force_close()
        return response


def refusal(status: int) -> dict[str, str]:
    """Return the body of a response with no more information than its *status*."""
    phrase = HTTPStatus(status).phrase
    return {"code": phrase.lower().replace(" ", "_"), "message": f"{phrase}."}


async def hide_versions(_request: web.Request, response: web.StreamResponse) -> None:
    """Set ``Server`` to the product, since aiohttp's default names its and Python's versions.

    For an application's ``on_response_prepare``.
    """
    response.headers["Server"] = _SERVER
