"""Signature checks, which cost more than anything else that a stranger can ask for.

A few a second are made at once. Whatever is beyond that, of one address or of all, waits in a
bounded queue for a thread of its own: the loop goes on serving, and those who send tokens by the
thousand wait for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from gateway.core.limits.addresses import limit_key
from gateway.core.limits.rates import Rate

T = TypeVar("T")
_ALL = "all"


class TooManyChecks(Exception):
    """The queue is full."""


class Checks:
    """Makes signature checks.

    Args:
        of_address: Made at once for one address (IPv6: one /64) in a second.
        of_all: Made at once for all addresses in a second.
        queued: How many may wait for the thread.
        clock: Seconds, never going back.
    """

    def __init__(
        self, *, of_address: int, of_all: int, queued: int, clock: Callable[[], float]
    ) -> None:
        self._of_address = Rate(of_address, 1.0, clock=clock)
        self._of_all = Rate(of_all, 1.0, clock=clock)
        self._most = queued
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checks")
        self.waiting = 0
        self.queued = 0
        """How many had to wait, so far."""
        self.refused = 0

    def tidy(self) -> None:
        """Forget addresses that were idle for long."""
        self._of_address.tidy()

    async def run(self, check: Callable[[], T], *, address: str) -> T:
        """Return what *check* returns, made for a client at *address*.

        Raises:
            TooManyChecks: It was not made.
        """
        if not (self._of_address.take(limit_key(address)) or self._of_all.take(_ALL)):
            return check()
        if self.waiting >= self._most:
            self.refused += 1
            raise TooManyChecks
        self.waiting += 1
        self.queued += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, check)
        finally:
            self.waiting -= 1

    def close(self) -> None:
        """Make no more checks; those that wait are cancelled."""
        self._thread.shutdown(wait=False, cancel_futures=True)
