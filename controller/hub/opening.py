"""Starting the best shell that a container has."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from controller.kube.exec import Container, ExecFailed, Executor, Exited, Received, Stream

# Interactive, but no login shell: a login reads /etc/profile, which on Debian sets PATH anew and
# so loses the one that the image was built with.
_SCRIPT: Final = """\
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

# One exec of a fixed script is the quickest, and nothing in it comes from outside. What follows is
# for containers without /bin/sh: each is asked for in turn.
COMMANDS: Final[Sequence[list[str]]] = (
    ["/bin/sh", "-c", _SCRIPT],
    ["bash", "-i"],
    ["zsh", "-i"],
    ["fish", "-i"],
    ["sh", "-i"],
    ["/busybox/sh", "-i"],
)

# A shell that has said nothing by then is taken for one without a prompt.
FIRST_WORD_SECONDS: Final = 3.0
_LAST_WORDS_SECONDS: Final = 1.0
# The runtime's own: the file is missing, or is no program (POSIX.1-2024, 2.8.2).
_NOT_STARTED: Final = (126, 127)


class NoShell(ExecFailed):
    """The container has no shell that we know."""


async def open_shell(executor: Executor, container: Container) -> tuple[Stream, bytes]:
    """Return a running shell and the first that it wrote.

    Raises:
        ExecFailed: If the container cannot be reached.
        NoShell: If it has no shell.
    """
    message = ""
    for command in COMMANDS:
        stream = await executor.open(container, command)
        try:
            first = await _first_word(stream)
        except BaseException:
            await stream.close()
            raise
        if isinstance(first, bytes):
            return stream, first
        await stream.close()
        if first.lost:
            raise ExecFailed(first.message)
        message = message or first.message
    raise NoShell(f"no shell could be started: {message or 'none was found'}")


async def _first_word(stream: Stream) -> bytes | Exited:
    """Return what the shell first writes, or how it ended before it could be used."""
    try:
        async with asyncio.timeout(FIRST_WORD_SECONDS):
            first: Received = await stream.receive()
    except TimeoutError:
        return b""
    if not isinstance(first, bytes) or not _reads_as_a_failure(first):
        return first
    # Some runtimes write why they could not start a command to its terminal.
    try:
        async with asyncio.timeout(_LAST_WORDS_SECONDS):
            last = await stream.receive()
    except TimeoutError:
        return first
    if isinstance(last, bytes):
        return first + last
    return last if last.code in _NOT_STARTED else first


def _reads_as_a_failure(output: bytes) -> bool:
    return b"exec failed" in output or b"no such file" in output or b"not found" in output
