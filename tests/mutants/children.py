"""Runs forked processes with deadlines, and ends all that they started."""

from __future__ import annotations

import ctypes
import os
import resource
import select
import shutil
import signal
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final, Literal

import psutil

Outcome = Literal["passed", "failed", "timed out"]

_PR_SET_CHILD_SUBREAPER: Final = 36
# A mutant that allocates without end fails at this limit, before the machine runs out of memory.
_MOST_MEMORY: Final = 4 << 30
_MOST_OUTPUT: Final = 1 << 30


def adopt_orphans() -> None:
    """Become the parent of a child's orphans, so that they are found and ended."""
    ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def run_forked(work: Callable[[], bool], seconds: float) -> Outcome:
    """Do *work* in a fork of this process; end the processes that it left, and remove its files.

    The fork has *seconds* of wall time. Anything but ``True`` is a failure: an exception, a
    signal, an exit.
    """
    folder = tempfile.mkdtemp(prefix="mu")
    pid = os.fork()
    if pid == 0:
        _work(work, folder)
    try:
        return _outcome(pid, seconds)
    finally:
        _end_children()
        shutil.rmtree(folder, ignore_errors=True)


def _work(work: Callable[[], bool], folder: str) -> None:
    """Do the work and exit, without the parent's exit handlers."""
    code = 1
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_DATA, (_MOST_MEMORY, _MOST_MEMORY))
        resource.setrlimit(resource.RLIMIT_FSIZE, (_MOST_OUTPUT, _MOST_OUTPUT))
        nothing = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):
            os.dup2(nothing, descriptor)
        os.environ["PYTEST_DEBUG_TEMPROOT"] = os.environ["TMPDIR"] = tempfile.tempdir = folder
        code = 0 if work() else 1
    except BaseException:
        code = 1
    finally:
        os._exit(code)


def _outcome(pid: int, seconds: float) -> Outcome:
    descriptor = os.pidfd_open(pid)
    try:
        poll = select.poll()
        poll.register(descriptor, select.POLLIN)
        ended = poll.poll(seconds * 1000)
    finally:
        os.close(descriptor)
    if not ended:
        return "timed out"
    _, status = os.waitpid(pid, 0)
    return "passed" if status == 0 else "failed"


def _end_children() -> None:
    """End all current children of this process, at most a few generations."""
    me = psutil.Process()
    for _ in range(20):
        left = me.children(recursive=True)
        if not left:
            return
        for process in left:
            try:
                process.send_signal(signal.SIGKILL)
            except psutil.NoSuchProcess:
                continue
        psutil.wait_procs(left, timeout=1)
        time.sleep(0.01)


def read_lines(path: Path) -> list[str]:
    """Return the lines of a file that a child wrote; none if the child wrote no file."""
    return path.read_text().splitlines() if path.exists() else []
