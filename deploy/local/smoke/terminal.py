"""Uses a shell: types a command, and reads its output from the screen."""

from __future__ import annotations

import re

from aiohttp import WSMsgType

from deploy.local.smoke.failure import SmokeFailed
from deploy.local.smoke.gateway import Opened
from deploy.local.smoke.work import Stopwatch

COMMAND = "echo $((6*7))"
# The result must be on a line of its own: the echo of the typed command does not count.
_ANSWER = re.compile(rb"[\r\n]42\r?\n")


async def use(opened: Opened, watch: Stopwatch) -> str:
    """Return the shell's result of ``6*7``."""
    screen = b""
    async with opened.websocket("/.fumarole/connect", "fumarole.terminal.v1") as shell:
        await shell.send_json({"type": "resize", "cols": 80, "rows": 24})
        async for message in shell:
            if message.type is not WSMsgType.BINARY:
                continue
            if not screen:
                watch.first_byte()
                await shell.send_bytes(COMMAND.encode() + b"\n")
            screen += message.data
            if _ANSWER.search(screen):
                return f"{COMMAND} = 42"
    raise SmokeFailed(f"the terminal closed with {shell.close_code} after {len(screen)} bytes")
