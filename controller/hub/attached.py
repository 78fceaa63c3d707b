"""One attached WebSocket: sends a shell's output to a client, and the client's input to it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from time import monotonic, perf_counter
from typing import Final

from aiohttp import ClientError, WSMsgType, web

from controller.hub.claims import Holder
from controller.hub.protocol import (
    ENDED,
    MAX_FRAME_BYTES,
    SUBPROTOCOL,
    TRY_LATER,
    CloseCode,
    Ping,
    Renew,
    Resize,
    Resume,
    Seen,
    Size,
    attached_text,
    exit_text,
    pong_text,
    read_text,
    refused_text,
    resized_text,
    revoked_input_text,
    shells_text,
    skipped_text,
)
from controller.hub.shell import Reader, Shell, ShellEnd
from controller.hub.turns import WORK_SECONDS
from controller.hub.window import SendWindow
from shared.tokens import Mode

PIECE_BYTES: Final = 64 * 1024
# A client is disconnected if it, or the shell for its input, accepts no byte for so long.
STUCK_SECONDS: Final = 30.0
PING_SECONDS: Final = 30.0
GOODBYE_SECONDS: Final = 2.0
# CAN ends an incomplete sequence, SGR 0 resets colours that it may have left on.
_AFTER_A_GAP: Final = b"\x18\x1b[m"


class _Stuck(Exception):
    """The client accepts no output, or the shell accepts no input."""


class Attached:
    """A client of *shell*, from :meth:`serve` until either has ended.

    Args:
        socket: The prepared WebSocket.
        mode: Whether the client may send input; the hub itself enforces this.
        holder: The client's grant, so that a revocation finds its input.
        resume: The position from which to send output; None for clients of earlier versions.
        names: Returns the current names of the session's shells.
        abort: Resets the connection and drops unsent data.
    """

    def __init__(
        self,
        shell: Shell,
        socket: web.WebSocketResponse,
        *,
        mode: Mode,
        abort: Callable[[], None],
        holder: Holder,
        resume: Resume | None,
        names: Callable[[], Sequence[str]],
    ) -> None:
        self._holder = holder
        self._resume = resume
        self._names = names
        self._told: Sequence[str] = ("",)
        self._told_suspect = False
        self._window = SendWindow()
        self._shell = shell
        self._socket = socket
        self._mode = mode
        self._abort = abort
        self._size = shell.size

    async def serve(self) -> None:
        """Relay output and input until the client leaves or the shell ends; then close."""
        shell, resumed = self._shell, self._shell.visited
        ring, resume = shell.scrollback, self._resume
        reader = shell.enter(self._holder, may_type=self._mode == "control", resume=resume)
        begin = (shell.stream_id, reader.position, ring.end) if resume is not None else None
        first = attached_text(mode=self._mode, resumed=resumed, size=self._size, begin=begin)
        # Taken now: output that arrives before the first message would otherwise be sent twice.
        replay = ring.replay() if resume is None else b""
        showing = asyncio.create_task(self._show(reader, first, replay))
        typing = asyncio.create_task(self._type(reader))
        try:
            done, _ = await asyncio.wait((showing, typing), return_when=asyncio.FIRST_COMPLETED)
            if showing in done and (ending := _result(showing)):
                await self._goodbye(ending)
            elif any(isinstance(task.exception(), _Stuck) for task in done):
                await self._close(TRY_LATER, "too slow")
        finally:
            shell.leave(reader)
            showing.cancel()
            typing.cancel()
            await asyncio.gather(showing, typing, return_exceptions=True)
            await self._close(TRY_LATER, "")

    # Output

    async def _show(self, reader: Reader, first: str, replay: bytes) -> ShellEnd | None:
        """Send all output of the shell; return how the shell ended."""
        shell = self._shell
        await self._text(first)
        for begin in range(0, len(replay), PIECE_BYTES):
            await self._bytes(replay[begin : begin + PIECE_BYTES])
        while True:
            reader.changed.clear()
            if reader.ending is not None:
                return reader.ending
            await self._send_changes()
            if self._must_wait(reader):
                await reader.changed.wait()
                continue
            data, skipped = shell.read(reader, PIECE_BYTES)
            if skipped:
                self._window.leave_out(reader.position - len(data), skipped)
                await self._text(skipped_text(skipped))
                if self._resume is None:
                    data = _AFTER_A_GAP + data
            if data:
                await self._bytes(data)
            elif shell.ending is not None:
                return shell.ending
            else:
                await reader.changed.wait()

    async def _send_changes(self) -> None:
        """Send what has changed about the shell, except its output."""
        shell = self._shell
        if shell.suspect and not self._told_suspect:
            self._told_suspect = True
            await self._text(revoked_input_text())
        if shell.size != self._size:
            self._size = shell.size
            await self._text(resized_text(self._size))
        if (names := self._names()) != self._told:
            self._told = names
            await self._text(shells_text(names))

    def _must_wait(self, reader: Reader) -> bool:
        """Return whether sending must wait for the client; the end of the output never waits."""
        if self._shell.ending is not None:
            return False
        return self._window.is_full(reader.position) or self._shell.is_held(reader)

    async def _text(self, text: str) -> None:
        await self._within_bounds(self._socket.send_str(text))

    async def _bytes(self, data: bytes) -> None:
        await self._within_bounds(self._socket.send_bytes(data))

    async def _within_bounds(self, sending: Awaitable[None]) -> None:
        try:
            async with asyncio.timeout(STUCK_SECONDS):
                await sending
        except TimeoutError:
            raise _Stuck from None

    # Input

    async def _type(self, reader: Reader) -> None:
        """Send the client's input to the shell, until the client leaves."""
        may_type = self._mode == "control"
        until = perf_counter() + WORK_SECONDS
        while True:
            message = await self._socket.receive()
            if perf_counter() >= until:
                # aiohttp returns queued messages without a turn of the loop between them.
                await asyncio.sleep(0)
                until = perf_counter() + WORK_SECONDS
            if message.type in (WSMsgType.CLOSE, WSMsgType.CLOSING, WSMsgType.CLOSED):
                return
            if message.type is WSMsgType.ERROR:
                return
            if message.type is WSMsgType.PING:
                # Not aiohttp's own Pong, which waits without a deadline for a client that does not
                # read.
                await self._within_bounds(self._socket.pong(message.data))
                continue
            if message.type is WSMsgType.PONG:
                continue
            if message.type is WSMsgType.TEXT:
                await self._take_text(message.data, reader)
            elif may_type:
                await self._within_bounds(self._shell.type(message.data, reader))

    async def _take_text(self, text: str, reader: Reader) -> None:
        if reader.ending is not None:
            return  # the grant was revoked: the message has no effect
        match read_text(text):
            case Seen(offset):
                self._window.acknowledge(offset, sent=reader.position, now=monotonic())
                reader.changed.set()
            case Ping():
                await self._text(pong_text())
            case Renew() if reader.may_type:
                self._shell.renew()
            case Resize(size=Size() as size) if reader.may_type:
                await self._within_bounds(self._shell.resize(size))
            case _:
                pass

    # The end

    async def _goodbye(self, ending: ShellEnd) -> None:
        if ending.exited:
            text = exit_text(code=ending.code, message=ending.message)
            with contextlib.suppress(ClientError, ConnectionError, TimeoutError):
                async with asyncio.timeout(GOODBYE_SECONDS):
                    await self._socket.send_str(text)
        await self._close(ending.close, ending.message)

    async def _close(self, code: CloseCode, message: str) -> None:
        if self._socket.closed:
            return
        reason = message.encode()[:120].decode(errors="ignore").encode()
        try:
            async with asyncio.timeout(GOODBYE_SECONDS):
                await self._socket.close(code=code, message=reason)
        except (ClientError, ConnectionError, TimeoutError):
            self._abort()  # otherwise the connection stays until the client reads queued data


def make_socket() -> web.WebSocketResponse:
    """Return an unprepared WebSocket for an attached client."""
    return web.WebSocketResponse(
        protocols=(SUBPROTOCOL,),
        heartbeat=PING_SECONDS,
        timeout=GOODBYE_SECONDS,
        max_msg_size=MAX_FRAME_BYTES,
        compress=False,
        autoping=False,
    )


async def refuse(socket: web.WebSocketResponse, message: str) -> None:
    """Send the reason why the client gets no shell, and close."""
    with contextlib.suppress(ClientError, ConnectionError, TimeoutError):
        async with asyncio.timeout(GOODBYE_SECONDS):
            await socket.send_str(refused_text(message))
            await socket.close(code=ENDED, message=b"no shell")


def _result(task: asyncio.Task[ShellEnd | None]) -> ShellEnd | None:
    """Return how the shell ended; None if the client disconnected first."""
    if task.cancelled() or task.exception() is not None:
        return None
    return task.result()
