"""Starts real programs for tests, from the PATH or a wheel; they end with the test."""

from __future__ import annotations

import socket
import subprocess
import time
from pathlib import Path
from types import TracebackType
from typing import Self

from deploy.local.redis import redis_program

START_SECONDS = 10.0


class RedisServer:
    """A Redis on a Unix socket that tests can kill and start again.

    With *keeps*, it starts with the data of the last SAVE. Otherwise it keeps nothing on disk.
    """

    def __init__(self, program: str, folder: Path, *, keeps: bool = False) -> None:
        self._program = program
        self._more = ["--dir", str(folder)] if keeps else []
        self._socket = folder / "redis.sock"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        """The server's URL."""
        return f"unix://{self._socket}"

    def start(self) -> None:
        """Start the server and wait until it answers."""
        command = [self._program, "--port", "0", "--unixsocket", str(self._socket)]
        command += ["--save", "", "--appendonly", "no", "--maxmemory-policy", "noeviction"]
        command += self._more
        self._process = subprocess.Popen(command, stdout=subprocess.DEVNULL, cwd="/tmp")
        deadline = time.monotonic() + START_SECONDS
        while not self._answers():
            assert self._process.poll() is None, "redis ended at once"
            assert time.monotonic() < deadline, "redis does not answer"
            time.sleep(0.02)

    def _answers(self) -> bool:
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(str(self._socket))
            except OSError:
                return False
            probe.sendall(b"PING\r\n")
            return probe.recv(16).startswith(b"+PONG")

    def kill(self) -> None:
        """Kill the server; all unsaved data is lost."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()


__all__ = ["RedisServer", "redis_program"]
