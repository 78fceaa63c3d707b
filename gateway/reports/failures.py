"""The last failure of each of the sessions that failed lately; bounded."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from shared.reports import MOST_FAILING, Failure

KEPT_SECONDS: Final = 600.0


class RecentFailures:
    """Remembers what went wrong with sessions.

    Args:
        wall: Unix seconds.
    """

    def __init__(self, *, wall: Callable[[], float]) -> None:
        self._wall = wall
        self._failures: dict[str, Failure] = {}

    def note(self, sid: str, code: str) -> None:
        """The app, desktop or terminal of the session *sid* failed with *code*."""
        self._failures.pop(sid, None)
        if len(self._failures) >= MOST_FAILING:
            del self._failures[next(iter(self._failures))]
        self._failures[sid] = Failure(code, self._wall())

    def recent(self) -> Mapping[str, Failure]:
        """Return the failures of the last ten minutes, and forget older ones."""
        oldest = self._wall() - KEPT_SECONDS
        for sid, failure in tuple(self._failures.items()):
            if failure.at >= oldest:
                break
            del self._failures[sid]
        return dict(self._failures)
