"""terminado, as in a notebook server: ``python -m benchmarks.peers.terminado_server PORT``."""

from __future__ import annotations

import asyncio
import sys

import tornado.web
from terminado.management import UniqueTermManager
from terminado.websocket import TermSocket


async def serve(port: int) -> None:
    """Serve a shell to each WebSocket at ``/terminal``; never returns."""
    manager = UniqueTermManager(shell_command=["bash", "--norc", "-i"])
    routes = [(r"/terminal", TermSocket, {"term_manager": manager})]
    tornado.web.Application(routes).listen(port, "127.0.0.1")
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(serve(int(sys.argv[1])))
