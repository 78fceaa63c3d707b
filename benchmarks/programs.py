"""Runs programs: each in a process group of its own, pinned to a core, ended with the run."""

from __future__ import annotations

import asyncio
import functools
import os
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Final

from deploy.local.ports import Ports

PORTS: Final = Ports()
START_SECONDS: Final = 20.0
STOP_SECONDS: Final = 5.0
PROXY_CORE: Final = 1
LOAD_CORE: Final = 0


class Ended(Exception):
    """A program ended unexpectedly."""


@functools.cache
def cores() -> tuple[int, int]:
    """Return the core for the proxy and the one for load and backend; one machine may have one."""
    usable = sorted(os.sched_getaffinity(0))
    return usable[min(PROXY_CORE, len(usable) - 1)], usable[LOAD_CORE]


@contextmanager
def off_the_proxies_core() -> Iterator[None]:
    """Keep this process off the core that it measures."""
    own = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {cores()[1]})
    try:
        yield
    finally:
        os.sched_setaffinity(0, own)


def pinned(command: Sequence[str], core: int) -> list[str]:
    """Return *command* bound to one core, with all its threads and children."""
    return ["taskset", "-c", str(core), *command]


def free_port() -> int:
    """Return a free port, for programs that cannot choose one themselves."""
    return PORTS.take()


@asynccontextmanager
async def running(
    command: Sequence[str],
    *,
    core: int | None,
    log: Path,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
) -> AsyncIterator[Process]:
    """Run *command* on *core*, None for any, and end its whole group with the block.

    Its output goes to *log*.
    """
    with log.open("ab") as output:
        process = await asyncio.create_subprocess_exec(
            *(command if core is None else pinned(command, core)),
            env={**os.environ, **(env or {})},
            cwd=cwd,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:
        yield process
    finally:
        await end(process)


async def end(process: Process) -> None:
    """End the group of *process*: with SIGTERM first, then with SIGKILL."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        with suppress(TimeoutError):
            async with asyncio.timeout(STOP_SECONDS):
                await process.wait()
                break
    # Processes that the leader of the group left behind.
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


async def until_listening(process: Process, port: int, log: Path) -> None:
    """Return once a program listens at *port*.

    Raises:
        Ended: If *process* ended, or did not listen in time.
    """
    async with asyncio.timeout(START_SECONDS):
        while True:
            if process.returncode is not None:
                break
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                await asyncio.sleep(0.05)
                continue
            writer.close()
            return
    raise Ended(log.read_text(errors="replace")[-1000:])
