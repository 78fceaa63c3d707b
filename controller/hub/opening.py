"""Starts the best shell that a container has, and hangs up on it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass, field
from typing import Final

from controller.kube.exec import ExecFailed, ExecTarget, Executor, Exited, Received, TerminalStream

# Sets ${20} to the start time of the container's first process; empty without /proc. A replacement
# pod has the same name, and only this tells its container apart.
_FIRST_PROCESS: Final = """\
read -r began 2>/dev/null </proc/1/stat
set -- ${began##*) }
"""
# The script first writes the process id of the shell and the start time of the container, in a
# private OSC that terminals ignore.
# The shell is interactive, but not a login shell: /etc/profile, which on Debian resets PATH, would
# lose the PATH of the image.
_SCRIPT: Final = (
    _FIRST_PROCESS
    + """\
printf '\\033]5522;%s;%s\\007' "$$" "${20}"
export TERM=xterm-256color
for name in bash zsh fish; do
  found=$(command -v "$name" 2>/dev/null) || continue
  [ -x "$found" ] || continue
  export SHELL="$found"
  exec "$found" -i
done
export SHELL=/bin/sh
exec /bin/sh -i
"""
)
_MARK: Final = b"\x1b]5522;"
_PROCESS = re.compile(rb"\x1b\]5522;([1-9][0-9]{0,9})(?:;([0-9]{0,20}))?\x07")
_HANG_UP: Final = 'kill -HUP "$1"'
_IS_THE_SAME: Final = f'was=$1\n{_FIRST_PROCESS}[ "${{20}}" = "$was" ]'
_RUNS_THERE: Final = f'shell=$2\n{_IS_THE_SAME} && kill -0 "$shell"'

# One exec of a fixed script is fastest, and contains no external input. The other commands are for
# containers without /bin/sh and are tried in turn.
COMMANDS: Final[Sequence[list[str]]] = (
    ["/bin/sh", "-c", _SCRIPT],
    ["bash", "-i"],
    ["zsh", "-i"],
    ["fish", "-i"],
    ["sh", "-i"],
    ["/busybox/sh", "-i"],
)

# A shell without output by then counts as a shell without a prompt.
FIRST_WORD_SECONDS: Final = 3.0
_LAST_WORDS_SECONDS: Final = 1.0
# A hub that shuts down, or a client that waits for a shell, must not wait longer for a container.
HANG_UP_SECONDS: Final = 2.0
# The exit code after SIGKILL: the end of a container's first process kills the others so.
_KILLED: Final = 137
_CONTAINER_SECONDS: Final = 5.0
# Exit codes of the runtime: the file is missing or not executable (POSIX.1-2024, 2.8.2).
_NOT_STARTED: Final = (126, 127)


class NoShell(ExecFailed):
    """The container has no known shell."""


@dataclass(slots=True, eq=False, repr=False)
class ShellStream:
    """A shell's stream that sends SIGHUP to the shell when closed; see :class:`TerminalStream`.

    When a client disconnects, the kubelet closes its ends of the terminal. With common runtimes
    the shell does not notice, and would wait for input as long as the container lives.
    """

    stream: TerminalStream
    executor: Executor
    container: ExecTarget
    _: KW_ONLY
    process: str
    began: str
    _ended: bool = field(default=False, init=False)
    _exited: Exited | None = field(default=None, init=False)

    async def receive(self) -> Received:
        """Return the shell's next output, or how it ended.

        A shell that was killed because its container ended is lost; it did not exit by itself.
        Neither did a shell that still runs: an API server that loses its connection to the kubelet
        reports success (client-go's ``watchErrorStream``, which it uses for v5).
        """
        if self._exited is not None:
            return self._exited
        received = await self.stream.receive()
        if isinstance(received, Exited):
            # After its end the process id may belong to another process.
            self._ended = True
            if received.code == _KILLED and not await self._container_runs():
                received = Exited(None, "the container has ended", lost=True)
            elif received.code == 0 and await self._may_run():
                received = Exited(None, "the connection to the container was lost", lost=True)
            self._exited = received
        return received

    async def send(self, data: bytes) -> None:
        """Send *data* as input."""
        await self.stream.send(data)

    async def resize(self, cols: int, rows: int) -> None:
        """Resize the terminal."""
        await self.stream.resize(cols, rows)

    async def close(self) -> None:
        """Send SIGHUP to the shell if it still runs, and close the stream."""
        try:
            if not self._ended:
                self._ended = True
                with suppress(TimeoutError):
                    async with asyncio.timeout(HANG_UP_SECONDS):
                        await self._hang_up()
        finally:
            await self.stream.close()

    async def _hang_up(self) -> None:
        try:
            await self._run(["/bin/sh", "-c", _HANG_UP, "sh", self.process])
        except ExecFailed:
            return  # the container is gone, and its shells with it

    async def _container_runs(self) -> bool:
        """Return whether the shell's container still runs commands.

        The exit code cannot tell: a user who kills the shell causes the same one.
        """
        command = ["/bin/sh", "-c", _IS_THE_SAME, "sh", self.began]
        try:
            async with asyncio.timeout(_CONTAINER_SECONDS):
                return (await self._run(command)).code == 0
        except (ExecFailed, TimeoutError):
            return False

    async def _may_run(self) -> bool:
        """Return whether the shell still runs, or cannot be looked for."""
        command = ["/bin/sh", "-c", _RUNS_THERE, "sh", self.began, self.process]
        try:
            async with asyncio.timeout(_CONTAINER_SECONDS):
                found = await self._run(command)
        except (ExecFailed, TimeoutError):
            return True
        return found.code == 0 or found.lost

    async def _run(self, command: list[str]) -> Exited:
        """Run *command* in the container, and return how it ended.

        Raises:
            ExecFailed: If the container cannot be reached.
        """
        stream = await self.executor.open(self.container, command)
        try:
            while not isinstance(received := await stream.receive(), Exited):
                pass
        finally:
            await stream.close()
        return received


async def open_shell(executor: Executor, container: ExecTarget) -> tuple[TerminalStream, bytes]:
    """Return a running shell and its first output.

    Raises:
        ExecFailed: If the container cannot be reached.
        NoShell: If it has no shell.
    """
    message = ""
    for command in COMMANDS:
        stream = await executor.open(container, command)
        try:
            first = await _first_word(stream)
        except BaseException:  # also if cancelled: the stream has no other owner yet
            await stream.close()
            raise
        if isinstance(first, bytes):
            return _named(stream, first, executor, container)
        await stream.close()
        if first.lost:
            raise ExecFailed(first.message)
        message = message or first.message
    raise NoShell(f"no shell could be started: {message or 'none was found'}")


def _named(
    stream: TerminalStream, first: bytes, executor: Executor, container: ExecTarget
) -> tuple[TerminalStream, bytes]:
    """Return the stream and its first output, without the process id."""
    named = _PROCESS.match(first)
    if named is None:
        return stream, first
    process, began = named[1].decode(), (named[2] or b"").decode()
    shell = ShellStream(stream, executor, container, process=process, began=began)
    return shell, first[named.end() :]


async def _first_word(stream: TerminalStream) -> bytes | Exited:
    """Return the shell's first output, or how it ended before it could be used."""
    try:
        async with asyncio.timeout(FIRST_WORD_SECONDS):
            first: Received = await stream.receive()
            while isinstance(first, bytes) and _is_half_a_mark(first):
                more = await stream.receive()
                first = first + more if isinstance(more, bytes) else more
    except TimeoutError:
        return b""
    if not isinstance(first, bytes) or not _reads_as_a_failure(first):
        return first
    # Some runtimes write their error to the command's terminal.
    try:
        async with asyncio.timeout(_LAST_WORDS_SECONDS):
            last = await stream.receive()
    except TimeoutError:
        return first
    if isinstance(last, bytes):
        return first + last
    return last if last.code in _NOT_STARTED else first


def _is_half_a_mark(first: bytes) -> bool:
    return _MARK.startswith(first[: len(_MARK)]) and b"\x07" not in first and len(first) < 48


def _reads_as_a_failure(output: bytes) -> bool:
    return b"exec failed" in output or b"no such file" in output or b"not found" in output
