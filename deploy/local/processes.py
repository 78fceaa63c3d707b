"""Runs programs as children: each starts until it is ready, and ends when this process ends."""

from __future__ import annotations

import asyncio
import ctypes
import os
import signal
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

READY_SECONDS: Final = 120.0
"""The start deadline, for a busy machine. A program that ends instead is reported at once."""
END_SECONDS: Final = 15.0
_LOOK_AGAIN_SECONDS: Final = 0.03
_PR_SET_PDEATHSIG: Final = 1
_LIBC = ctypes.CDLL(None)


class ProgramFailed(Exception):
    """A program ended, or was not ready in time. The message has the end of its log."""


@dataclass(slots=True)
class Program:
    """One program: its command, its readiness check, and its process while it runs."""

    name: str
    command: tuple[str, ...]
    environment: Mapping[str, str]
    log: Path
    is_ready: Callable[[], Awaitable[bool]]
    folder: Path
    process: asyncio.subprocess.Process | None = field(default=None, repr=False)

    @property
    def alive(self) -> bool:
        """Whether the process runs."""
        return self.process is not None and self.process.returncode is None

    async def start(self) -> None:
        """Start the program and return when it is ready.

        Raises:
            ProgramFailed: If it ends instead, or takes too long.
        """
        with self.log.open("ab") as log:
            self.process = await asyncio.create_subprocess_exec(
                *self.command,
                cwd=self.folder,
                env={**_kept(), **self.environment},
                stdin=asyncio.subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,  # Ctrl-C is for us: we end the children, in order
                preexec_fn=die_with_parent,
            )
        try:
            async with asyncio.timeout(READY_SECONDS):
                while not await self.is_ready():
                    if not self.alive:
                        raise ProgramFailed(f"{self.name} ended:\n{self.last_words()}")
                    await asyncio.sleep(_LOOK_AGAIN_SECONDS)
        except TimeoutError:
            text = f"{self.name} was not ready after {READY_SECONDS:.0f} s:\n{self.last_words()}"
            raise ProgramFailed(text) from None

    async def stop(self) -> None:
        """End the program with SIGTERM, and after its deadline with SIGKILL."""
        if self.process is None or not self.alive:
            return
        self.process.send_signal(signal.SIGTERM)
        try:
            async with asyncio.timeout(END_SECONDS):
                await self.process.wait()
        except TimeoutError:
            await self.kill()

    async def kill(self) -> None:
        """End the program with SIGKILL."""
        if self.process is not None and self.alive:
            self.process.kill()
            await self.process.wait()

    def last_words(self, lines: int = 15) -> str:
        """Return the end of the program's log."""
        if not self.log.exists():
            return "(no log)"
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-lines:])


def _kept() -> dict[str, str]:
    # Settings of the caller (FUMAROLE_*, KUBECONFIG) must not reach a child by accident.
    return {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("FUMAROLE_", "ORCHESTRATOR_", "KUBE"))
    }


def die_with_parent() -> None:
    """End this process when its parent ends, even by SIGKILL, when nothing else could end it."""
    _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
