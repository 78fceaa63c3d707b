"""The desktop app: ``python -m deploy.local.apps.desktop --port=5900``.

It shows a painting that reacts to pointer and keys over RFB: by Xvnc if that is installed, else by
the server in ``rfb``.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import signal
import time
from collections.abc import Callable

from deploy.local.apps.painting import HEIGHT, WIDTH, Box, Painting
from deploy.local.apps.rfb import RfbServer
from deploy.local.apps.x11 import Window, start_xvnc, xvnc


async def tick(painting: Painting, changed: Callable[[Box], None]) -> None:
    """Update the clock in the painting; never returns."""
    while True:
        changed(painting.tick(time.strftime("%H:%M:%S")))
        await asyncio.sleep(1 - time.time() % 1)


async def serve_ourselves(painting: Painting, name: str, port: int) -> None:
    """Show *painting* with the server in ``rfb``; never returns."""
    server = RfbServer(painting, name)
    listening = await asyncio.start_server(server.handle, "0.0.0.0", port)
    async with listening, asyncio.TaskGroup() as tasks:
        tasks.create_task(tick(painting, server.changed))


async def serve_with_xvnc(painting: Painting, name: str, port: int, program: str) -> None:
    """Show *painting* on an X display of Xvnc; returns when Xvnc ends."""
    server = await start_xvnc(
        program, port, "-geometry", f"{WIDTH}x{HEIGHT}", "-depth", "24", "-SecurityTypes", "None",
        # The painting has a fixed size. Browsers scale it.
        "-desktop", name, "-AcceptSetDesktopSize=0",
    )  # fmt: skip
    process = server.process
    try:
        window = Window(painting, await server.connect())
        async with asyncio.TaskGroup() as tasks:
            running = [
                tasks.create_task(window.run()),
                tasks.create_task(tick(painting, window.changed)),
            ]
            await process.wait()
            for task in running:
                task.cancel()
    finally:
        if process.returncode is None:
            process.terminate()
            await process.wait()


async def run(port: int, *, plain: bool) -> None:
    """Serve until SIGTERM."""
    name = f"Fumarole desktop in {os.environ.get('HOSTNAME', 'a job')}"
    painting = Painting(name)
    program = None if plain else xvnc()
    serving = asyncio.ensure_future(
        serve_ourselves(painting, name, port)
        if program is None
        else serve_with_xvnc(painting, name, port, program)
    )
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, serving.cancel)
    await asyncio.wait([serving])
    if not serving.cancelled():
        serving.result()


def main() -> None:
    """Parse the arguments and serve."""
    parser = argparse.ArgumentParser(prog="desktop", description=__doc__)
    parser.add_argument("--port", type=int, default=5900)
    parser.add_argument("--plain", action="store_true", help="do not use Xvnc")
    arguments = parser.parse_args()
    asyncio.run(run(arguments.port, plain=arguments.plain))


if __name__ == "__main__":
    main()
