"""The WebSockets of a soak: one process opens, uses and closes them, and checks each end."""

from __future__ import annotations

import asyncio
import heapq
import random
import time
from typing import Final, cast

from benchmarks.requests import socket_head
from benchmarks.soak.frames import BINARY, CLOSE, PING, PONG, client_frame, close_code, take_frames
from benchmarks.soak.plan import UNANSWERED_SECONDS, Plan
from benchmarks.soak.record import Record
from benchmarks.soak.sessions import CODES, Change, Session, Sessions

TICK_SECONDS: Final = 0.1
_AGAIN_SECONDS: Final = 1.0
_KILL_SECONDS: Final = 30.0
"""For this long after a worker was killed, connections may end without a Close."""


class Socket(asyncio.Protocol):
    """One WebSocket of *session*; reports to *crowd* that it has opened, and how it ended."""

    __slots__ = (
        "asked", "buffer", "code", "crowd", "life", "mine", "number", "open_since", "sent_at",
        "session", "started", "transport",
    )  # fmt: skip

    def __init__(self, crowd: Crowd, number: int, session: Session) -> None:
        self.crowd = crowd
        self.number = number
        self.session = session
        self.life = session.life
        self.buffer = bytearray()
        self.asked = b""
        self.sent_at = 0.0
        self.started = time.monotonic()
        self.open_since: float | None = None
        self.mine = False
        self.code: int | None = None
        self.transport: asyncio.Transport | None = None

    @property
    def outlived(self) -> bool:
        """Whether the session has changed since this socket was begun."""
        return self.life != self.session.life or self.session.change is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the upgrade."""
        self.transport = cast(asyncio.Transport, transport)
        self.transport.write(socket_head(self.session.visitor, "/socket"))

    def data_received(self, data: bytes) -> None:
        """Check the response, then each message."""
        self.buffer += data
        if self.open_since is None:
            end = self.buffer.find(b"\r\n\r\n")
            if end < 0:
                return
            status = bytes(self.buffer[9:12])
            if status != b"101":
                self._refused(status.decode("latin-1"))
                return
            del self.buffer[: end + 4]
            self.open_since = time.monotonic()
            self.crowd.opened(self)
        try:
            for frame in take_frames(self.buffer):
                self._take(frame.opcode, frame.payload, close_code(frame))
        except ValueError as error:
            self.crowd.record.fail("not a message of the app", f"{self}: {error}")
            self.drop()

    def _refused(self, status: str) -> None:
        if not self.outlived and not self.crowd.in_kill:
            body = bytes(self.buffer[-120:]).decode("latin-1")
            self.crowd.record.fail(f"opening answered with {status}", f"{self}: {body}")
        self.drop()

    def _take(self, opcode: int, payload: bytes, code: int) -> None:
        if opcode == BINARY:
            self._answered(payload)
        elif opcode == PING:
            self._write(client_frame(PONG, payload))
        elif opcode == CLOSE:
            self.code = code
            self.drop()

    def _answered(self, payload: bytes) -> None:
        change, now = self.session.change, time.monotonic()
        if change is not None and change.settled(now):
            self.crowd.record.fail(f"message after its session was {change.kind}", str(self))
        elif not self.outlived and payload != self.session.answer + b" " + self.asked:
            self.crowd.record.fail("wrong message", f"{self}: {payload!r}")
        else:
            self.crowd.record.count("messages")
        self.asked = b""

    def send(self) -> None:
        """Send one message; by now the one before must have been answered."""
        now = time.monotonic()
        if self.asked:
            if now - self.sent_at > UNANSWERED_SECONDS and not self.outlived:
                self.crowd.record.fail("message not answered", str(self))
                self.drop()
            return
        self.asked = b"%016x" % random.getrandbits(64)
        self.sent_at = now
        self._write(client_frame(BINARY, self.asked))

    def leave(self) -> None:
        """Close as a browser does."""
        self.mine = True
        self._write(client_frame(CLOSE, (1000).to_bytes(2, "big")))

    def drop(self) -> None:
        """Close the connection."""
        if self.transport is not None:
            self.transport.close()

    def _write(self, data: bytes) -> None:
        if self.transport is not None and not self.transport.is_closing():
            self.transport.write(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report how it ended."""
        self.transport = None
        self.crowd.ended(self)

    def __str__(self) -> str:
        since = self.open_since
        age = "never open" if since is None else f"open for {time.monotonic() - since:.1f} s"
        return f"socket {self.number} of session {self.session.number}, {age}"


class Crowd:
    """Keeps as many sockets open as the plan says."""

    def __init__(self, plan: Plan, port: int, sessions: Sessions, record: Record) -> None:
        self.record = record
        self._plan = plan
        self._port = port
        self._sessions = sessions
        self.by_number: dict[int, Socket] = {}
        self.killed_at = float("-inf")
        self.leaves = False
        """Whether sockets are closed and reopened, which begins once all are open."""
        self.longest_tick = 0.0
        self._due = [(0.0, number) for number in range(plan.sockets)]
        self._opening: set[asyncio.Task[None]] = set()
        self._turn = 0
        self._owed_opens = self._owed_leaves = 0.0

    @property
    def in_kill(self) -> bool:
        """Whether a worker was killed a moment ago."""
        return time.monotonic() < self.killed_at + _KILL_SECONDS

    def killed_since(self, begun: float) -> bool:
        """Whether a worker was killed since *begun*, or just before."""
        return self.in_kill or self.killed_at >= begun

    @property
    def open(self) -> int:
        """How many sockets are open."""
        return sum(socket.open_since is not None for socket in self.by_number.values())

    def of(self, session: Session) -> list[Socket]:
        """Return the sockets of *session*."""
        number, step = session.number, len(self._sessions.all)
        places = range(number, self._plan.sockets, step)
        return [self.by_number[place] for place in places if place in self.by_number]

    async def run(self) -> None:
        """Open, use and close sockets until cancelled; then close all."""
        loop = asyncio.get_running_loop()
        try:
            before = loop.time()
            while True:
                await asyncio.sleep(TICK_SECONDS)
                now = loop.time()
                self.longest_tick = max(self.longest_tick, now - before - TICK_SECONDS)
                before = now
                self._tick(loop)
        finally:
            for task in tuple(self._opening):
                task.cancel()
            for socket in tuple(self.by_number.values()):
                socket.mine = True
                socket.drop()

    def take_longest_tick(self) -> float:
        """Return the longest delay of a tick since the last call."""
        longest, self.longest_tick = self.longest_tick, 0.0
        return longest

    def _tick(self, loop: asyncio.AbstractEventLoop) -> None:
        self._owed_opens = min(self._owed_opens + self._plan.opens * TICK_SECONDS, 50)
        now = time.monotonic()
        while self._owed_opens >= 1 and self._due and self._due[0][0] <= now:
            self._owed_opens -= 1
            self._open(loop, heapq.heappop(self._due)[1])
        turns = max(1, round(self._plan.message_every / TICK_SECONDS))
        self._turn = (self._turn + 1) % turns
        for number in range(self._turn, self._plan.sockets, turns):
            self._use(number)
        if self.leaves:
            self._owed_leaves += self._plan.churn * TICK_SECONDS
        while self._owed_leaves >= 1:
            self._owed_leaves -= 1
            self._leave(random.randrange(self._plan.sockets))

    def _use(self, number: int) -> None:
        socket = self.by_number.get(number)
        if socket is None:
            return
        if socket.open_since is not None:
            socket.send()
        elif time.monotonic() - socket.started > UNANSWERED_SECONDS:
            self.record.fail("opening not answered", str(socket))
            socket.drop()

    def _leave(self, number: int) -> None:
        socket = self.by_number.get(number)
        if socket is not None and socket.open_since is not None:
            socket.leave()

    def _open(self, loop: asyncio.AbstractEventLoop, number: int) -> None:
        session = self._sessions.all[number % len(self._sessions.all)]
        if session.change is not None:
            self._again(number)
            return
        socket = self.by_number[number] = Socket(self, number, session)
        task = loop.create_task(self._connect(loop, socket))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _connect(self, loop: asyncio.AbstractEventLoop, socket: Socket) -> None:
        try:
            async with asyncio.timeout(UNANSWERED_SECONDS):
                await loop.create_connection(lambda: socket, "127.0.0.1", self._port)
        except (OSError, TimeoutError) as error:
            if not self.in_kill:
                self.record.fail("not connected", f"{type(error).__name__}: {error}")
            self.by_number.pop(socket.number, None)
            self._again(socket.number)

    def _again(self, number: int) -> None:
        heapq.heappush(
            self._due, (time.monotonic() + _AGAIN_SECONDS * (1 + random.random()), number)
        )

    def opened(self, socket: Socket) -> None:
        """Note that a socket has opened."""
        self.record.count("sockets opened")
        if socket.session.change is None and socket.outlived:
            # The request came before a change, and the response after it: either is right.
            socket.mine = True
            socket.drop()

    def ended(self, socket: Socket) -> None:
        """Check how *socket* ended, and reopen it later."""
        if self.by_number.get(socket.number) is socket:
            del self.by_number[socket.number]
            self._again(socket.number)
        if socket.open_since is None:
            return
        change = socket.session.change
        if socket.mine:
            self.record.count("sockets closed by the browser")
        elif change is not None:
            self._ended_by(change, socket)
        elif socket.outlived:
            self.record.count("sockets closed by a change")
        elif socket.code is not None:
            self.record.fail(f"closed with {socket.code} for no reason", str(socket))
        elif self.in_kill:
            self.record.killed[-1].lost += 1
            self.record.count("sockets lost with their worker")
        else:
            self.record.fail("ended without a Close", str(socket))

    def _ended_by(self, change: Change, socket: Socket) -> None:
        if socket.code is not None and socket.code != CODES[change.kind]:
            self.record.fail(f"closed with {socket.code} when {change.kind}", str(socket))
            return
        self.record.count("sockets closed by a change")
        self.record.closed_after(change.kind, (time.monotonic() - change.at) * 1e3)
