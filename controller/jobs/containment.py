"""Contains unexpected errors of one job or object, so that the leader continues with the others."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from controller.store.errors import LeadershipLost, StoreUnavailable

MOST_KNOWN: Final = 1000
"""The number of failing objects whose error is known to be logged."""

log = logging.getLogger(__name__)


class Containment:
    """Counts unexpected errors, and logs each error once until it is over.

    An unavailable store and lost leadership concern all jobs, and are not contained.

    Args:
        what: The log message, which names the work that failed.
    """

    def __init__(self, what: str, failed: Callable[[Exception], None]) -> None:
        self._what = what
        self._failed = failed
        self._known: dict[str, str] = {}

    @contextmanager
    def of(self, which: str) -> Iterator[None]:
        """Contain an error of the block, which works on the object *which*.

        Raises:
            LeadershipLost: If another process leads.
            StoreUnavailable: If the store does not respond.
        """
        try:
            yield
        except (LeadershipLost, StoreUnavailable):
            raise
        except Exception as error:  # noqa: BLE001 - one job's trouble, whatever it is
            self._failed(error)
            self._log(which, error)
        else:
            self._known.pop(which, None)

    def _log(self, which: str, error: Exception) -> None:
        kind = type(error).__name__
        if self._known.get(which) == kind:
            return
        if len(self._known) >= MOST_KNOWN:
            del self._known[next(iter(self._known))]
        self._known[which] = kind
        log.error(self._what, extra={"of": which}, exc_info=error)
