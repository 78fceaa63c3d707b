"""Tests `make demo SMOKE=1` and `make demo` as a user types them."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

ROOT = Path(__file__).parents[2]
SMOKE_SECONDS = 60.0


@pytest.fixture
def own_folder() -> Iterator[Path]:
    """Return a folder for temporary files; its path is short, because Unix sockets go there."""
    folder = Path(tempfile.mkdtemp(prefix="e2e-", dir="/tmp"))
    yield folder
    shutil.rmtree(folder, ignore_errors=True)


async def start_demo(folder: Path, *options: str) -> asyncio.subprocess.Process:
    environment = {name: value for name, value in os.environ.items() if name != "KUBECONFIG"}
    return await asyncio.create_subprocess_exec(
        sys.executable, "-m", "deploy.local.demo", *options,
        cwd=ROOT, env=environment | {"TMPDIR": str(folder)}, start_new_session=True,
        stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.STDOUT,
    )  # fmt: skip


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
async def test_the_smoke_run_uses_all_three_apps_within_a_minute(own_folder: Path) -> None:
    began = time.monotonic()
    demo = await start_demo(own_folder, "--smoke")
    output, _ = await demo.communicate()
    text = output.decode()
    assert demo.returncode == 0, text
    assert time.monotonic() - began < SMOKE_SECONDS
    for kind in ("web", "terminal", "vnc"):
        (line,) = [line for line in text.splitlines() if kind in line.split()]
        assert line.count(" s") >= 2, line
    assert not list(own_folder.iterdir())


@pytest.mark.timeout(150)
@pytest.mark.parametrize(
    "number",
    [
        signal.SIGINT,
        # SIGTERM is handled as SIGINT is.
        pytest.param(signal.SIGTERM, marks=pytest.mark.long),
        signal.SIGKILL,
    ],
)
async def test_no_process_is_left_when_the_demo_ends(
    number: signal.Signals, own_folder: Path
) -> None:
    demo = await start_demo(own_folder)
    assert demo.stdout is not None
    said = b""
    async with asyncio.timeout(60):
        while b"Open" not in said:
            line = await demo.stdout.readline()
            assert line, f"the demo ended before it was ready: {said.decode()}"
            said += line
    processes = family(demo.pid)
    assert len(processes) > 7
    demo.send_signal(number)
    rest = await demo.stdout.read()
    await demo.wait()
    assert await all_gone(processes, 20), rest.decode()
    if number is not signal.SIGKILL:
        assert demo.returncode == 0
        assert not list(own_folder.iterdir())
