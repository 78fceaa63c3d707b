"""Keeps what goes wrong with one job or object from ending everything else the leader does."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from controller.store.errors import LeadershipLost, StoreUnavailable

MOST_KNOWN: Final = 1000
"""Of how many troubles it is remembered that they were logged."""

log = logging.getLogger(__name__)


class Containment:
    """Counts errors that nobody expects, and logs each once until it is over.

    A lost store and lost leadership concern all jobs, and are not contained.

    Args:
        what: The log line: the work that is not done then.
        failed: Counts an error.
    """

    def __init__(self, what: str, failed: Callable[[Exception], None]) -> None:
        self._what = what
        self._failed = failed
        self._known: dict[str, str] = {}

    @contextmanager
    def of(self, which: str) -> Iterator[None]:
        """Do what is done with *which*; if that fails, go on after it.

        Raises:
            LeadershipLost: If another one leads.
            StoreUnavailable: If the store does not answer.
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
