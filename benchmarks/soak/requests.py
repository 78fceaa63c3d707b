"""Sends GETs on short connections, and checks each response."""

from __future__ import annotations

import asyncio
import random
import time
from contextlib import suppress
from typing import Final

from benchmarks.requests import Visitor, get_head
from benchmarks.soak.plan import UNANSWERED_SECONDS, Plan
from benchmarks.soak.record import Record
from benchmarks.soak.sessions import Session, Sessions
from benchmarks.soak.sockets import Crowd

_CONNECTIONS: Final = 10
_REQUESTS_OF_CONNECTION: Final = 20

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Requests:
    """Requests pages of all sessions, and of sessions without an access right."""

    def __init__(
        self, plan: Plan, port: int, sessions: Sessions, record: Record, crowd: Crowd
    ) -> None:
        self._plan = plan
        self._port = port
        self._sessions = sessions
        self._record = record
        self._crowd = crowd

    async def run(self) -> None:
        """Send requests at the plan's rate until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            for _ in range(_CONNECTIONS):
                tasks.create_task(self._come_and_go())

    async def _come_and_go(self) -> None:
        while True:
            begun = time.monotonic()
            try:
                await self._use_connection()
            except (OSError, EOFError, TimeoutError) as error:
                if not self._crowd.killed_since(begun):
                    self._record.fail("request without a response", repr(error))
                await asyncio.sleep(1)

    async def _use_connection(self) -> None:
        async with asyncio.timeout(UNANSWERED_SECONDS):
            connection = await asyncio.open_connection("127.0.0.1", self._port)
        try:
            for _ in range(_REQUESTS_OF_CONNECTION):
                pause = _CONNECTIONS / self._plan.requests
                await asyncio.sleep(pause * 2 * random.random())
                await self._ask(connection, random.choice(self._sessions.all))
        finally:
            connection[1].close()

    async def _ask(self, connection: Connection, session: Session) -> None:
        if session.change is not None:
            return
        begun, life, right = time.monotonic(), session.life, session.answer
        status, body = await _response(connection, session.visitor)
        if session.change is not None or session.life != life:
            self._record.count("requests while something changed")
        elif status == 200 and body == right:
            self._record.count("requests")
        elif status == 200:
            self._record.fail("wrong page", f"{body[:80]!r} is not {right!r}")
        elif not self._crowd.killed_since(begun):
            self._record.fail(
                f"request answered with {status}", f"{session.number}: {body[:120]!r}"
            )

    async def refused(self, visitor: Visitor, expected: set[int], why: str) -> None:
        """Check that *visitor*, whose access has ended, is refused."""
        begun = time.monotonic()
        try:
            async with asyncio.timeout(UNANSWERED_SECONDS):
                connection = await asyncio.open_connection("127.0.0.1", self._port)
            try:
                status, body = await _response(connection, visitor)
            finally:
                connection[1].close()
        except (OSError, EOFError, TimeoutError) as error:
            if not self._crowd.killed_since(begun):
                self._record.fail("request without a response", repr(error))
            return
        if status in expected:
            self._record.count(f"refused, as {why}")
        else:
            self._record.fail(f"answered with {status}, though {why}", repr(body[:120]))


async def _response(connection: Connection, visitor: Visitor) -> tuple[int, bytes]:
    reader, writer = connection
    writer.write(get_head(visitor, "/page", varied=True))
    async with asyncio.timeout(UNANSWERED_SECONDS):
        head = await reader.readuntil(b"\r\n\r\n")
        fields = (line.partition(b":") for line in head.lower().split(b"\r\n"))
        length = next((value for name, _, value in fields if name == b"content-length"), b"0")
        body = await reader.readexactly(int(length))
    with suppress(ConnectionError):
        await writer.drain()
    return int(head[9:12]), body
