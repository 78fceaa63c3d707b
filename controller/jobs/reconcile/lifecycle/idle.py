"""What a VolcanoJob that runs reports once none of its programs does."""

from __future__ import annotations

from typing import Final

from controller.jobs.history.explanations import NOT_NOTED, explain_absent
from controller.jobs.history.job_record import read_known
from controller.jobs.history.pod_records import OVER
from controller.jobs.reconcile.lifecycle.missed_policies import MISSED_SECONDS
from controller.jobs.reconcile.lifecycle.observed_state import ObservedState
from controller.volcano.observed import ObservedJob
from controller.volcano.reasons.waiting import Explanation

ABSENT_SECONDS: Final = 30.0
"""How long a running job may be without pods: Volcano mostly makes others within seconds."""


def without_programs(
    seen: ObservedState, job: ObservedJob
) -> tuple[float | None, Explanation | None]:
    """Return when the job reports that no program of it runs, and what; None if one may run."""
    if (at := _absent_until(seen)) is not None:
        return at, explain_absent(job, seen.record.explained)
    at = _unnoted_until(seen)
    return at, None if at is None else NOT_NOTED


def _absent_until(seen: ObservedState) -> float | None:
    """Return when a running job that has no pods any more reports that; None if it has some."""
    if seen.pods_stale or not seen.runs or seen.own(seen.pods):
        return None
    ends = [run.ended_at for run in seen.runs.values() if run.ended_at is not None]
    return max(ends) + ABSENT_SECONDS if len(ends) == len(seen.runs) else None


def _unnoted_until(seen: ObservedState) -> float | None:
    """Return when a job whose pods have all ended reports that Volcano does not note it, or None.

    Volcano's controllers may be away, and a busy one sees the end of a pod a minute late.
    """
    pods = seen.staying()
    if seen.pods_stale or not pods or any(pod.phase not in OVER for pod in pods):
        return None
    if len(pods) < read_known(seen.record).ranks:
        return None
    return seen.ended_since_of(pods) + MISSED_SECONDS
