"""Reads the head: every second, at once on request, and when the grace period ends.

The state of the bus is derived from the head and the table.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Final

from gateway.bus.catch_up import release
from gateway.bus.head_policy import is_proven
from gateway.bus.holder import RouteTableHolder
from gateway.core.bus_state import Bus
from shared.bus import BusReader
from shared.errors import BusUnavailable, SnapshotRefused, Unsigned
from shared.events import Head
from shared.routes.signed_table import SignedHead

HEAD_SECONDS: Final = 1.0
"""Between two reads of the head."""
CALL_SECONDS: Final = 2.0
"""The deadline of one read, measured in the thread that makes the call."""
_ANSWER_SECONDS: Final = CALL_SECONDS + 1.0
"""The deadline of one read, measured in the main loop, where a busy turn may delay the result.
A read that took longer is discarded: the process was suspended during it, and the result may
predate the suspension."""
LOOK_SECONDS: Final = 0.1
"""The minimum between two requested reads."""
FIRST_RETRY_SECONDS: Final = 0.1
_LAST_RETRY_SECONDS: Final = 0.5
"""The maximum pause between retries. Jitter of ± 50 % spreads the gateways."""


def next_retry(pause: float) -> float:
    """Return the pause after one more failure."""
    return min(pause * 2, _LAST_RETRY_SECONDS)


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class HeadPoller:
    """Reads the head, and requests a repair when the table is behind it."""

    holder: RouteTableHolder
    reader: BusReader
    _looked_at: float = float("-inf")

    async def run(self) -> None:
        """Read the head until cancelled."""
        holder, monotonic = self.holder, self.holder.monotonic
        pause, retry = HEAD_SECONDS, FIRST_RETRY_SECONDS
        while True:
            await self._until_next_look(pause)
            if holder.clock.was_suspended(monotonic()):
                holder.note("slept")
            began = monotonic()
            found = await self._look_at_head()
            answered = monotonic()
            if found:
                await self._until_repaired()
            if max(answered - began, monotonic() - answered) > _ANSWER_SECONDS:
                pause = 0.0
                continue
            if found:
                pause, retry = HEAD_SECONDS, FIRST_RETRY_SECONDS
            else:
                pause, retry = retry, next_retry(retry)
            holder.clock.head_polled(monotonic())
            holder.note_state()

    async def _until_repaired(self) -> None:
        """Wait for a repair under way if the bus was lost or this process was suspended.

        Redis has just responded. Sessions must not be closed for an expired grace period while
        the repaired table is a moment away, and the old table must not be served meanwhile, since
        it may lack revocations.
        """
        deadline = self.holder.monotonic() + CALL_SECONDS
        while self.holder.catch_up.wanted is not None and not self._is_known():
            if not await self.holder.catch_up.reached_within(deadline - self.holder.monotonic()):
                return

    def _is_known(self) -> bool:
        """Whether the table is recent enough to be served before the repair ends."""
        lost = self.holder.bus in (Bus.LOST, Bus.CLOSED)
        return not lost and not self.holder.clock.was_suspended(self.holder.monotonic())

    async def _until_next_look(self, pause: float) -> None:
        now = self.holder.monotonic()
        due = min(self._looked_at + pause, self.holder.closing_at(now))
        await self.holder.catch_up.look_requested_within(due - now)
        since = self.holder.monotonic() - self._looked_at
        if since < LOOK_SECONDS:
            await asyncio.sleep(LOOK_SECONDS - since)

    async def _look_at_head(self) -> bool:
        """Read the head once; return whether it is there and one that the table can reach."""
        holder, catch_up = self.holder, self.holder.catch_up
        requesting = catch_up.begin_look()
        self._looked_at = now = self.holder.monotonic()
        before = holder.table.head if holder.table is not None else None
        head = await self._fetch_head()
        if head is None:
            release(requesting)
            return False
        if holder.policy.signed and head.signed is not None and not is_proven(holder.table):
            before = None  # an unsigned table cannot contradict a signed head
        if before is not None and head.is_older_than(before):
            # Redis lost writes that it had acknowledged. The newer table stays in use until the
            # publisher notices the loss and starts another epoch.
            holder.note("rollback")
            catch_up.give_up()
            release(requesting)
            return False
        catch_up.aim_at(head, read_at=now, waiting=requesting)
        holder.reload_if_due()
        if not holder.advance():
            catch_up.request_repair()
        return True

    async def _fetch_head(self) -> Head | None:
        holder = self.holder
        try:
            async with asyncio.timeout(_ANSWER_SECONDS):
                head = await self.reader.head()
        except (BusUnavailable, TimeoutError) as error:
            holder.last_error = str(error) or "Redis did not answer in time"
            return None
        if head is None:
            holder.last_error = "Redis holds no route table"
            return None
        return head if self._is_accepted(head) else None

    def _is_accepted(self, head: Head) -> bool:
        holder = self.holder
        holder.last_error = None
        try:
            signed_head = holder.policy.verify_head(head, holder.table)
        except SnapshotRefused as error:
            holder.last_error = str(error)
            holder.note("unproven", isinstance(error, Unsigned))
            return False
        if signed_head is not None:
            self._compare(signed_head)
        return True

    def _compare(self, signed_head: SignedHead) -> None:
        """Request a snapshot if the table is at the signed seq but has another root hash."""
        holder, table = self.holder, self.holder.table
        if table is None or (table.epoch, table.seq) != (signed_head.epoch, signed_head.seq):
            return
        if not holder.policy.is_proven_by(table, signed_head):
            holder.note("unproven")
            self.holder.catch_up.request_repair(whole=True)
