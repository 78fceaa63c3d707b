"""Tests signals, file descriptors and address files, in a real process where needed."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from shared.runtime.process import join_address, write_address_file

ROOT = Path(__file__).parents[3]

STUBBORN = """
import asyncio
from shared.runtime.process import stop_on_signals

async def main():
    stop = asyncio.Event()
    stop_on_signals(stop)
    print("up", flush=True)
    await stop.wait()
    print("draining", flush=True)
    {after}

asyncio.run(main())
print("ended", flush=True)
"""

LIMITS = """
import resource
from shared.runtime.process import raise_descriptor_limit

resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, 200))
print(raise_descriptor_limit(), *resource.getrlimit(resource.RLIMIT_NOFILE))
"""


def started(program: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", program], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )


def line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_the_first_signal_asks_to_stop(number: signal.Signals) -> None:
    with started(STUBBORN.format(after="")) as process:
        assert line(process) == "up"
        process.send_signal(number)
        assert (line(process), line(process)) == ("draining", "ended")
        assert process.wait(10) == 0


def test_a_hangup_ends_nothing() -> None:
    with started(STUBBORN.format(after="")) as process:
        assert line(process) == "up"
        process.send_signal(signal.SIGHUP)
        time.sleep(0.2)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert (line(process), line(process)) == ("draining", "ended")
        assert process.wait(10) == 0


def test_a_second_signal_exits_at_once() -> None:
    with started(STUBBORN.format(after="await asyncio.sleep(60)")) as process:
        assert line(process) == "up"
        process.send_signal(signal.SIGTERM)
        assert line(process) == "draining"
        process.send_signal(signal.SIGINT)
        assert process.wait(10) == 1
        assert line(process) == ""


@pytest.mark.parametrize("soft", [100, 200])
def test_the_soft_descriptor_limit_is_raised_to_the_hard_limit(soft: int) -> None:
    with started(LIMITS.format(soft=soft)) as process:
        assert line(process) == "200 200 200"


def test_the_address_file_is_written_atomically(tmp_path: Path) -> None:
    path = tmp_path / "addresses.json"
    write_address_file(path, {"public": join_address("::1", 80), "ops": join_address("h", 81)})
    assert json.loads(path.read_text()) == {"public": "[::1]:80", "ops": "h:81"}
    assert list(tmp_path.iterdir()) == [path]


def test_no_address_file_is_written_without_the_setting(tmp_path: Path) -> None:
    write_address_file(None, {})
    assert list(tmp_path.iterdir()) == []


CALM = """
import gc
from shared.runtime.process import COLLECTOR_THRESHOLDS, tune_collector
tune_collector()
print(gc.get_threshold() == COLLECTOR_THRESHOLDS, gc.get_freeze_count() > 0, gc.isenabled())
"""


def test_the_garbage_collector_runs_less_often_but_stays_enabled() -> None:
    with started(CALM) as process:
        assert line(process) == "True True True"
