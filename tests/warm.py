"""Starts ``python -m controller`` and its like by a fork of a process that has imported them.

Most of such a start is importing: seconds of a core, hundreds of times in a run of the tests. What
is started here is executed as ever, with arguments, environment, files and exit code of its own,
and its ``__main__`` is read anew. Commands that are no such module, run elsewhere or have settings
of Python's own are started for real; so are the programs of the demo, the images and the wheels.

Forks of one process have one seed of ``hash()``, and all modules of both sides: that replicas agree
although their seeds differ, and what a process imports, is for tests that start theirs for real.
The collector of cycles looks at nothing that was imported, as ``tune_collector`` has it do in a
gateway and a controller: one look would take longer than all else of a start.
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
    """Start *command* as ``subprocess.Popen`` does; pipes are for stdin and stdout alone."""
    words = [str(word) for word in command]
    if not _is_warm(words, cwd, env):
        return subprocess.Popen(
            words, cwd=cwd, env=env, stdin=stdin, stdout=stdout, stderr=stderr,
            start_new_session=start_new_session,
        )  # fmt: skip
    request = {"words": words[2:], "cwd": str(cwd), "env": {**env}, "session": start_new_session}
    child = Child(request, stdin, stdout, stderr)
    return cast("subprocess.Popen[bytes]", child)  # it has all of it that is used


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
        subprocess.TimeoutExpired: If it runs for more than *seconds*; it is ended.
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
    """A process that was forked elsewhere, with what is used of ``subprocess.Popen``."""

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
        # Not closed once it is read: another thread may be waiting for it.
        weakref.finalize(self, os.close, self._status)
        self._reading = threading.Lock()
        ours.append(status)
        try:
            self.pid = _server().start(request, [*files, status])
        finally:
            for number in ours:
                os.close(number)

    def poll(self) -> int | None:
        """Return its exit code, minus the signal's number that ended it; None while it runs."""
        return self._read(0)

    def wait(self, timeout: float | None = None) -> int:
        """Return its exit code once it has ended.

        Raises:
            subprocess.TimeoutExpired: If it runs on.
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
        """Send it a signal, unless it has ended."""
        if self.poll() is None:
            with suppress(ProcessLookupError):  # just now
                os.kill(self.pid, number)

    def terminate(self) -> None:
        """Ask it to end."""
        self.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """End it at once."""
        self.send_signal(signal.SIGKILL)


def _number(file: int | IO[bytes]) -> int:
    if file == subprocess.DEVNULL:
        raise ValueError("give it an open file")
    return file if isinstance(file, int) else file.fileno()


class _Server:
    """This process' end of the socket to the one that forks."""

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
        """Return the process id of what was started."""
        with self._lock:
            socket.send_fds(self._socket, [json.dumps(request).encode()], files)
            return int(self._socket.recv(16))

    def close(self) -> None:
        """End the one that forks, with what it has left running."""
        self._socket.close()
        self._process.wait(START_SECONDS)


_starting: Final = threading.Lock()


def _server() -> _Server:
    with _starting:  # also from threads, and there is to be one
        return _the_server()


@cache
def _the_server() -> _Server:
    return _Server()


def close() -> None:
    """End the process that forks, if there is one."""
    with _starting:
        if _the_server.cache_info().currsize:
            _the_server().close()
            _the_server.cache_clear()


# The process that forks


def _serve(listener: socket.socket) -> tuple[dict[str, Any], list[int]]:
    """Fork for each request, and return in the fork; tell each status on the last of its files."""
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
    """Import what the module's ``__main__`` does, and leave that itself for the fork."""
    if module not in sys.modules:
        importlib.import_module(f"{module}.__main__")
        del sys.modules[f"{module}.__main__"]
        gc.collect()
        gc.freeze()
    assert threading.active_count() == 1, "a fork would lose threads"


def _end(left: Iterable[int]) -> NoReturn:
    """End with the process that asked, however that ended, and with what it has left running."""
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
    """Make of this fork what the command would have been."""
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
