"""Listening sockets, and an aiohttp application on a listener of its own."""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from http import HTTPStatus
from typing import Final, cast

from aiohttp import web

BACKLOG: Final = 4096
"""Connections that wait in the kernel to be accepted; the kernel lowers it to its own limit."""


def listen(host: str, port: int) -> list[socket.socket]:
    """Return sockets that listen at every address of *host*, all at one port.

    ``::`` takes IPv4 as well, whatever the kernel's default is; any other IPv6 address is only
    itself. With port 0 the first socket is given a free one, which the others take, too.

    Raises:
        OSError: If an address cannot be had, with its name; none is taken then.
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
    # A name can stand twice in /etc/hosts.
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
"""For the head of a connection's first request to come."""
STALLED_SECONDS: Final = 60.0
"""For a client to take what waits for it."""
MOST_WAITING: Final = 1024
"""Connections of a listener that no request is under way on, and as many as come meanwhile."""
LOOK_AFTER: Final = 64
"""Connections, for those to be counted once more: a hub has thousands that do not wait."""

_SERVER: Final = "fumarole"
_BACKLOG: Final = 128


@asynccontextmanager
async def listening(
    app: web.Application, address: tuple[str, int], *, shutdown_seconds: float = 2.0
) -> AsyncIterator[tuple[str, int]]:
    """Serve *app* at *address*; give the address that was taken, for port 0.

    Its answers do not say which versions of what serve them. What is no HTTP is refused as
    everything else is, by a JSON object, and not quoted: it may hold a token. Bodies are handed on
    as they are sent: no content coding is undone before it is known who asks. A connection without
    a request has :data:`HEAD_SECONDS` for the first one's head. Of those that wait there are about
    :data:`MOST_WAITING`; the oldest make room. Who takes no response for :data:`STALLED_SECONDS` is
    cut off.

    Raises:
        OSError: If the address cannot be taken.
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
    accepted = itertools.count(1)

    def connection() -> _Connection:
        if next(accepted) % LOOK_AFTER == 0:
            _make_room(manager)
        # What the runner's own sites make too, but of a class that cannot be chosen there.
        return _Connection(
            manager,
            loop=loop,
            access_log=None,  # type: ignore[arg-type]  # none
            auto_decompress=False,
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
    connections = cast(list[_Connection], manager.connections)  # oldest first
    if len(connections) > MOST_WAITING:
        for one in [one for one in connections if one.waits][:-MOST_WAITING]:
            one.abort()


class _Connection(web.RequestHandler):
    __slots__ = ("_head_timer", "_stall_timer")

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for a request, but not for ever: aiohttp does for an hour."""
        super().connection_made(transport)
        self._head_timer = self._loop.call_later(HEAD_SECONDS, self._head_due)
        self._stall_timer: asyncio.TimerHandle | None = None

    @property
    def waits(self) -> bool:
        """Whether no request is under way."""
        return not self._request_in_progress and not self._messages

    def _head_due(self) -> None:
        if not self._request_count:
            self.abort()

    def pause_writing(self) -> None:
        """The client takes nothing for the moment."""
        super().pause_writing()
        self._stall_timer = self._loop.call_later(STALLED_SECONDS, self.abort)

    def resume_writing(self) -> None:
        """The client has taken what waited for it."""
        super().resume_writing()
        self._stop_stall_timer()

    def abort(self) -> None:
        """End it at once, with whatever has not been sent."""
        if self.transport is not None:
            self.transport.abort()

    def connection_lost(self, exc: BaseException | None) -> None:
        """Let go of everything."""
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
        """Answer what no handler does: what could not be read, or broke a handler."""
        super().handle_error(request, status, exc, message)
        answer = web.json_response(refusal(status), status=status, headers={"Server": _SERVER})
        answer.force_close()
        return answer


def refusal(status: int) -> dict[str, str]:
    """Return the body of an answer that says no more than its *status* does."""
    phrase = HTTPStatus(status).phrase
    return {"code": phrase.lower().replace(" ", "_"), "message": f"{phrase}."}


async def hide_versions(_request: web.Request, answer: web.StreamResponse) -> None:
    """Name the product alone: by itself aiohttp says which versions of it and of Python are here.

    For an application's ``on_response_prepare``.
    """
    answer.headers["Server"] = _SERVER
