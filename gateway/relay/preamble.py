"""Who is behind a trusted proxy that passes bytes on: asked before anything else is read.

Only what belongs to the PROXY header is taken from the socket. What follows it, a TLS handshake
perhaps, is left where it is for whoever speaks with the browser.
"""

from __future__ import annotations

import asyncio
import socket

from gateway.core.limits.proxy_header import FIXED_BYTES, SIGNATURE, remaining_bytes, source_address

_FIRST = SIGNATURE[:1]


async def read_preamble(
    sock: socket.socket, *, loop: asyncio.AbstractEventLoop, idle_seconds: float, seconds: float
) -> str | None:
    """Return the address of the client whose connection *sock* is; None for the proxy's own.

    A proxy that speaks HTTP sends no such header, and says in a field of each request for whom
    it asks: no request, and no TLS handshake, begins as the header does.

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
    if first != _FIRST:
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
