"""Reads the head: every second, at once when a request asks for it, and when the grace is over.

The bus' state follows from what the head says about the table.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from gateway.bus.catch_up import release
from gateway.bus.head_policy import is_proven
from gateway.bus.holder import RouteTableHolder
from gateway.core.bus_state import Bus, BusClock
from shared.bus import BusReader
from shared.errors import BusUnavailable, SnapshotRefused, Unsigned
from shared.events import Head
from shared.routes.signed_table import SignedHead

HEAD_SECONDS: Final = 1.0
"""Between two looks at the head."""
CALL_SECONDS: Final = 2.0
"""For one of them, by Redis' time."""
_ANSWER_SECONDS: Final = CALL_SECONDS + 1.0
"""Until the answer is seen here: a busy process' turn may take a moment. A look that took longer
says nothing, since the process was stopped in the middle of it: the answer may be from before."""
LOOK_SECONDS: Final = 0.1
"""Between two looks that requests ask for."""
FIRST_RETRY_SECONDS: Final = 0.1
_LAST_RETRY_SECONDS: Final = 0.5
"""A Redis that is back is found within this, give or take a half; so many gateways spread."""


def next_retry(pause: float) -> float:
    """Return how long to wait after another failure."""
    return min(pause * 2, _LAST_RETRY_SECONDS)


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class HeadPoller:
    """Looks at the head, and requests a repair when the table is behind it."""

    holder: RouteTableHolder
    reader: BusReader
    clock: BusClock
    monotonic: Callable[[], float]
    _looked_at: float = float("-inf")

    async def run(self) -> None:
        """Look until cancelled."""
        pause, retry = HEAD_SECONDS, FIRST_RETRY_SECONDS
        while True:
            await self._until_next_look(pause)
            if self.clock.slept(self.monotonic()):
                self.holder.note("slept")
            began = self.monotonic()
            found = await self._look_at_head()
            answered = self.monotonic()
            if found:
                await self._until_repaired()
            if max(answered - began, self.monotonic() - answered) > _ANSWER_SECONDS:
                pause = 0.0
                continue
            if found:
                pause, retry = HEAD_SECONDS, FIRST_RETRY_SECONDS
            else:
                pause, retry = retry, next_retry(retry)
            self.clock.looked(self.monotonic())
            self.holder.note_state()

    async def _until_repaired(self) -> None:
        """Let a repair that is under way go first, where this process was stopped.

        It finds the bus alive: then a table that is a moment away must not cost anybody their
        session because the grace is over, and what was withdrawn must not be served until then.
        """
        deadline = self.monotonic() + CALL_SECONDS
        while self.holder.catch_up.wanted is not None and not self._is_known():
            if not await self.holder.catch_up.reached_within(deadline - self.monotonic()):
                return

    def _is_known(self) -> bool:
        """Whether what is served is not older than what may be served anyway."""
        lost = self.holder.bus in (Bus.LOST, Bus.CLOSED)
        return not lost and not self.clock.slept(self.monotonic())

    async def _until_next_look(self, pause: float) -> None:
        now = self.monotonic()
        due = min(self._looked_at + pause, self.holder.closing_at(now))
        await self.holder.catch_up.look_requested_within(due - now)
        since = self.monotonic() - self._looked_at
        if since < LOOK_SECONDS:
            await asyncio.sleep(LOOK_SECONDS - since)

    async def _look_at_head(self) -> bool:
        """Return whether the head is there and one that the table can reach."""
        holder, catch_up = self.holder, self.holder.catch_up
        asking = catch_up.begin_look()
        self._looked_at = now = self.monotonic()
        before = holder.table.head if holder.table is not None else None
        head = await self._fetch_head()
        if head is None:
            release(asking)
            return False
        if holder.policy.signed and head.signed is not None and not is_proven(holder.table):
            before = None  # what nobody signed says nothing of what was signed
        if before is not None and head.is_older_than(before):
            # Redis forgot what it had acknowledged. What is known here is newer, and stays until
            # the publisher notices, too, and starts another epoch.
            holder.note("rollback")
            catch_up.give_up()
            release(asking)
            return False
        catch_up.aim_at(head, read_at=now, waiting=asking)
        if not holder.advance():
            catch_up.request_repair()
        return True

    async def _fetch_head(self) -> Head | None:
        holder = self.holder
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                head = await self.reader.head()
        except (BusUnavailable, TimeoutError) as error:
            holder.note_trouble(str(error) or "Redis did not answer in time")
            return None
        if head is None:
            holder.note_trouble("Redis holds no route table")
            return None
        return head if self._is_believed(head) else None

    def _is_believed(self, head: Head) -> bool:
        holder = self.holder
        holder.note_trouble(None)
        try:
            said = holder.policy.believe(head, holder.table)
        except SnapshotRefused as error:
            holder.note_trouble(str(error))
            holder.note("unproven", isinstance(error, Unsigned))
            return False
        if said is not None:
            self._compare(said)
        return True

    def _compare(self, said: SignedHead) -> None:
        """Have the table read anew if, at the same place, it is not the one that was signed."""
        holder, table = self.holder, self.holder.table
        if table is None or (table.epoch, table.seq) != (said.epoch, said.seq):
            return
        if not holder.policy.is_proven_by(table, said):
            holder.note("unproven")
            self.holder.catch_up.request_repair(whole=True)
