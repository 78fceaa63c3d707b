"""Looks at the head: every second, at once when somebody asks, and whenever the grace is over.

What the head says about the table is what the bus' state is made of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from gateway.core.bus_state import Bus, BusClock
from gateway.head_policy import is_proven
from gateway.keeping import Keeper, release
from shared.bus import BusReader
from shared.errors import BusUnavailable, SnapshotRefused, Unsigned
from shared.events import Head
from shared.signed_table import SignedHead

HEAD_SECONDS: Final = 1.0
"""Between two looks at the head."""
CALL_SECONDS: Final = 2.0
"""For one of them."""
LOOK_SECONDS: Final = 0.1
"""Between two looks that requests ask for."""
FIRST_RETRY_SECONDS: Final = 0.1
_LAST_RETRY_SECONDS: Final = 0.5
"""A Redis that is back is found within this, give or take a half; so many gateways spread."""


def next_retry(pause: float) -> float:
    """Return how long to wait after another failure."""
    return min(pause * 2, _LAST_RETRY_SECONDS)


class Watch:
    """Looks at the head for a keeper, and sets its ``mend`` when the table is behind.

    Args:
        keeper: Whose table it is.
        reader: Reads the bus.
        clock: What is known of the bus' state.
        monotonic: Seconds that only rise.
    """

    def __init__(
        self,
        keeper: Keeper,
        reader: BusReader,
        *,
        clock: BusClock,
        monotonic: Callable[[], float],
    ) -> None:
        self._keeper = keeper
        self._reader = reader
        self._clock = clock
        self._monotonic = monotonic
        self._looked_at = float("-inf")
        self._waiting: list[asyncio.Future[None]] = []

    def ask(self) -> asyncio.Future[None]:
        """Have the head looked at; done when the table has reached what it was then."""
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append(waiter)
        self._keeper.look.set()
        return waiter

    async def run(self) -> None:
        """Look until cancelled."""
        pause, retry = HEAD_SECONDS, FIRST_RETRY_SECONDS
        while True:
            await self._until_next_look(pause)
            if self._clock.slept(self._monotonic()):
                self._keeper.noted["slept"] += 1
            began = self._monotonic()
            found = await self._look_at_head()
            answered = self._monotonic()
            if found:
                await self._until_mended()
            if max(answered - began, self._monotonic() - answered) > CALL_SECONDS + 1.0:
                # The process was stopped in the middle of it: the answer may be from before.
                pause = 0.0
                continue
            if found:
                pause, retry = HEAD_SECONDS, FIRST_RETRY_SECONDS
            else:
                pause, retry = retry, next_retry(retry)
            self._clock.looked(self._monotonic())
            self._keeper.note_state()

    async def _until_mended(self) -> None:
        """Let a repair that is under way go first, where this process was stopped.

        It finds the bus alive: then a table that is a moment away must not cost anybody their
        session because the grace is over, and what was withdrawn must not be served until then.
        """
        deadline = self._monotonic() + CALL_SECONDS
        while self._keeper.wanted is not None and not self._is_known():
            if not await self._keeper.progress_within(deadline - self._monotonic()):
                return

    def _is_known(self) -> bool:
        """Whether what is served is not older than what may be served anyway."""
        lost = self._keeper.bus in (Bus.LOST, Bus.CLOSED)
        return not lost and not self._clock.slept(self._monotonic())

    async def _until_next_look(self, pause: float) -> None:
        now = self._monotonic()
        due = min(self._looked_at + pause, self._keeper.closing_at(now))
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, due - now)):
                await self._keeper.look.wait()
        since = self._monotonic() - self._looked_at
        if since < LOOK_SECONDS:
            await asyncio.sleep(LOOK_SECONDS - since)
        self._keeper.look.clear()

    async def _look_at_head(self) -> bool:
        """Return whether the head is there and one that the table can reach."""
        keeper = self._keeper
        asking, self._waiting = self._waiting, []
        self._looked_at = now = self._monotonic()
        before = keeper.table.head if keeper.table is not None else None
        head = await self._fetch_head()
        if head is None:
            release(asking)
            return False
        if keeper.policy.signed and head.signed is not None and not is_proven(keeper.table):
            before = None  # what nobody signed says nothing of what was signed
        keeper.wanted = (head, now)
        if before is not None and head.is_older_than(before):
            # Redis forgot what it had acknowledged. What is known here is newer, and stays until
            # the publisher notices, too, and starts another epoch.
            keeper.noted["rollback"] += 1
            keeper.wanted = None
            release(asking)
            return False
        keeper.behind += asking
        if not keeper.advance():
            keeper.mend.set()
        return True

    async def _fetch_head(self) -> Head | None:
        keeper = self._keeper
        try:
            async with asyncio.timeout(CALL_SECONDS):
                head = await self._reader.head()
        except (BusUnavailable, TimeoutError) as error:
            keeper.trouble = str(error) or "Redis did not answer in time"
            return None
        if head is None:
            keeper.trouble = "Redis holds no route table"
            return None
        return head if self._is_believed(head) else None

    def _is_believed(self, head: Head) -> bool:
        keeper = self._keeper
        keeper.trouble = None
        try:
            said = keeper.policy.believe(head, keeper.table)
        except SnapshotRefused as error:
            keeper.trouble = str(error)
            keeper.noted["unproven"] += isinstance(error, Unsigned)
            return False
        if said is not None:
            self._compare(said)
        return True

    def _compare(self, said: SignedHead) -> None:
        """Have the table read anew if, at the same place, it is not the one that was signed."""
        keeper, table = self._keeper, self._keeper.table
        if table is None or (table.epoch, table.seq) != (said.epoch, said.seq):
            return
        if not keeper.policy.is_proven_by(table, said):
            keeper.noted["unproven"] += 1
            keeper.anew = True
            keeper.mend.set()
