"""Probes for readiness whether the store is writable, even if nobody writes.

It also compares this process' clock with the database's. If the clocks of two replicas differ, one
ends jobs too early, and its revocations miss grants that look newer.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Sequence
from typing import Final

import sqlalchemy as sa

from controller.store.database import Store, Transaction
from controller.store.errors import StoreUnavailable
from shared.log import Outage

ROUND_SECONDS: Final = 5.0
PROBE_SECONDS: Final = 4.0
AGAIN_SECONDS: Final = 1.0
"""Between a probe that was not answered and the next one."""
SILENT_SECONDS: Final = 15.0
"""A process is not ready once no write has succeeded for this time."""
FULL_SECONDS: Final = 60.0
"""How long a process stays degraded after a transaction failed for lack of space."""
MOST_SKEW_SECONDS: Final = 5.0
"""Half of the leeway of tokens."""

log = logging.getLogger(__name__)

_CLOCK: Final = sa.select(sa.func.date_part("epoch", sa.func.clock_timestamp()))


async def database_clock(transaction: Transaction) -> float | None:
    """Return the database's clock in unix seconds; None for SQLite, which uses this machine's."""
    if transaction.dialect.name == "sqlite":
        return None
    return float(await transaction.scalar(_CLOCK) or 0.0)


class StoreProbe:
    """Probes *store* when nothing else has been written for a while.

    After two probes in a row without an answer, the second over a connection of its own, the
    store's open transactions are given up.

    Args:
        clock: This process' clock, in unix seconds.
    """

    def __init__(self, store: Store, *, clock: Callable[[], float] = time.time) -> None:
        self._store = store
        self._clock = clock
        self._why = "nothing was written yet"
        self._ahead_seconds = 0.0
        self._outage = Outage(
            log, begins="the store is not writable", ends="the store is writable again"
        )

    def problems(self) -> Sequence[str]:
        """Return why this process is not ready; empty while the store is writable."""
        silent = self._store.seconds_since_write
        return (f"the store is not writable: {self._why}",) if silent >= SILENT_SECONDS else ()

    def degraded(self) -> Sequence[str]:
        """Return the resource that the store has run out of, and a difference of the clocks."""
        return (*self._store.recent_shortages(FULL_SECONDS), *self._skew())

    def _skew(self) -> tuple[str, ...]:
        ahead = self._ahead_seconds
        if abs(ahead) < MOST_SKEW_SECONDS:
            return ()
        how = "ahead of" if ahead > 0 else "behind"
        return (f"this process' clock is {abs(ahead):.0f} s {how} the database's",)

    async def run(self) -> None:
        """Probe until cancelled."""
        while True:
            if self._store.seconds_since_write >= ROUND_SECONDS and not await self._probe():
                await asyncio.sleep(AGAIN_SECONDS)
                is_silent = not await self._answers_apart()
                if is_silent and self._store.seconds_since_write >= ROUND_SECONDS:
                    self._store.give_up_pending()
            await self._compare_clocks()
            await asyncio.sleep(ROUND_SECONDS)

    async def _probe(self) -> bool:
        """Return whether the store answered, even if by an error."""
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await self._store.probe()
        except TimeoutError:
            self._failed("the database does not respond in time")
            return False
        except StoreUnavailable as error:
            self._failed(str(error))
            return True
        self._outage.passed()
        return True

    async def _answers_apart(self) -> bool:
        """Return whether the store answers, even if by an error, while its pool may be busy.

        If so, it need not be writable: writes wait for the pool.
        """
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                await self._store.probe_apart()
        except TimeoutError:
            return False
        except StoreUnavailable:
            return True
        return True

    def _failed(self, why: str) -> None:
        self._why = why
        self._outage.failed(why)

    async def _compare_clocks(self) -> None:
        before = self._clock()
        try:
            async with asyncio.timeout(PROBE_SECONDS):
                async with self._store.read() as transaction:
                    theirs = await database_clock(transaction)
        except (StoreUnavailable, TimeoutError):
            return  # keeps the last result
        after = self._clock()
        # The database's clock was read at some moment in between.
        if theirs is not None:
            self._ahead_seconds = min(0.0, after - theirs) + max(0.0, before - theirs)
