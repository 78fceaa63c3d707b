"""`make demo SMOKE=1` and `make demo`, as a user types them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import tempfile
import time
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
SMOKE_SECONDS = 60.0


async def start_demo(*options: str) -> asyncio.subprocess.Process:
    environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "deploy.local.demo", *options,
        cwd=ROOT, env=environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )  # fmt: skip


def folders() -> set[str]:
    return {path.name for path in Path(tempfile.gettempdir()).glob("fumarole-*")}


def family(pid: int) -> list[psutil.Process]:
    return [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]


async def all_gone(processes: list[psutil.Process], seconds: float) -> bool:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if not any(one.is_running() and one.status() != "zombie" for one in processes):
            return True
        await asyncio.sleep(0.1)
    return False


@pytest.mark.timeout(150)
async def test_the_smoke_run_uses_all_three_apps_within_a_minute() -> None:
    before, began = folders(), time.monotonic()
    demo = await start_demo("--smoke")
    output, _ = await demo.communicate()
    text = output.decode()
    assert demo.returncode == 0, text
    assert time.monotonic() - began < SMOKE_SECONDS
    for kind in ("web", "terminal", "vnc"):
        (line,) = [line for line in text.splitlines() if kind in line.split()]
        assert line.count(" s") >= 2, line
    assert folders() <= before


@pytest.mark.timeout(150)
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGKILL])
async def test_nothing_is_left_when_the_demo_ends(number: signal.Signals) -> None:
    before = folders()
    demo = await start_demo()
    assert demo.stdout is not None
    async with asyncio.timeout(60):
        while b"Open" not in (line := await demo.stdout.readline()):
            assert line, "the demo ended before it was ready"
    processes = family(demo.pid)
    assert len(processes) > 7
    demo.send_signal(number)
    rest = await demo.stdout.read()
    await demo.wait()
    assert await all_gone(processes, 20), rest.decode()
    if number is not signal.SIGKILL:
        assert demo.returncode == 0
        assert folders() <= before
