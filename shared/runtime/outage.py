"""What fails many times in a row, in few lines of a log.

A loop that tries again four times a second would write a line each time, and bury what else
happens meanwhile: at night, while somebody reads.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

AGAIN_SECONDS: Final = 60.0
"""After how long a failure that goes on is told once more."""


class Outage:
    """Says that something fails once, then once a minute, and once that it does so no longer.

    Args:
        log: The caller's own.
        begins: What is said of a failure; the reason is the field ``why``.
        ends: What is said of the first success after one; the field ``seconds`` is how long it
            failed.
        monotonic: Seconds.
    """

    def __init__(
        self,
        log: logging.Logger,
        *,
        begins: str,
        ends: str,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._begins = begins
        self._ends = ends
        self._monotonic = monotonic
        self._since: float | None = None
        self._told_at = 0.0

    def failed(self, why: object) -> None:
        """Note a failure."""
        now = self._monotonic()
        if self._since is None:
            self._since = now
        elif now - self._told_at < AGAIN_SECONDS:
            return
        self._told_at = now
        told: dict[str, object] = {"why": str(why)}
        if now > self._since:
            told["seconds"] = round(now - self._since, 1)
        self._log.warning(self._begins, extra=told)

    def passed(self) -> None:
        """Note a success."""
        if self._since is not None:
            seconds = round(self._monotonic() - self._since, 1)
            self._since = None
            self._log.info(self._ends, extra={"seconds": seconds})
