"""Runs a command in a container over ``pods/exec``, as a byte stream of a terminal.

The WebSocket uses ``v5.channel.k8s.io`` or, with API servers before 1.30, ``v4``: the first byte of
each frame is its channel. The half-close of stdin, which only v5 has, is not needed by a terminal,
so both versions are treated alike.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable
from contextlib import suppress
from dataclasses import dataclass
from socket import SO_RCVBUF, SO_SNDBUF, SOL_SOCKET
from typing import Final, Protocol, TypeAlias

import aiohttp
import msgspec

from controller.kube.client import Kube, path_of
from controller.kube.errors import Unavailable
from controller.kube.kinds import PODS
from controller.kube.transport import WebSocket
from shared.errors import FumaroleError
from shared.text import whole_number

PROTOCOLS: Final = ("v5.channel.k8s.io", "v4.channel.k8s.io")
OPEN_SECONDS: Final = 10.0
# Without pings, which the API server answers, a dead connection would stay unnoticed.
PING_SECONDS: Final = 30.0
PONG_SECONDS: Final = 15.0
UNREAD_BYTES: Final = 256
"""With more input than this that the server may not have read, no Pong is expected. An API server
reads frames in order: a ping waits behind input that the program does not read."""
# Longer writes are split: kubelets read frames into buffers of this size.
INPUT_BYTES: Final = 32 * 1024
# By default the kernel buffers megabytes of either direction, and an interrupt takes effect only
# behind them.
BUFFER_BYTES: Final = 128 * 1024


_UNREACHABLE: Final = re.compile(
    # The API server, about its connection to the kubelet.
    r"error (?:sending request|dialing backend|reading from error stream)"
    r"|unable to upgrade connection|container not found"
    # Go's errors of networks.
    r"|connection (?:refused|reset by peer|timed out)|no route to host|network is unreachable"
    r"|i/o timeout|TLS handshake timeout|broken pipe|unexpected EOF"
    r"|use of closed network connection"
    # Runtimes, about a container without processes (CRI-O, containerd, Docker).
    r"|cannot exec in a stopped|container is not created or running|no running task found"
    r"|CONTAINER_EXITED|ontainer \S+ is not running"
)
"""A Status about the way to the container, and not about the command.

With ``v5.channel.k8s.io``, an API server (1.30 and later) accepts the WebSocket before it connects
to the kubelet (``StreamTranslatorHandler``). So it reports refusals and lost connections in the
Status.
"""

_INPUT: Final = b"\x00"
_OUTPUT: Final = frozenset((1, 2))
_STATUS: Final = 3
_RESIZE: Final = b"\x04"


class ExecFailed(FumaroleError):
    """The command could not be started; ``status`` is the API server's, 0 without a response."""

    def __init__(self, message: str, *, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


@dataclass(frozen=True, slots=True)
class ExecTarget:
    """The container in which a command runs."""

    namespace: str
    pod: str
    name: str


@dataclass(frozen=True, slots=True)
class Exited:
    """The end of a command: its exit ``code``, or None and the reason why it is not known."""

    code: int | None
    message: str = ""
    lost: bool = False
    """The connection was lost: the command may still run, but cannot be reached again."""


Received: TypeAlias = bytes | Exited

_LOST: Final = Exited(None, "the connection to the container was lost", lost=True)


class TerminalStream(Protocol):
    """A command that runs with a terminal."""

    async def receive(self) -> Received:
        """Return the next output (never empty), or how the command ended, also if called again."""

    async def send(self, data: bytes) -> None:
        """Send *data* as input; returns when more may be sent. After the end, does nothing."""

    async def resize(self, cols: int, rows: int) -> None:
        """Resize the terminal. After the end, does nothing."""

    async def close(self) -> None:
        """Close the connection. A repeated call does nothing."""


class Executor(Protocol):
    """Starts commands in containers."""

    async def open(self, container: ExecTarget, command: list[str]) -> TerminalStream:
        """Start *command* with a terminal.

        Raises:
            ExecFailed: If it was refused before anything ran.
        """


class PodExec:
    """Starts commands over ``pods/exec``."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def open(self, container: ExecTarget, command: list[str]) -> TerminalStream:
        """Start *command* with a terminal.

        Raises:
            ExecFailed: If the API server refuses, or does not respond within ten seconds.
        """
        try:
            async with asyncio.timeout(OPEN_SECONDS):
                return ExecStream(await self._connect(container, command))
        except aiohttp.WSServerHandshakeError as error:
            # aiohttp drops the Status in the response's body; the HTTP status is enough.
            text = f"pods/exec was refused with {error.status}"
            if error.status == 403:
                right = f"get and create pods/exec in the namespace {container.namespace}"
                text += f": missing permission to {right} (ClusterRole fumarole-terminals)"
            raise ExecFailed(text, status=error.status) from error
        except (aiohttp.ClientError, OSError) as error:
            raise ExecFailed(f"pods/exec failed: {type(error).__name__}") from error
        except Unavailable as error:
            raise ExecFailed(f"pods/exec failed: {error}", status=401) from error

    async def _connect(self, container: ExecTarget, command: list[str]) -> WebSocket:
        # With a terminal, stderr is not separate.
        query = [("container", container.name), ("stdin", "1"), ("stdout", "1"), ("tty", "1")]
        query += [("command", part) for part in command]
        path = path_of(PODS, container.namespace, container.pod, "exec")
        socket = await self._kube.websocket(path, query, PROTOCOLS)
        if socket.protocol not in PROTOCOLS:
            await socket.close()
            raise ExecFailed("the API server supports none of our exec protocols")
        _bound_buffers(socket)
        return socket


def _bound_buffers(socket: WebSocket) -> None:
    """Bound the kernel's buffers; Linux allocates twice this number."""
    connection = socket.get_extra_info("socket")
    if connection is not None:
        connection.setsockopt(SOL_SOCKET, SO_RCVBUF, BUFFER_BYTES)
        connection.setsockopt(SOL_SOCKET, SO_SNDBUF, BUFFER_BYTES)


class ExecStream:
    """A connected ``pods/exec`` stream; see :class:`TerminalStream`."""

    def __init__(self, socket: WebSocket) -> None:
        self._socket = socket
        self._status = b""
        self._exited: Exited | None = None
        self._sent = self._confirmed = self._pinged = 0
        # Whether a Pong is awaited since the last message.
        self._asked = False

    @property
    def _unread(self) -> int:
        """How many bytes of input the server may not have read yet."""
        return self._sent - self._confirmed

    async def receive(self) -> Received:
        """Return the next output, or how the command ended."""
        while self._exited is None:
            try:
                message = await self._socket.receive(PONG_SECONDS if self._asked else PING_SECONDS)
            except TimeoutError:
                await self._note_silence()
                continue
            self._asked = False
            if message.type is aiohttp.WSMsgType.BINARY:
                if output := self._take(message.data):
                    return output
            elif message.type is aiohttp.WSMsgType.PING:
                await self._within(self._socket.pong(message.data))
            elif message.type is aiohttp.WSMsgType.PONG:
                self._confirmed = self._pinged
            elif message.type is not aiohttp.WSMsgType.TEXT:
                # An exec always ends with 1006, without a close frame. Without a Status before
                # it, the connection was lost.
                self._exited = read_status(self._status) or _LOST
        return self._exited

    async def _note_silence(self) -> None:
        """Send a ping; after an unanswered one, the connection is lost."""
        if not self._asked:
            self._asked = True
            await self._ping()
        elif self._unread <= UNREAD_BYTES:
            self._exited = _LOST

    async def _ping(self) -> None:
        """Send a ping, unless one that confirms other input is unanswered."""
        if self._pinged == self._confirmed:
            self._pinged = self._sent
            await self._within(self._socket.ping())

    async def _within(self, sending: Awaitable[None]) -> None:
        """Send a control frame; give up where it waits behind input."""
        with suppress(TimeoutError, aiohttp.ClientError, OSError):
            async with asyncio.timeout(PONG_SECONDS):
                await sending

    def _take(self, frame: bytes) -> bytes:
        """Return the output in *frame*; empty for other channels."""
        if len(frame) < 2:
            return b""  # kubelets open each channel with an empty frame
        if frame[0] in _OUTPUT:
            return frame[1:]
        if frame[0] == _STATUS:
            self._status += frame[1:]
            self._exited = read_status(self._status)
        return b""

    async def send(self, data: bytes) -> None:
        """Send *data* as input."""
        for begin in range(0, len(data), INPUT_BYTES):
            self._sent += len(data[begin : begin + INPUT_BYTES])
            await self._send(_INPUT + data[begin : begin + INPUT_BYTES])
            # Output may never pause for a ping, and does not tell which input was read.
            if self._exited is None and self._unread > UNREAD_BYTES // 2:
                await self._ping()

    async def resize(self, cols: int, rows: int) -> None:
        """Resize the terminal."""
        await self._send(_RESIZE + msgspec.json.encode({"Width": cols, "Height": rows}))

    async def _send(self, frame: bytes) -> None:
        if self._exited is not None:
            return
        try:
            await self._socket.send_bytes(frame)
        except (aiohttp.ClientError, OSError):
            return  # receive() reports how the stream ended

    async def close(self) -> None:
        """Close the connection."""
        self._exited = self._exited or Exited(None, "closed", lost=True)
        await self._socket.close()


class _Cause(msgspec.Struct):
    reason: str = ""
    message: str = ""


class _Details(msgspec.Struct):
    causes: list[_Cause] | None = None


class _Status(msgspec.Struct):
    status: str = ""
    reason: str = ""
    message: str = ""
    details: _Details | None = None


_STATUS_DECODER = msgspec.json.Decoder(_Status)


def read_status(data: bytes) -> Exited | None:
    """Return how the command ended by the ``Status`` in *data*; None if it is incomplete."""
    try:
        status = _STATUS_DECODER.decode(data)
    except msgspec.DecodeError:
        return None
    if status.status == "Success":
        return Exited(0)
    causes = (status.details.causes if status.details else None) or []
    for cause in causes:
        code = whole_number(cause.message) if cause.reason == "ExitCode" else None
        if code is not None:
            return Exited(code, status.message)
    message = status.message or status.reason or "the command failed"
    return Exited(None, message, lost=_UNREACHABLE.search(message) is not None)
