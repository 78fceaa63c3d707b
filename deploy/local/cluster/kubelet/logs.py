"""A container's log: the output of its process, kept line by line with the time."""

import asyncio
import os
from collections.abc import AsyncGenerator
from contextlib import ExitStack, aclosing
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from deploy.local.cluster.pipes import read_chunks

_CHUNK_BYTES: Final = 65536
_MAX_BYTES: Final = 10 * 1024 * 1024
"""A log grows to twice this size and then loses its older half, as kubelets rotate theirs."""


class Log:
    """The log of one run of a container."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._path.parent.mkdir(parents=True, exist_ok=True)
        self._file = path.open("ab", buffering=0)
        self._more = asyncio.Event()
        self._begins = 0  # the position of the file's beginning in all output so far
        self.ended = False

    def write_fd(self) -> tuple[int, asyncio.Task[None]]:
        """Return a pipe's writing end, for a process, and the task that reads the other end."""
        reading, writing = os.pipe()
        return writing, asyncio.create_task(self._collect(reading))

    def end(self) -> None:
        """Record that the log is complete."""
        self.ended = True
        self._notify()

    def close(self) -> None:
        """Close the file."""
        self.end()
        self._file.close()

    async def lines(
        self, *, follow: bool, tail: int | None, since: datetime | None, timestamps: bool
    ) -> AsyncGenerator[bytes]:
        """Yield the log's lines; with *follow* also later ones, until the container ends."""
        with ExitStack() as files:
            file, begins = files.enter_context(self._path.open("rb")), self._begins
            first = True
            rest = b""
            while True:
                more, rotated = self._more, self._begins != begins
                ended = self.ended and not rotated
                *lines, rest = (rest + await asyncio.to_thread(file.read)).split(b"\n")
                if first and tail is not None:
                    lines = lines[-tail:] if tail else []
                first = False
                shown = [_shown(line, timestamps) for line in lines if _is_since(line, since)]
                if shown:
                    yield b"".join(shown)
                if rotated:  # continue in the new file, after what was read of the old one
                    read = begins + file.tell()
                    files.close()
                    file, begins = files.enter_context(self._path.open("rb")), self._begins
                    file.seek(max(0, read - begins))
                    continue
                if not follow or ended:
                    return
                await more.wait()

    def tail(self, lines: int, limit: int) -> str:
        """Return the end of the log, bounded by a number of lines and of bytes."""
        text = b"".join(_shown(line, False) for line in self._path.read_bytes().splitlines())
        return b"".join(text[-limit:].splitlines(keepends=True)[-lines:]).decode(errors="replace")

    async def _collect(self, reading: int) -> None:
        rest = b""
        async with aclosing(read_chunks(reading, _CHUNK_BYTES)) as chunks:
            async for chunk in chunks:
                *lines, rest = (rest + chunk).split(b"\n")
                # A line without an end is shown too: a prompt, or a very long line.
                if len(rest) > _CHUNK_BYTES:
                    lines, rest = [*lines, rest], b""
                self._append(lines)
        if rest:
            self._append([rest])

    def _append(self, lines: list[bytes]) -> None:
        if not lines or self._file.closed:
            return
        moment = datetime.now(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
        self._file.write(b"".join(b"%s %s\n" % (moment.encode(), line) for line in lines))
        if self._file.tell() > 2 * _MAX_BYTES:
            self._rotate()
        self._notify()

    def _rotate(self) -> None:
        whole = self._path.read_bytes()
        kept = whole[-_MAX_BYTES:].partition(b"\n")[2]
        new = self._path.with_suffix(".new")
        new.write_bytes(kept)
        new.replace(self._path)
        self._begins += len(whole) - len(kept)
        self._file.close()
        self._file = self._path.open("ab", buffering=0)

    def _notify(self) -> None:
        self._more.set()
        self._more = asyncio.Event()


def _shown(line: bytes, timestamps: bool) -> bytes:
    return (line if timestamps else line.partition(b" ")[2]) + b"\n"


def _is_since(line: bytes, since: datetime | None) -> bool:
    return since is None or datetime.fromisoformat(line.partition(b" ")[0].decode()) >= since
