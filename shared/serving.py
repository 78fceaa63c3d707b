"""Serving an aiohttp application on a listener of its own."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from shared.listening import listen


@asynccontextmanager
async def listening(
    app: web.Application, address: tuple[str, int], *, shutdown_seconds: float = 2.0
) -> AsyncIterator[tuple[str, int]]:
    """Serve *app* at *address*; give the address that was taken, for port 0.

    Its answers do not say which versions of what serve them.

    Raises:
        OSError: If the address cannot be taken.
    """
    app.on_response_prepare.append(_unversioned)
    runner = web.AppRunner(app, access_log=None, shutdown_timeout=shutdown_seconds)
    await runner.setup()
    try:
        for sock in listen(*address):
            await web.SockSite(runner, sock).start()
        host, port = runner.addresses[0][:2]
        yield host, port
    finally:
        await runner.cleanup()


async def _unversioned(_request: web.Request, answer: web.StreamResponse) -> None:
    answer.headers["Server"] = "fumarole"
