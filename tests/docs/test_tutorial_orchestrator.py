"""Tests the tutorial's orchestrator when the controller breaks off in the middle of updates."""

from __future__ import annotations

import asyncio
import json
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from deploy.local.ports import Ports

PROGRAM = Path(__file__).parents[2] / "docs/tutorials/orchestrator.py"

pytestmark = pytest.mark.timeout(60)


@asynccontextmanager
async def controller(asked: list[str], port: int) -> AsyncIterator[None]:
    """Send one update to each reader, the next after the requested one, and break off."""

    async def updates(request: web.Request) -> web.StreamResponse:
        asked.append(request.query["after"])
        stream = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await stream.prepare(request)
        number = int(asked[-1]) + 1
        update = {"id": number, "job": f"j{number}", "state": "RUNNING", "message": None}
        await stream.write(f"id: {number}\ndata: {json.dumps(update)}\n\n".encode())
        assert request.transport is not None
        request.transport.abort()
        return stream

    app = web.Application()
    app.router.add_get("/v1/updates", updates)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", port).start()
    yield
    await runner.cleanup()


async def test_a_broken_stream_is_resumed_from_its_position() -> None:
    ports, asked = Ports(), list[str]()
    environment = os.environ | {
        "ISSUER": f"http://localhost:{ports['issuer']}",
        "CONTROLLER": f"http://127.0.0.1:{ports['controller']}",
    }
    async with controller(asked, ports["controller"]):
        program = await asyncio.create_subprocess_exec(
            sys.executable, str(PROGRAM), env=environment, stdout=asyncio.subprocess.PIPE
        )
        try:
            assert program.stdout is not None
            reported = list[str]()
            while len(reported) < 3:
                line = (await program.stdout.readline()).decode()
                assert line, "it has ended"
                reported += [line.split()[0]] if line.startswith("j") else []
        finally:
            program.terminate()
            await program.wait()
    assert reported == ["j1", "j2", "j3"]
    assert asked[:3] == ["0", "1", "2"]
