"""Tracks how far the table is behind the last head read, and the requests that wait. No I/O.

The head poller sets the head that the table has to reach (:meth:`CatchUp.aim_at`). The holder
reports the table after each change (:meth:`CatchUp.advance`). Any part may request a read of the
head from the poller, or a repair from the repairer.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import TypeAlias

from shared.events import Head
from shared.routes.table import RouteTable

Waiter: TypeAlias = asyncio.Future[None]
"""A request that waits until the table has reached the head that Redis held."""


class CatchUp:
    """The head to reach, and pending requests for reads and repairs.

    Args:
        on_reached: Called once the table has reached a head, with the time at which the head
            was read.
    """

    def __init__(self, *, on_reached: Callable[[float], None]) -> None:
        self._on_reached = on_reached
        self._wanted: tuple[Head, float] | None = None
        self.wants_snapshot = False
        """Whether a snapshot is requested even without a gap; the repairer resets it."""
        self._waiting: list[Waiter] = []
        self._requesting: list[Waiter] = []
        self._look = asyncio.Event()
        self._repair = asyncio.Event()
        self._reached = asyncio.Event()

    # Reads of the head

    def request_look(self) -> None:
        """Request a read of the head."""
        self._look.set()

    def caught_up(self) -> Waiter:
        """Request a read of the head; the future is done once the table has reached that head."""
        waiter: Waiter = asyncio.get_running_loop().create_future()
        self._requesting.append(waiter)
        self._look.set()
        return waiter

    async def look_requested_within(self, seconds: float) -> None:
        """Return when a read of the head is requested, after *seconds* at the latest."""
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._look.wait()

    def begin_look(self) -> list[Waiter]:
        """Take all requests made so far; return the waiters that the coming read serves."""
        self._look.clear()
        requesting, self._requesting = self._requesting, []
        return requesting

    # The head to reach

    @property
    def wanted(self) -> Head | None:
        """The head that the table still has to reach."""
        return None if self._wanted is None else self._wanted[0]

    def aim_at(self, head: Head, *, read_at: float, waiting: Iterable[Waiter] = ()) -> None:
        """Set the head to reach: *head*, read at *read_at*; *waiting* is released then.

        Drops waiters that have timed out, so that they do not pile up while the table cannot be
        repaired.
        """
        self._wanted = (head, read_at)
        self._waiting = [waiter for waiter in (*self._waiting, *waiting) if not waiter.done()]

    def give_up(self) -> None:
        """Aim at no head until the next one is read."""
        self._wanted = None

    def advance(self, table: RouteTable | None) -> bool:
        """Release the waiters if *table* has reached the last head read; return whether it has."""
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
        """Wait up to *seconds* until the table has reached its head; return whether it has."""
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
        """Request a repair; *whole* requests a snapshot even if the table is up to date."""
        self.wants_snapshot = self.wants_snapshot or whole
        self._repair.set()

    async def repair_requested(self) -> None:
        """Return when a repair is requested, and take the request."""
        await self._repair.wait()
        self._repair.clear()


def release(waiting: Iterable[Waiter]) -> None:
    """Let waiting requests continue."""
    for waiter in waiting:
        if not waiter.done():
            waiter.set_result(None)
