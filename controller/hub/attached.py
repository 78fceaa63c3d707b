"""One attached WebSocket: sends a shell's output to a client, and the client's input to it."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from time import monotonic
from typing import Final

from aiohttp import ClientError, WSMessage, WSMsgType, web

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
    typed_text,
)
from controller.hub.shell import Reader, Shell, ShellEnd
from controller.hub.turns import Turn
from controller.hub.window import SendWindow
from shared.runtime.listeners import Connection
from shared.tokens import Mode

PIECE_BYTES: Final = 64 * 1024
INPUT_BYTES: Final = 256 * 1024
"""How much input may wait for the shell before no more messages are read. A page that counts its
input sends half of this at most, so that its pings are answered while a program reads nothing."""
INPUT_PIECE_BYTES: Final = 32 * 1024
ACKNOWLEDGED_BYTES: Final = 4 * 1024
# What a piece of input costs, however small it is.
_PIECE_COST: Final = 64
_QUEUE_BYTES: Final = 512 * 1024
# A message without an end, those before it, and what is not parsed.
_MOST_UNTAKEN: Final = 2 * MAX_FRAME_BYTES
# A client is disconnected if it, or the shell for its input, accepts no byte for so long.
STUCK_SECONDS: Final = 30.0
PING_SECONDS: Final = 30.0
GOODBYE_SECONDS: Final = 2.0
# CAN ends an incomplete sequence, SGR 0 resets colours that it may have left on.
_AFTER_A_GAP: Final = b"\x18\x1b[m"


class _Stuck(Exception):
    """The client accepts no output, or sends more input than may wait for the shell."""


@dataclass(slots=True, eq=False, repr=False)
class Attached:
    """A client of *shell*, from :meth:`serve` until either has ended."""

    shell: Shell
    socket: web.WebSocketResponse
    """The prepared WebSocket."""
    _: KW_ONLY
    mode: Mode
    """Whether the client may send input; the hub itself enforces this."""
    connection: Connection
    """The connection of *socket*."""
    holder: Holder
    """The client's grant, so that a revocation finds its input."""
    resume: Resume | None
    """The position from which to send output; None for clients of earlier versions."""
    client: str | None
    """The client's name for itself, by which its input is counted over several connections; None
    for clients of earlier versions."""
    names: Callable[[], Sequence[str]]
    """Returns the current names of the session's shells."""
    _input: asyncio.Queue[bytes | Size] = field(default_factory=asyncio.Queue, init=False)
    _input_cost: int = 0
    _taken_bytes: int = field(init=False)
    """How much of what the connection has received is taken, with the upgrade's head."""
    _has_room: asyncio.Event = field(default_factory=asyncio.Event, init=False)
    _told: Sequence[str] = ("",)
    _told_suspect: bool = False
    _window: SendWindow = field(default_factory=SendWindow, init=False)
    _size: Size = field(init=False)

    def __post_init__(self) -> None:
        self._size = self.shell.size
        self._taken_bytes = self.connection.received_bytes

    @property
    def input_bytes(self) -> int:
        """An estimate of the memory of input: messages without an end, and what waits."""
        untaken = max(0, self.connection.received_bytes - self._taken_bytes)
        # Small messages take many times their size. aiohttp keeps as many while none is taken.
        small = _QUEUE_BYTES if untaken and self._input_cost > INPUT_BYTES else 0
        return untaken + self._input_cost + small

    async def serve(self) -> None:
        """Relay output and input until the client leaves or the shell ends; then close."""
        shell, resumed = self.shell, self.shell.visited
        ring, resume = shell.scrollback, self.resume
        may_type = self.mode == "control"
        reader = shell.enter(self.holder, may_type=may_type, resume=resume, client=self.client)
        begin = (shell.stream_id, reader.position, ring.end) if resume is not None else None
        typed = None if self.client is None else reader.input.typed
        first = attached_text(
            mode=self.mode, resumed=resumed, size=self._size, begin=begin, typed=typed
        )
        # Taken now: output that arrives before the first message would otherwise be sent twice.
        replay = ring.replay() if resume is None else b""
        showing = asyncio.create_task(self._show(reader, first, replay))
        reading = asyncio.create_task(self._receive(reader))
        typing = asyncio.create_task(self._type(reader))
        tasks = (showing, reading, typing)
        try:
            done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
            if showing in done and (ending := _result(showing)):
                await self._goodbye(ending)
            elif any(isinstance(task.exception(), _Stuck) for task in done):
                await self._close(TRY_LATER, "too slow")
        finally:
            shell.leave(reader)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            await self._close(TRY_LATER, "")

    # Output

    async def _show(self, reader: Reader, first: str, replay: bytes) -> ShellEnd | None:
        """Send all output of the shell; return how the shell ended."""
        shell = self.shell
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
                if self.resume is None:
                    data = _AFTER_A_GAP + data
            if data:
                await self._bytes(data)
            elif shell.ending is not None:
                return shell.ending
            else:
                await reader.changed.wait()

    async def _send_changes(self) -> None:
        """Send what has changed about the shell, except its output."""
        shell = self.shell
        if shell.suspect and not self._told_suspect:
            self._told_suspect = True
            await self._text(revoked_input_text())
        if shell.size != self._size:
            self._size = shell.size
            await self._text(resized_text(self._size))
        if (names := self.names()) != self._told:
            self._told = names
            await self._text(shells_text(names))

    def _must_wait(self, reader: Reader) -> bool:
        """Return whether sending must wait for the client; the end of the output never waits."""
        if self.shell.ending is not None:
            return False
        return self._window.is_full(reader.position) or self.shell.is_held(reader)

    async def _text(self, text: str) -> None:
        await self._within_bounds(self.socket.send_str(text))

    async def _bytes(self, data: bytes) -> None:
        await self._within_bounds(self.socket.send_bytes(data))

    async def _within_bounds(self, sending: Awaitable[object]) -> None:
        try:
            async with asyncio.timeout(STUCK_SECONDS):
                await sending
        except TimeoutError:
            raise _Stuck from None

    # Input

    async def _receive(self, reader: Reader) -> None:
        """Receive the client's messages, until the client leaves and its input is sent."""
        may_type, turn = self.mode == "control", Turn()
        while True:
            message = await self.socket.receive()
            self._note_taken(message)
            # aiohttp returns queued messages without a turn of the loop between them.
            await turn.pause()
            match message.type:
                case WSMsgType.CLOSE | WSMsgType.CLOSING | WSMsgType.CLOSED | WSMsgType.ERROR:
                    break
                case WSMsgType.PING:
                    # Not aiohttp's own Pong, which waits without a deadline for a client that does
                    # not read.
                    await self._within_bounds(self.socket.pong(message.data))
                case WSMsgType.TEXT:
                    await self._take_text(message.data, reader)
                case WSMsgType.BINARY if may_type:
                    await self._queue(message.data)
                case _:
                    pass
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(GOODBYE_SECONDS):
                await self._input.join()

    def _note_taken(self, message: WSMessage) -> None:
        content = message.data.encode() if isinstance(message.data, str) else message.data
        size = len(content) if isinstance(content, bytes) else 0
        header = 6 if size < 126 else 8 if size < 65536 else 14
        # Headers of fragments are not seen: they must not add up.
        least = self.connection.received_bytes - _MOST_UNTAKEN
        self._taken_bytes = max(least, self._taken_bytes + header + size)

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
                self.shell.renew()
            case Resize(size=Size() as size) if reader.may_type:
                await self._queue(size)
            case _:
                pass

    async def _queue(self, piece: bytes | Size) -> None:
        """Queue *piece* for the shell; return when there is room for more."""
        self._input.put_nowait(piece)
        self._input_cost += _cost(piece)
        while self._input_cost > INPUT_BYTES:
            self._has_room.clear()
            await self._within_bounds(self._has_room.wait())

    async def _type(self, reader: Reader) -> None:
        """Send the queued input to the shell, and tell the client how much the shell has."""
        told, turn = reader.input.typed, Turn()
        while True:
            piece = await self._input.get()
            await turn.pause()
            if isinstance(piece, Size):
                await self.shell.resize(piece)
            else:
                for begin in range(0, len(piece), INPUT_PIECE_BYTES):
                    await self.shell.type(piece[begin : begin + INPUT_PIECE_BYTES], reader)
            self._input_cost -= _cost(piece)
            self._has_room.set()
            self._input.task_done()
            if self.client is not None and reader.input.typed - told >= ACKNOWLEDGED_BYTES:
                told = reader.input.typed
                await self._text(typed_text(told))

    # The end

    async def _goodbye(self, ending: ShellEnd) -> None:
        if ending.exited:
            text = exit_text(code=ending.code, message=ending.message)
            with contextlib.suppress(ClientError, ConnectionError, TimeoutError):
                async with asyncio.timeout(GOODBYE_SECONDS):
                    await self.socket.send_str(text)
        await self._close(ending.close, ending.message)

    async def _close(self, code: CloseCode, message: str) -> None:
        if self.socket.closed:
            return
        reason = message.encode()[:120].decode(errors="ignore").encode()
        try:
            async with asyncio.timeout(GOODBYE_SECONDS):
                await self.socket.close(code=code, message=reason)
        except (ClientError, ConnectionError, TimeoutError):
            # Otherwise the connection stays until the client reads queued data.
            self.connection.abort()


def _cost(piece: bytes | Size) -> int:
    return _PIECE_COST + (len(piece) if isinstance(piece, bytes) else 0)


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
