"""The staff: what it makes of the nursery's news."""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Sequence
from typing import Any, cast

from gateway.workers.nursery import Ended, Nursery, Started
from gateway.workers.staff import Desk, Staff


class Refusing:
    """A nursery that has no process for the first workers that it is asked for."""

    def __init__(self, refuses: int) -> None:
        self.asked = 0
        self._refuses = refuses
        self._told: list[Started | Ended] = []
        self._readable, self._writable = os.pipe()

    def fileno(self) -> int:
        return self._readable

    def start(self, number: int, feed: socket.socket, listening: Sequence[socket.socket]) -> None:
        self.asked += 1
        tried = self.asked > self._refuses
        self._told.append(Started(number, 4711) if tried else Ended(number, 0, 1))
        os.write(self._writable, b"x")

    def kill(self, number: int) -> None:
        raise AssertionError("nothing runs")

    def news(self) -> Started | Ended | None:
        os.read(self._readable, 1)
        return self._told.pop(0)


async def test_a_worker_that_cannot_be_forked_has_ended_and_is_waited_for_no_longer() -> None:
    nursery = Refusing(refuses=3)
    staff = cast(Any, Staff.__new__(Staff))
    staff.desks, staff._nursery, staff._listening = [Desk(0)], cast(Nursery, nursery), ()
    staff._starting, staff._draining = asyncio.Lock(), asyncio.Event()
    desk = staff.desks[0]
    gone: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    asyncio.get_running_loop().add_reader(nursery.fileno(), staff._hear, gone)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for code in (1, 1, 1, None):
            desk.ended = asyncio.get_running_loop().create_future()
            async with asyncio.timeout(5):
                assert await staff._start(desk, theirs)
            assert desk.ended.done() == (code is not None)
            if code is not None:
                assert desk.ended.result().code == code
        assert desk.pid == 4711
    asyncio.get_running_loop().remove_reader(nursery.fileno())
