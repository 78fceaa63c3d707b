"""Runs the gateway as a process, with its settings in the environment."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests import warm
from tests.contract.messages import Response, read_response, request
from tests.contract.streams import DEADLINE_SECONDS, Stream, connect

ROOT = Path(__file__).parents[2]
START_SECONDS = 20.0
STOP_SECONDS = 5.0


class Process:
    """``python -m gateway`` with its own settings; its log goes to a file."""

    def __init__(self, folder: Path, settings: Mapping[str, str], *, fork: bool = True) -> None:
        self._folder = folder
        self.settings = dict(settings)
        # A fork has the memory of a process that imported the controller, too.
        self._popen_program = warm.popen if fork else subprocess.Popen
        self.command = [sys.executable, "-m", "gateway"]
        self.log = folder / "gateway.log"
        self._popen: subprocess.Popen[bytes] | None = None

    async def start(self, *, ready: bool = True) -> None:
        """Start the gateway; wait until it has its addresses and is ready."""
        addresses = self._folder / "addresses.json"
        addresses.unlink(missing_ok=True)
        environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        environment |= self.settings | {"FUMAROLE_GATEWAY_ADDRESS_FILE": str(addresses)}
        with self.log.open("ab") as log:
            self._popen = self._popen_program(
                self.command, cwd=ROOT, env=environment, stderr=log, stdout=log
            )
        found = await self._poll(lambda: _read_addresses(addresses))
        self.public, self.ops = found
        if ready:
            await self.until_ready()

    async def until_ready(self) -> None:
        """Wait until ``/readyz`` reports readiness."""

        async def poll() -> Any:
            return (await self.ops_response("/readyz")).status == 200 or None

        deadline = time.monotonic() + START_SECONDS
        while not await poll():
            assert time.monotonic() < deadline, f"the gateway is not ready\n{self.tail()}"
            await asyncio.sleep(0.05)

    async def _poll(self, look: Callable[[], Any]) -> Any:
        deadline = time.monotonic() + START_SECONDS
        while (found := look()) is None:
            assert self._popen is not None
            assert self._popen.poll() is None, f"the gateway ended\n{self.tail()}"
            assert time.monotonic() < deadline, f"the gateway has no addresses\n{self.tail()}"
            await asyncio.sleep(0.05)
        return found

    async def connect_public(self, source: str) -> Stream:
        """Return a connection from *source* to the public listener."""
        return await connect(self.public, source)

    async def connect_ops(self) -> Stream:
        """Return a connection to the ops listener."""
        return await connect(self.ops)

    async def ops_response(self, path: str, seconds: float = DEADLINE_SECONDS) -> Response:
        """Return the ops listener's response to GET *path*."""
        stream = await self.connect_ops()
        stream.send(request("GET", path, host="ops", fields=[("Connection", "close")]))
        response = await read_response(stream, seconds=seconds)
        stream.close()
        return response

    @property
    def pid(self) -> int:
        """The process id."""
        assert self._popen is not None
        return self._popen.pid

    def tail(self) -> str:
        """Return the end of the log."""
        return self.log.read_text(errors="replace")[-4000:]

    def crashes(self) -> list[str]:
        """Return the log lines with a traceback."""
        lines = self.log.read_text(errors="replace").splitlines()
        return [line for line in lines if "Traceback (most recent call last)" in line]

    def signal(self, number: signal.Signals) -> None:
        """Send a signal."""
        assert self._popen is not None
        self._popen.send_signal(number)

    async def wait(self, seconds: float) -> int:
        """Wait for the exit, and return the exit code."""
        assert self._popen is not None
        return await asyncio.to_thread(self._popen.wait, seconds)

    async def stop(self) -> None:
        """End the process: by SIGTERM, then by a second SIGTERM, then by SIGKILL."""
        if self._popen is None:
            return
        for number in (signal.SIGTERM, signal.SIGTERM, signal.SIGKILL):
            with suppress(subprocess.TimeoutExpired):
                self.signal(number)
                await self.wait(STOP_SECONDS if number is signal.SIGKILL else 1.0)
                break
        self._popen = None

    async def kill(self) -> None:
        """Kill the process."""
        self.signal(signal.SIGKILL)
        await self.wait(STOP_SECONDS)
        self._popen = None


def _read_addresses(path: Path) -> tuple[tuple[str, int], tuple[str, int]] | None:
    try:
        values = json.loads(path.read_text())
    except (OSError, ValueError):
        return None
    public, ops = (values[name].rpartition(":") for name in ("public", "ops"))
    return (public[0], int(public[2])), (ops[0], int(ops[2]))
