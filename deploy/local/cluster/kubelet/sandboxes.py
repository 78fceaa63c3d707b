"""The kubelet's side of a Pod's sandbox: starts it, runs processes in it, reaches its network."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Self

from deploy.local.cluster.kubelet.listeners import Listeners
from deploy.local.cluster.kubelet.memory import Processes

_PROGRAM: Final = str(Path(__file__).with_name("sandbox.py"))
_UNSHARE: Final = ("unshare", "-Urmnpfui", "--kill-child", "--propagation", "private")
_START_SECONDS: Final = 30.0
_PACKET_BYTES: Final = 65536
Spec = dict[str, Any]


class SandboxFailed(RuntimeError):
    """A sandbox could not be started, or is gone."""


class StartFailed(RuntimeError):
    """A process could not be started in a sandbox; the message has the reason."""


def namespaces_available() -> bool:
    """Whether the kernel allows this user to make the namespaces of a Pod."""
    command = [*_UNSHARE, "mount", "-t", "proc", "proc", "/proc"]
    try:
        return subprocess.run(command, capture_output=True, timeout=5, check=False).returncode == 0
    except (OSError, subprocess.TimeoutExpired):
        return False


@dataclass(slots=True)
class Process:
    """A process in a sandbox."""

    pid: int
    """The process id inside the sandbox; ``exec`` needs it to run a process beside this one."""

    terminal: int | None
    _reply: socket.socket = field(repr=False)

    async def wait(self) -> int:
        """Return the exit code; negative: the number of the signal that ended it."""
        message, _ = await _receive(self._reply)
        self._reply.close()
        # Without a final report its supervisor was killed, and so was the process.
        return int(message["exit"]) if message else -signal.SIGKILL

    def send_signal(self, number: int) -> None:
        """Send a signal, unless the process has ended."""
        with contextlib.suppress(OSError):
            self._reply.send(json.dumps({"signal": number}).encode())

    def leave(self) -> None:
        """Close the connection: a container's process is killed, another one runs on."""
        self._reply.close()


class Sandbox:
    """A Pod's first process and the namespaces that it holds. Made by `start`."""

    def __init__(
        self, process: subprocess.Popen[bytes], control: socket.socket, *, isolated: bool
    ) -> None:
        self.isolated = isolated
        self._process = process
        self._control = control
        self._turn = asyncio.Lock()
        self._listeners = Listeners((), None)
        self._processes: Processes | None = None

    @classmethod
    async def start(cls, *, isolated: bool) -> Self:
        """Start a sandbox.

        Raises:
            SandboxFailed: If it does not start.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        with theirs:
            mode = "isolated" if isolated else "plain"
            command = [sys.executable, "-I", "-S", _PROGRAM, str(theirs.fileno()), mode]
            process = _spawn([*(_UNSHARE if isolated else ()), *command], theirs.fileno())
        sandbox = cls(process, ours, isolated=isolated)
        try:
            async with asyncio.timeout(_START_SECONDS):
                hello, fds = await _receive(ours)
        except TimeoutError:
            hello = None
        if hello is None:
            await sandbox.close()
            raise SandboxFailed("the sandbox did not start")
        sandbox._processes = Processes(fds.pop(0))
        kernel = socket.socket(fileno=fds.pop()) if hello["diag"] else None
        sandbox._listeners = Listeners(fds, kernel)
        return sandbox

    async def close(self) -> None:
        """End everything in the sandbox, and the sandbox."""
        self._control.close()
        self._listeners.close()
        if self._processes is not None:
            self._processes.close()
        await asyncio.to_thread(_end, self._process)

    async def set_hostname(self, name: str) -> None:
        """Make *name* the Pod's host name."""
        if self.isolated:
            await self._ask({"op": "hostname", "name": name})

    async def mount_memory(self, path: Path, size: int | None) -> None:
        """Mount a file system of at most *size* bytes on *path*, visible to all containers."""
        if self.isolated:
            await self._ask({"op": "tmpfs", "path": str(path), "size": size})

    async def run(self, spec: Spec, stdio: Sequence[int]) -> Process:
        """Start a process. Its three descriptors *stdio* stay the caller's to close.

        Raises:
            StartFailed: If the program could not be executed.
            SandboxFailed: If the sandbox is gone.
        """
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        ours.setblocking(False)
        body = os.memfd_create("spec")  # a file without a name: the environment holds secrets
        try:
            os.write(body, json.dumps({**spec, "isolated": self.isolated}).encode())
            try:
                fds = [theirs.fileno(), body, *stdio]
                socket.send_fds(self._control, [b'{"op":"run"}'], fds)
            except OSError as error:
                raise SandboxFailed("the sandbox is gone") from error
        finally:
            os.close(body)
            theirs.close()
        async with asyncio.timeout(_START_SECONDS):
            response, fds = await _receive(ours)
        if response is None or "error" in response:
            ours.close()
            raise StartFailed(response["error"] if response else "it was killed while starting")
        return Process(response["pid"], fds[0] if fds else None, ours)

    async def connect(self, address: str, port: int) -> socket.socket:
        """Return a connection to *port*, opened from inside the Pod's network.

        Raises:
            OSError: If nothing listens there.
        """
        connection = await self.socket(socket.AF_INET, socket.SOCK_STREAM)
        try:
            await asyncio.get_running_loop().sock_connect(connection, (address, port))
        except BaseException:  # cancellation too: nothing else would close it
            connection.close()
            raise
        return connection

    async def socket(self, family: int, kind: int, protocol: int = 0) -> socket.socket:
        """Return a new non-blocking socket of the Pod's network."""
        if self.isolated:
            fds = await self._ask({"op": "socket", "of": [family, kind, protocol]})
            fresh = socket.socket(fileno=fds[0])
        else:
            fresh = socket.socket(family, kind, protocol)
        fresh.setblocking(False)
        return fresh

    def memory_of(self, process: Process) -> int:
        """Return the bytes of memory of *process* and its descendants."""
        return 0 if self._processes is None else self._processes.memory_of(process.pid)

    def cpu_seconds_of(self, process: Process) -> float:
        """Return the CPU time of *process* and its descendants."""
        return 0.0 if self._processes is None else self._processes.cpu_seconds_of(process.pid)

    def listening_ports(self, address: str) -> set[int]:
        """Return the TCP ports that accept connections to *address* itself or to any address."""
        return self._listeners.ports(address)

    async def _ask(self, request: Spec) -> list[int]:
        async with self._turn:
            try:
                self._control.send(json.dumps(request).encode())
                async with asyncio.timeout(_START_SECONDS):
                    response, fds = await _receive(self._control)
            except (OSError, TimeoutError) as error:
                raise SandboxFailed("the sandbox is gone") from error
        if response is None:
            raise SandboxFailed("the sandbox is gone")
        return fds


def _spawn(command: list[str], kept: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        pass_fds=(kept,),
        env={"PATH": os.defpath + ":/usr/sbin:/sbin"},
        start_new_session=True,
    )


def _end(process: subprocess.Popen[bytes]) -> None:
    """Wait for a sandbox whose socket is closed; kill it if it does not end by itself."""
    try:
        process.wait(3.0)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(3.0)


async def _receive(source: socket.socket) -> tuple[Spec | None, list[int]]:
    """Return the next packet and its descriptors; None at the end."""
    while True:
        try:
            packet, fds, _, _ = socket.recv_fds(source, _PACKET_BYTES, 8)
        except BlockingIOError:
            await _readable(source)
            continue
        except OSError:
            return None, []
        return (json.loads(packet), fds) if packet else (None, fds)


async def _readable(source: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(source, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(source)
