"""Tests child processes: they start, receive their settings, and end with their parent."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import psutil
import pytest

from deploy.local import processes
from deploy.local.processes import Program, ProgramFailed

SLEEP = (sys.executable, "-c", "import time; print('up', flush=True); time.sleep(60)")


async def at_once() -> bool:
    return True


async def never() -> bool:
    return False


def program(
    folder: Path,
    command: tuple[str, ...] = SLEEP,
    is_ready: Callable[[], Awaitable[bool]] = at_once,
) -> Program:
    return Program("child", command, {"FUMAROLE_X": "1"}, folder / "log", is_ready, folder)


async def test_a_program_runs_until_it_is_stopped_and_can_be_started_again(tmp_path: Path) -> None:
    child = program(tmp_path)
    for _ in range(2):
        await child.start()
        assert child.alive
        await child.stop()
        assert not child.alive


async def test_a_program_that_exits_early_is_reported_with_its_last_output(tmp_path: Path) -> None:
    child = program(tmp_path, (sys.executable, "-c", "raise SystemExit('no luck')"), never)
    with pytest.raises(ProgramFailed, match="no luck"):
        await child.start()


async def test_a_program_that_never_responds_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "READY_SECONDS", 0.2)
    child = program(tmp_path, is_ready=never)
    with pytest.raises(ProgramFailed, match="not ready"):
        await child.start()
    await child.kill()


async def test_a_program_that_does_not_listen_is_killed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processes, "END_SECONDS", 0.2)
    deaf = "import signal, time; signal.signal(15, signal.SIG_IGN); print(1, flush=True)"
    log = tmp_path / "log"

    async def deaf_now() -> bool:
        return log.exists() and log.stat().st_size > 0

    child = program(tmp_path, (sys.executable, "-c", f"{deaf}; time.sleep(60)"), deaf_now)
    await child.start()
    await child.stop()
    assert child.process is not None
    assert child.process.returncode == -signal.SIGKILL


async def test_settings_of_the_caller_are_not_inherited(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FUMAROLE_REDIS_URL", "redis://elsewhere")
    monkeypatch.setenv("KUBECONFIG", "/elsewhere")
    show = "import os; print(sorted(n for n in os.environ if n.startswith(('FUM', 'KUBE'))))"
    child = program(tmp_path, (sys.executable, "-c", show))
    await child.start()
    assert child.process is not None
    await child.process.wait()
    assert child.last_words() == "['FUMAROLE_X']"


async def test_a_child_dies_with_its_parent_in_every_case(tmp_path: Path) -> None:
    parent = (
        "import asyncio, pathlib, sys\n"
        "from tests.deploy.local.test_processes import program\n"
        "async def main():\n"
        "    child = program(pathlib.Path(sys.argv[1]))\n"
        "    await child.start()\n"
        "    print(child.process.pid, flush=True)\n"
        "    await asyncio.sleep(60)\n"
        "asyncio.run(main())\n"
    )
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", parent, str(tmp_path), stdout=asyncio.subprocess.PIPE,
        cwd=Path(__file__).parents[3], env=os.environ | {"PYTHONPATH": "."},
    )  # fmt: skip
    assert process.stdout is not None
    child = psutil.Process(int(await process.stdout.readline()))
    process.kill()
    await process.wait()
    gone, alive = await asyncio.to_thread(psutil.wait_procs, [child], 5)
    assert gone
    assert not alive
