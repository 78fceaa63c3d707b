"""Listening sockets, and an aiohttp application on a listener of its own."""

from __future__ import annotations

import asyncio
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


_SERVER: Final = "fumarole"
_BACKLOG: Final = 128


@asynccontextmanager
async def listening(
    app: web.Application, address: tuple[str, int], *, shutdown_seconds: float = 2.0
) -> AsyncIterator[tuple[str, int]]:
    """Serve *app* at *address*; give the address that was taken, for port 0.

    Its answers do not say which versions of what serve them. What is no HTTP is refused as
    everything else is, by a JSON object, and not quoted: it may hold a token. Bodies are handed on
    as they are sent: no content coding is undone before it is known who asks.

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

    def connection() -> _Connection:
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


class _Connection(web.RequestHandler):
    __slots__ = ()

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
