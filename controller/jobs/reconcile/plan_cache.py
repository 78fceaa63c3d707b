"""Plans of jobs that wait to be submitted: each is made once, not at every try.

A submission may be tried many times, since a namespace is being prepared, a quota is full or the
API server is away. What plugins made of the job is the same each time, unless they said that it
waits for something else, or the cluster's Volcano has become another one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from controller.jobs.pipeline.pipeline import Plan

KEPT_SECONDS: Final = 60.0
"""Plugins of others may look at what nobody tells us of."""
MOST_PLANS: Final = 1000


@dataclass(frozen=True, slots=True)
class _Kept:
    made_of: tuple[object, ...]
    plan: Plan
    until: float


class PlanCache:
    """Keeps plans for a while, and never more than so many.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._kept: dict[str, _Kept] = {}

    def find(self, job_id: str, *made_of: object) -> Plan | None:
        """Return the job's plan, if it was made of the same, and lately."""
        kept = self._kept.get(job_id)
        if kept is None or kept.made_of != made_of or self._clock() >= kept.until:
            return None
        return kept.plan

    def keep(self, job_id: str, plan: Plan, *made_of: object) -> None:
        """Keep a plan that does not wait for anything, in the place of the job's last one."""
        self.forget(job_id)
        if plan.waiting:
            return
        now = self._clock()
        # The oldest come first; with a plan go the job's secrets, which are not kept for nothing.
        for other, kept in list(self._kept.items()):
            if kept.until > now and len(self._kept) < MOST_PLANS:
                break
            del self._kept[other]
        self._kept[job_id] = _Kept(made_of, plan, now + KEPT_SECONDS)

    def forget(self, job_id: str) -> None:
        """Keep the job's plan no longer: it is submitted, or never will be."""
        self._kept.pop(job_id, None)
