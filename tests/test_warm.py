"""Tests that a forked process behaves as the started program would."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from tests.warm import ROOT, Child, popen

GATEWAY = [sys.executable, "-m", "gateway"]
APISERVER = [sys.executable, "-m", "deploy.local.cluster.apiserver"]
ENVIRONMENT = {"PATH": os.environ["PATH"], "FUMAROLE_LOG_LEVEL": "nonsense"}


@pytest.mark.parametrize("more", [[], ["--version"], ["--nonsense"]])
def test_a_fork_has_arguments_environment_output_and_exit_code_of_a_start(
    tmp_path: Path, more: list[str]
) -> None:
    outcomes = []
    for start in (popen, subprocess.Popen):
        with (tmp_path / "log").open("wb") as log:
            process = start([*GATEWAY, *more], cwd=ROOT, env=ENVIRONMENT, stdout=log, stderr=log)
            code = process.wait(60)
        text = (tmp_path / "log").read_text()
        outcomes.append((isinstance(process, Child), code, text.replace("__main__.py", "gateway")))
    (warm, *forked), (cold, *started) = outcomes
    assert (warm, cold) == (True, False)
    assert forked == started
    assert bool(more) or "FUMAROLE_LOG_LEVEL" in str(forked)


def test_a_fork_ends_with_its_standard_input_or_by_a_signal(tmp_path: Path) -> None:
    for ends, expected in ((False, {0}), (True, {-signal.SIGKILL})):
        (tmp_path / str(ends)).mkdir()
        (tmp_path / str(ends) / "kubeconfig").mkdir()
        (tmp_path / str(ends) / "identities.json").write_text("{}")
        (tmp_path / str(ends) / "lags.json").write_text("{}")
        process = popen(
            [*APISERVER, "--with-parent", "--state", str(tmp_path / str(ends))],
            cwd=ROOT, env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            start_new_session=True,
        )  # fmt: skip
        assert process.stdin is not None
        assert process.stdout is not None
        with process.stdin, process.stdout:
            assert process.stdout.readline() == b"ready\n"
            assert process.poll() is None
            assert os.getsid(process.pid) == process.pid
            if ends:
                process.kill()
            else:
                process.stdin.close()
            assert process.wait(60) in expected


LEAVES = """
import os, sys
from pathlib import Path
from tests.warm import ROOT, popen
command = [sys.executable, "-m", "deploy.local.cluster.apiserver", "--state", sys.argv[1]]
with open(os.devnull, "r+b") as none:
    process = popen(command, cwd=ROOT, env={}, stdin=none, stdout=none, stderr=none)
print(process.pid, flush=True)
os.kill(os.getpid(), 9)
"""


def test_forks_end_with_the_process_that_requested_them(tmp_path: Path) -> None:
    (tmp_path / "identities.json").write_text("{}")
    command = [sys.executable, "-c", LEAVES, str(tmp_path)]
    left = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, timeout=60)
    assert left.returncode == -signal.SIGKILL
    deadline = time.monotonic() + 30
    while Path(f"/proc/{int(left.stdout)}").exists():
        assert time.monotonic() < deadline, "it runs on"
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("command", "cwd", "env"),
    [
        ([sys.executable, "-c", ""], ROOT, {}),
        ([*GATEWAY, "--help"], Path("/"), {}),
        ([*GATEWAY, "--help"], ROOT, {"PYTHONHASHSEED": "1"}),
    ],
)
def test_other_commands_are_started_without_fork(
    command: list[str], cwd: Path, env: dict[str, str]
) -> None:
    process = popen(command, cwd=cwd, env=env, stdout=subprocess.DEVNULL)
    assert isinstance(process, subprocess.Popen)
    assert process.wait(60) == 0


def test_a_fork_awaited_by_two_threads_closes_no_foreign_descriptor(tmp_path: Path) -> None:
    with (tmp_path / "log").open("wb") as log:
        process = popen([*GATEWAY, "--version"], cwd=ROOT, env=ENVIRONMENT, stdout=log, stderr=log)
    codes: list[int] = []
    waiting = [threading.Thread(target=lambda: codes.append(process.wait(60))) for _ in range(8)]
    for thread in waiting:
        thread.start()
    for thread in waiting:
        thread.join()
    opened = [os.open("/dev/null", os.O_RDONLY) for _ in range(8)]
    assert codes == [0] * 8
    assert process.poll() == 0
    for number in opened:
        os.close(number)
