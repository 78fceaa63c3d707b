"""Which jobs' routes are to be looked at: those of which something changed, then all others."""

from __future__ import annotations

from collections.abc import Iterable


class DirtySet:
    """Jobs that wait to be looked at, each once.

    Whoever is to be let in no more must not wait behind thousands that are only looked at now and
    then.
    """

    def __init__(self) -> None:
        self._changed: dict[str, None] = {}
        self._others: dict[str, None] = {}

    def __len__(self) -> int:
        return len(self._changed.keys() | self._others.keys())

    def add(self, job_ids: Iterable[str]) -> None:
        """Have these looked at, of which something has changed."""
        self._changed |= dict.fromkeys(job_ids)

    def add_later(self, job_ids: Iterable[str]) -> None:
        """Have these looked at after all of which something has changed."""
        self._others |= dict.fromkeys(job_ids)

    def take(self, most: int) -> list[str]:
        """Return the next ones, which wait no longer; from now on they can be added anew."""
        taken: list[str] = []
        for waiting in (self._changed, self._others):
            while waiting and len(taken) < most:
                job_id = next(iter(waiting))
                self._changed.pop(job_id, None)
                self._others.pop(job_id, None)
                taken.append(job_id)
        return taken
