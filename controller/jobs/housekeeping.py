"""Forgets what nobody needs any more: records of jobs that have long been over."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from controller.store.database import Store
from controller.store.errors import StoreUnavailable
from controller.store.hooks import forget_lone_hook_failures
from controller.store.jobs import forget_jobs
from controller.store.links import forget_links
from controller.store.usage import forget_usage

EVERY_SECONDS: Final = 300.0
AT_ONCE: Final = 200
"""So that nobody waits long for the store."""

MOST_ENTRIES: Final = 5000
LONE_SECONDS: Final = 86400.0
"""How long is remembered that a hook failed with a job that was never accepted."""

log = logging.getLogger(__name__)


class Housekeeping:
    """Drops records, as the leader of *term*; a tombstone is left for each VolcanoJob.

    Args:
        store: Where they are.
        term: The leader's.
        history_seconds: How long a job that is over is remembered.
        clock: Unix seconds.
    """

    def __init__(
        self, store: Store, *, term: int, history_seconds: float, clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._term = term
        self._history_seconds = history_seconds
        self._clock = clock

    async def run(self) -> None:
        """Tidy up every five minutes; returns only by LeadershipLost."""
        while True:
            try:
                gone = await self.tidy()
            except StoreUnavailable as error:
                log.warning("the store cannot be tidied up", extra={"why": str(error)})
            else:
                if gone:
                    log.info("forgot jobs that have long been over", extra={"jobs": gone})
            await asyncio.sleep(EVERY_SECONDS)

    async def tidy(self) -> int:
        """Forget what is due; return how many jobs that were.

        Raises:
            LeadershipLost: If another one leads.
            StoreUnavailable: If the store does not answer.
        """
        before, total = self._clock() - self._history_seconds, 0
        while True:
            async with self._store.lead(self._term) as transaction:
                gone = await forget_jobs(transaction, finished_before=before, limit=AT_ONCE)
            total += gone
            if gone < AT_ONCE:
                break
            await asyncio.sleep(0.1)
        await self._forget_usage(before)
        async with self._store.lead(self._term) as transaction:
            await forget_links(transaction, now=self._clock())
            await forget_lone_hook_failures(transaction, before=self._clock() - LONE_SECONDS)
        return total

    async def _forget_usage(self, before: float) -> None:
        gone = MOST_ENTRIES
        while gone == MOST_ENTRIES:
            async with self._store.lead(self._term) as transaction:
                gone = await forget_usage(transaction, before=before, limit=MOST_ENTRIES)
            await asyncio.sleep(0.1)
