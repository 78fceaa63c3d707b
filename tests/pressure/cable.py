"""Two hosts and a cable between them that can be cut: a program in its own user namespace.

The gateway runs on ``near``; ``far`` is another host. The program passes the sockets that it makes
to the test as descriptors. A socket stays in the network in which it was made, whoever holds it.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Self

NEAR, FAR = "10.99.0.1", "10.99.0.2"
ROOT = Path(__file__).parents[2]
CALL_SECONDS = 10.0
_CLONE_NEWNET = 0x40000000
_libc = ctypes.CDLL(None, use_errno=True)


class Cable:
    """Both hosts, as a test sees them."""

    def __init__(self) -> None:
        self._ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._ours.settimeout(CALL_SECONDS)
        self._asking = threading.Lock()
        command = ["unshare", "-Urn", sys.executable, "-m", __name__, str(theirs.fileno())]
        self._process = subprocess.Popen(command, cwd=ROOT, pass_fds=[theirs.fileno()])
        theirs.close()

    def enter(self, command: list[str]) -> list[str]:
        """Return *command* wrapped so that it runs on the near host."""
        target = ["-t", str(self._process.pid), "-U", "-n", "--preserve-credentials"]
        return ["nsenter", *target, *command]

    async def listen(self, where: str, window: int | None = None) -> socket.socket:
        """Return a listening socket on that host; its connections have a small *window*."""
        return await self._made(do="listen", where=where, window=window)

    async def connect(
        self,
        where: str,
        address: tuple[str, int],
        source: tuple[str, int] | None,
        window: int | None = None,
    ) -> socket.socket:
        """Return a connection that is made on that host."""
        return await self._made(
            do="connect", where=where, address=address, source=source, window=window
        )

    async def cut(self) -> None:
        """Drop all packets from now on; neither side is notified."""
        await self._call(do="cut")

    async def _made(self, **what: Any) -> socket.socket:
        found = await self._call(**what)
        assert len(found) == 1, f"no socket for {what}"
        made = socket.socket(fileno=found[0])
        made.setblocking(False)
        return made

    async def _call(self, **what: Any) -> list[int]:
        return await asyncio.to_thread(self._ask, json.dumps(what).encode())

    def _ask(self, data: bytes) -> list[int]:
        with self._asking:  # or a thread would get the reply to another one
            self._ours.send(data)
            response, descriptors, _, _ = socket.recv_fds(self._ours, 4096, 1)
        assert response == b"ok", response
        return descriptors

    def __enter__(self) -> Self:
        assert self._ours.recv(2) == b"ok"
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._ours.close()
        self._process.wait(CALL_SECONDS)


# The program


class _Hosts:
    """The two networks. One thread only, because a thread is in one network at a time."""

    def __init__(self) -> None:
        self._near = os.open("/proc/self/ns/net", os.O_RDONLY)
        _ip("link set lo up")
        _check(_libc.unshare(_CLONE_NEWNET))
        self._far = os.open("/proc/self/ns/net", os.O_RDONLY)
        _ip("link set lo up")
        with self._at(self._near):
            _ip(f"link add near type veth peer name far netns /proc/{os.getpid()}/fd/{self._far}")
            _ip(f"addr add {NEAR}/24 dev near")
            _ip("link set near up")
        with self._at(self._far):
            _ip(f"addr add {FAR}/24 dev far")
            _ip("link set far up")
        _check(_libc.setns(self._near, 0))

    @contextmanager
    def _at(self, host: int) -> Iterator[None]:
        _check(_libc.setns(host, 0))
        try:
            yield
        finally:
            _check(_libc.setns(self._near, 0))

    def do(self, what: dict[str, Any]) -> list[socket.socket]:
        """Carry out *what*, and return the socket that it made."""
        with self._at(self._far if what.get("where", "far") == "far" else self._near):
            match what["do"]:
                case "listen":
                    return [_listen(FAR if what["where"] == "far" else "127.0.0.1", what["window"])]
                case "connect":
                    return [_connect(what["address"], what["source"], what["window"])]
                case _:
                    _ip("link set far down")
                    return []


def _listen(host: str, window: int | None) -> socket.socket:
    made = _socket(window)
    made.bind((host, 0))
    made.listen(256)
    return made


def _connect(
    address: tuple[str, int], source: tuple[str, int] | None, window: int | None
) -> socket.socket:
    made = _socket(window)
    made.settimeout(CALL_SECONDS)
    if source is not None:
        made.bind(tuple(source))
    made.connect(tuple(address))
    return made


def _socket(window: int | None) -> socket.socket:
    made = socket.socket()
    if window is not None:
        made.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, window)
    return made


def _ip(arguments: str) -> None:
    subprocess.run(["ip", *arguments.split()], check=True)


def _check(result: int) -> None:
    if result:
        raise OSError(ctypes.get_errno(), "the kernel refused")


def main(descriptor: int) -> None:
    """Serve the test at the other end of *descriptor* until the test ends."""
    control = socket.socket(fileno=descriptor)
    hosts = _Hosts()
    control.send(b"ok")
    while data := control.recv(4096):
        made = hosts.do(json.loads(data))
        socket.send_fds(control, [b"ok"], [one.fileno() for one in made])
        for one in made:
            one.close()


if __name__ == "__main__":
    main(int(sys.argv[1]))
