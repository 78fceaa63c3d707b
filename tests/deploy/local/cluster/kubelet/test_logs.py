"""Tests a container's log while the container writes it."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from deploy.local.cluster.kubelet.logs import Log

LINES = 250_000


async def test_a_followed_log_continues_after_a_rotation(tmp_path: Path) -> None:
    log = Log(tmp_path / "0.log")
    writing, collecting = log.write_fd()
    parts: list[bytes] = []

    async def follow() -> None:
        lines = log.lines(follow=True, tail=None, since=None, timestamps=False)
        parts.extend([part async for part in lines])

    def write() -> None:
        for first in range(0, LINES, 100):
            lines = (b"%09d%b\n" % (n, b"x" * 90) for n in range(first, first + 100))
            os.write(writing, b"".join(lines))
        os.close(writing)

    following = asyncio.create_task(follow())
    await asyncio.to_thread(write)
    await collecting
    log.end()
    await following
    log.close()
    assert [int(line[:9]) for line in b"".join(parts).splitlines()] == list(range(LINES))
