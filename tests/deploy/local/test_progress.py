"""Tests the progress output: a line for each step, and a sign of life during long steps."""

from __future__ import annotations

import asyncio
import io

from deploy.local.progress import Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


async def test_a_finished_step_shows_its_duration() -> None:
    now = [10.0]
    out = io.StringIO()
    progress = Progress(out, clock=lambda: now[0])
    progress.report("gateway", "starting")
    now[0] = 11.5
    progress.report("gateway", "ready")
    assert out.getvalue().split() == ["✓", "gateway", "1.5", "s"]


async def test_slow_steps_are_printed_as_lines_without_terminal() -> None:
    now = [10.0]
    out = io.StringIO()
    progress = Progress(out, clock=lambda: now[0])
    progress.report("cluster", "starting")
    async with progress.moving():
        await asyncio.sleep(0.3)
        assert out.getvalue() == ""
        now[0] = 13.0
        await asyncio.sleep(0.3)
    assert out.getvalue().split() == ["waiting", "for", "cluster", "…", "3", "s"]


async def test_a_terminal_shows_a_spinner_and_is_restored() -> None:
    out = Terminal()
    progress = Progress(out, clock=lambda: 0.0)
    progress.report("cluster", "starting")
    async with progress.moving():
        await asyncio.sleep(0.4)
    assert out.getvalue().count("cluster") >= 2
    assert out.getvalue().endswith("\r\x1b[K")
