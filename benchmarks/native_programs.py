"""Load and backend: compiled once, and run."""

from __future__ import annotations

import asyncio
import hashlib
import os
import shutil
import signal
import subprocess
import sys
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import msgspec

from benchmarks.programs import cores, pinned

SOURCES: Final = Path(__file__).parent / "native"
_FLAGS: Final = ("-O2", "-std=gnu11", "-Wall", "-Wextra", "-Werror")
_TLS_FLAGS: Final = ["-DTLS", "-lssl", "-lcrypto"]
READY_SECONDS: Final = 180.0


class NoCompiler(Exception):
    """There is no C compiler on this machine."""


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """The result of one run of the load; percentiles in microseconds."""

    units: int
    bytes: int
    seconds: float
    errors: int
    opened: int
    load_cpu_seconds: float
    first_error: str
    p50: float
    p99: float
    p999: float
    closed_at: list[int]


def build(folder: Path) -> dict[str, Path]:
    """Return the compiled programs; compile them again when their source has changed.

    Raises:
        NoCompiler: If there is none.
    """
    compiler = shutil.which("cc")
    if compiler is None:
        raise NoCompiler("no C compiler: install gcc or clang")
    folder.mkdir(parents=True, exist_ok=True)
    programs = {}
    for name in ("backend", "load"):
        programs[name] = _compiled(compiler, folder, name, name, [])
    try:
        programs["load-tls"] = _compiled(compiler, folder, "load-tls", "load", _TLS_FLAGS)
    except subprocess.CalledProcessError:
        print("without TLS: OpenSSL's headers are missing", file=sys.stderr)
    return programs


def _compiled(compiler: str, folder: Path, name: str, source: str, more: list[str]) -> Path:
    file = SOURCES / f"{source}.c"
    text = file.read_bytes() + (SOURCES / "wire.h").read_bytes()
    program = folder / f"{name}-{hashlib.sha256(text).hexdigest()[:12]}"
    if not program.exists():
        command = [compiler, *_FLAGS, "-o", str(program), str(file), *more]
        subprocess.run(command, check=True, capture_output=bool(more))
    return program


@dataclass(frozen=True, slots=True)
class Backend:
    """The app behind every proxy."""

    port: int
    rfb_port: int


@asynccontextmanager
async def running_backend(program: Path) -> AsyncIterator[Backend]:
    """Run the backend, which ends when its input ends."""
    process = await asyncio.create_subprocess_exec(
        *pinned([str(program)], cores()[1]), stdin=PIPE, stdout=PIPE
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        port, rfb_port = map(int, (await process.stdout.readline()).split())
        yield Backend(port, rfb_port)
    finally:
        process.stdin.close()
        await process.wait()


class Load:
    """A running load; made by :func:`loading`."""

    def __init__(self, process: Process) -> None:
        self._process = process

    async def until(self, word: str) -> None:
        """Return once the load prints *word*."""
        async with asyncio.timeout(READY_SECONDS):
            line = await self._line()
        if line.strip() != word.encode():
            raise RuntimeError(f"the load said {line!r} instead of {word}")

    async def result(self, *, within: float = READY_SECONDS) -> Result:
        """Return the result; an idle load is told to end."""
        if self._process.stdin is not None:
            self._process.stdin.close()
        async with asyncio.timeout(within):
            return msgspec.json.decode(await self._line(), type=Result)

    async def _line(self) -> bytes:
        assert self._process.stdout is not None
        return await self._process.stdout.readline()


@asynccontextmanager
async def loading(program: Path, arguments: list[str]) -> AsyncIterator[Load]:
    """Run the load."""
    command = pinned([str(program), *arguments], cores()[1])
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, limit=1 << 24)
    try:
        yield Load(process)
    finally:
        if process.returncode is None:
            # Not process.kill(), which may reap the process before the loop's watcher does.
            with suppress(ProcessLookupError):
                os.kill(process.pid, signal.SIGKILL)
        await process.wait()


async def measured(
    program: Path, arguments: list[str], look: Callable[[], float]
) -> tuple[Result, float]:
    """Run the load; return its result, and by how much *look* rose while it measured."""
    async with loading(program, arguments) as load:
        await load.until("ready")
        await load.until("begin")
        before = look()
        result = await load.result()
        return result, look() - before
