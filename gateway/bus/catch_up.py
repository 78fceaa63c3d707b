"""How far the table is behind the head that was read last, and which requests wait for it: no I/O.

The head poller says which head the table has to reach (:meth:`CatchUp.aim_at`); the holder says
after each change where the table is (:meth:`CatchUp.advance`). Any part may request a look at the
head, which the poller takes, or a repair, which the repairer makes.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeAlias

from shared.events import Head
from shared.routes.table import RouteTable

Waiter: TypeAlias = asyncio.Future[None]
"""A request that waits until the table is what Redis held."""


class CatchUp:
    """What is still to be reached, read or repaired.

    Args:
        on_reached: Called with the time at which a head was read, once the table has reached it.
    """

    def __init__(self, *, on_reached: Callable[[float], None]) -> None:
        self._on_reached = on_reached
        self._wanted: tuple[Head, float] | None = None
        self._whole = False
        self._waiting: list[Waiter] = []
        self._asking: list[Waiter] = []
        self._look = asyncio.Event()
        self._repair = asyncio.Event()
        self._reached = asyncio.Event()

    # Looks at the head

    def request_look(self) -> None:
        """Have the head read."""
        self._look.set()

    def ask(self) -> Waiter:
        """Have the head read; the result is done when the table has reached what it was then."""
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self._asking.append(waiter)
        self._look.set()
        return waiter

    async def look_requested_within(self, seconds: float) -> None:
        """Return when the head is to be read, in so many *seconds* at the latest."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._look.wait()

    def begin_look(self) -> list[Waiter]:
        """Take all requests for a look up to now; return the waiters that this one is for."""
        self._look.clear()
        asking, self._asking = self._asking, []
        return asking

    # The head to reach

    @property
    def wanted(self) -> Head | None:
        """The head that the table has not reached yet."""
        return None if self._wanted is None else self._wanted[0]

    def aim_at(self, head: Head, *, read_at: float, waiting: Iterable[Waiter] = ()) -> None:
        """Have the table reach *head*, which was read at *read_at*; *waiting* waits for that.

        Waiters that have given up go: a table that cannot be repaired must not collect them.
        """
        self._wanted = (head, read_at)
        self._waiting = [waiter for waiter in (*self._waiting, *waiting) if not waiter.done()]

    def give_up(self) -> None:
        """Want no head until another one is read."""
        self._wanted = None

    def advance(self, table: RouteTable | None) -> bool:
        """Note where *table* is; say whether it has reached the head that was read last."""
        if self._wanted is None:
            return True
        head, read_at = self._wanted
        if table is None or table.epoch != head.epoch or table.seq < head.seq:
            return False
        self._wanted = None
        self._on_reached(read_at)
        self._reached.set()
        waiting, self._waiting = self._waiting, []
        release(waiting)
        return True

    async def reached_within(self, seconds: float) -> bool:
        """Wait until the table has reached its head; say whether it has."""
        self._reached.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                return await self._reached.wait()
        return False

    @property
    def is_awaited(self) -> bool:
        """Whether a request waits for the table."""
        return any(not waiter.done() for waiter in self._waiting)

    # Repairs

    def request_repair(self, *, whole: bool = False) -> None:
        """Have the table repaired; read *whole*, wherever it stands, if so asked for."""
        self._whole = self._whole or whole
        self._repair.set()

    async def repair_requested(self) -> None:
        """Return when the table is to be repaired, and take the request."""
        await self._repair.wait()
        self._repair.clear()

    @property
    def is_whole_wanted(self) -> bool:
        """Whether the table is to be read whole, wherever it stands."""
        return self._whole

    def begin_whole(self) -> None:
        """Take the request for a whole table: from now on it is being read."""
        self._whole = False


def release(waiting: Iterable[Waiter]) -> None:
    """Let requests that wait go on."""
    for waiter in waiting:
        if not waiter.done():
            waiter.set_result(None)
