"""Starts ``python -m controller`` and similar commands by a fork of a process that imported them.

Most of such a start is imports: seconds of CPU time, hundreds of times in a test run. A forked
command has its own arguments, environment, files and exit code, and its ``__main__`` is read anew.
These commands are started for real:

- commands that are no such module, run elsewhere, or set options of Python itself
- the programs of the demo, the images and the wheels

All forks of one process share one seed of ``hash()`` and the modules of both sides. Tests that
replicas agree despite different seeds, and tests of what a process imports, start real processes.
The garbage collector ignores all imported objects, as ``tune_collector`` arranges in a gateway and
a
controller. One pass over them would take longer than the rest of a start.
"""

from __future__ import annotations

import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
import weakref
from collections.abc import Iterable, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache
from pathlib import Path
from typing import IO, Any, Final, NoReturn, TypeAlias, cast

ROOT: Final = Path(__file__).parents[1]
MODULES: Final = frozenset(
    (
        "controller",
        "gateway",
        "deploy.local.cluster.apiserver",
        "deploy.local.cluster.kubelet",
        "deploy.local.cluster.volcano",
    )
)
START_SECONDS: Final = 120.0
_MOST_BYTES: Final = 2**17
_HARMLESS: Final = frozenset(("PYTHONPATH", "PYTHONUNBUFFERED", "PYTHONDONTWRITEBYTECODE"))
"""Of Python's own settings these are heeded here, or change nothing once all is imported."""

File: TypeAlias = int | IO[bytes] | None


def popen(
    command: Sequence[str | Path],
    *,
    cwd: Path,
    env: Mapping[str, str],
    stdin: File = None,
    stdout: File = None,
    stderr: File = None,
    start_new_session: bool = False,
) -> subprocess.Popen[bytes]:
    """Start *command* as ``subprocess.Popen`` does; only stdin and stdout may be pipes."""
    words = [str(word) for word in command]
    if not _is_warm(words, cwd, env):
        return subprocess.Popen(
            words, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr,
            start_new_session=start_new_session,
        )  # fmt: skip
    request = {"words": words[2:], "cwd": str(cwd), "env": {**env}, "session": start_new_session}
    child = Child(request, stdin, stdout, stderr)
    return cast("subprocess.Popen[bytes]", child)  # it has all attributes that callers use


def run(
    command: Sequence[str | Path],
    *,
    cwd: Path,
    env: Mapping[str, str],
    given: str = "",
    seconds: float = 120.0,
) -> subprocess.CompletedProcess[str]:
    """Run *command* as ``subprocess.run`` does, with *given* on its standard input.

    Raises:
        subprocess.TimeoutExpired: If it runs for more than *seconds*; the process is ended.
    """
    with ExitStack() as files:
        theirs, out, err = (files.enter_context(tempfile.TemporaryFile()) for _ in range(3))
        theirs.write(given.encode())
        theirs.seek(0)
        process = popen(command, cwd=cwd, env=env, stdin=theirs, stdout=out, stderr=err)
        try:
            code = process.wait(seconds)
        finally:
            process.kill()
            process.wait()
        texts = []
        for file in (out, err):
            file.seek(0)
            texts.append(file.read().decode())
    return subprocess.CompletedProcess(command, code, *texts)


def _is_warm(words: Sequence[str], cwd: Path, env: Mapping[str, str]) -> bool:
    settings = {name for name in env if name.startswith("PYTHON")}
    return (
        words[:2] == [sys.executable, "-m"]
        and words[2] in MODULES
        and cwd == ROOT
        and settings <= _HARMLESS
    )


class Child:
    """A process that another process forked, with the used part of ``subprocess.Popen``."""

    def __init__(self, request: Mapping[str, Any], stdin: File, stdout: File, stderr: File) -> None:
        self.returncode: int | None = None
        self.stdin: IO[bytes] | None = None
        self.stdout: IO[bytes] | None = None
        given = (stdin, stdout, stderr)
        files = [number if file is None else _number(file) for number, file in enumerate(given)]
        ours = list[int]()
        if stdin == subprocess.PIPE:
            files[0], end = os.pipe()
            self.stdin = os.fdopen(end, "wb", 0)
            ours.append(files[0])
        if stdout == subprocess.PIPE:
            end, files[1] = os.pipe()
            self.stdout = os.fdopen(end, "rb")
            ours.append(files[1])
        self._status, status = os.pipe()
        # The descriptor stays open after the read: another thread may wait for it.
        weakref.finalize(self, os.close, self._status)
        self._reading = threading.Lock()
        ours.append(status)
        try:
            self.pid = _server().start(request, [*files, status])
        finally:
            for number in ours:
                os.close(number)

    def poll(self) -> int | None:
        """Return the exit code (minus the number of a fatal signal); None while the child runs."""
        return self._read(0)

    def wait(self, timeout: float | None = None) -> int:
        """Return the exit code once the child has ended.

        Raises:
            subprocess.TimeoutExpired: If the child still runs at the end of the timeout.
        """
        code = self._read(timeout)
        if code is None:
            raise subprocess.TimeoutExpired(str(self.pid), timeout or 0)
        return code

    def _read(self, seconds: float | None) -> int | None:
        if self.returncode is None:
            poller = select.poll()
            poller.register(self._status, select.POLLIN)
            if poller.poll(None if seconds is None else seconds * 1000):
                with self._reading:
                    if self.returncode is None:
                        self.returncode = int(os.read(self._status, 16) or b"-9")
        return self.returncode

    def send_signal(self, number: int) -> None:
        """Send a signal to the child, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # it has just ended
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Send SIGTERM."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """Send SIGKILL."""
        self.send_signal(signal.SIGKILL)


def _number(file: int | IO[bytes]) -> int:
    if file == subprocess.DEVNULL:
        raise ValueError("give it an open file")
    return file if isinstance(file, int) else file.fileno()


class _Server:
    """This process' end of the socket to the fork server."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._socket, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._socket.settimeout(START_SECONDS)
        environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        with theirs:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "tests.warm", str(theirs.fileno())],
                cwd=ROOT, env=environment | {"PYTHONUNBUFFERED": "1"},
                pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL,
            )  # fmt: skip

    def start(self, request: Mapping[str, Any], files: list[int]) -> int:
        """Return the process id of the started child."""
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], files)
            return int(self._socket.recv(16))

    def close(self) -> None:
        """End the fork server and all children that still run."""
        self._socket.close()
        self._process.wait(START_SECONDS)


_starting: Final = threading.Lock()


def _server() -> _Server:
    with _starting:  # threads may race here, and only one server may exist
        return _the_server()


@cache
def _the_server() -> _Server:
    return _Server()


def close() -> None:
    """End the fork server, if it runs."""
    with _starting:
        if _the_server.cache_info().currsize:
            _the_server().close()
            _the_server.cache_clear()


# The fork server


def _serve(listener: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Fork for each request, and return in the fork; report each exit status on its last file."""
    poller = select.poll()
    poller.register(listener, select.POLLIN)
    children: dict[int, tuple[int, int]] = {}
    while True:
        for ready, _ in poller.poll():
            if ready in children:
                poller.unregister(ready)
                _tell(ready, *children.pop(ready))
                continue
            data, files, _, _ = socket.recv_fds(listener, _MOST_BYTES, 4)
            if not data:
                _end(pid for pid, _ in children.values())
            request = json.loads(data)
            _import(request["words"][0])
            pid = os.fork()
            if pid == 0:
                listener.detach()
                return request, files
            for number in files[:3]:
                os.close(number)
            watched = os.pidfd_open(pid)
            children[watched] = pid, files[3]
            poller.register(watched, select.POLLIN)
            listener.send(str(pid).encode())


def _import(module: str) -> None:
    """Import what the module's ``__main__`` imports, but leave ``__main__`` itself to the fork."""
    if module not in sys.modules:
        importlib.import_module(f"{module}.__main__")
        del sys.modules[f"{module}.__main__"]
        gc.collect()
        gc.freeze()
    assert threading.active_count() == 1, "a fork would lose threads"


def _end(left: Iterable[int]) -> NoReturn:
    """End with the parent process, however it ended, and with all children that still run."""
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    os._exit(0)


def _tell(watched: int, pid: int, status: int) -> None:
    _, code = os.waitpid(pid, 0)
    with suppress(BrokenPipeError):
        os.write(status, str(os.waitstatus_to_exitcode(code)).encode())
    os.close(status)
    os.close(watched)


def _become(request: dict[str, Any], files: list[int]) -> None:
    """Turn this fork into the process that the command would have started."""
    for target, number in enumerate(files[:3]):
        os.dup2(number, target)
    os.closerange(3, 2**20)
    if request["session"]:
        os.setsid()
    os.environ.clear()
    os.environ.update(request["env"])
    os.chdir(request["cwd"])
    time.tzset()
    more = os.environ.get("PYTHONPATH", "")
    sys.path[1:1] = [path for path in more.split(os.pathsep) if path]
    importlib.invalidate_caches()
    sys.argv = request["words"]
    runpy.run_module(request["words"][0], run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    _become(*_serve(socket.socket(fileno=int(sys.argv[1]))))
