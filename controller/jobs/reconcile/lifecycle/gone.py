"""Decides the step after the VolcanoJob is gone: its own end, if it had ended before."""

from __future__ import annotations

from typing import Final

from controller.jobs.history.retries import policies_of, triggered
from controller.jobs.reconcile.lifecycle.failure import (
    after_failure,
    interrupted,
    news_of_pods_until,
)
from controller.jobs.reconcile.lifecycle.observed_state import ObservedState
from controller.jobs.reconcile.lifecycle.steps import LOST, SUCCEEDED, ConfirmGone, Wait
from controller.volcano.observed import ObservedJob, Progress, progress_of

STALE_SECONDS: Final = 10.0
"""The pause of a job without a VolcanoJob in the cache, while VolcanoJobs cannot be watched."""


def gone(seen: ObservedState) -> ConfirmGone | Wait:
    """Return the step after the VolcanoJob is gone."""
    if seen.last is None:
        # No watch has shown a VolcanoJob that was created during its interruption.
        return Wait(seen.now + STALE_SECONDS) if seen.jobs_stale else ConfirmGone(LOST)
    match progress_of(seen.last.phase):
        case Progress.SUCCEEDED:
            return _after_completion(seen, seen.last)
        case Progress.FAILED:
            return _after_failure(seen, seen.last)
        case _:
            return ConfirmGone(LOST)


def _after_completion(seen: ObservedState, last: ObservedJob) -> ConfirmGone | Wait:
    again = interrupted(seen, last)
    if again is None:
        return ConfirmGone(SUCCEEDED)
    return Wait() if seen.awaits_pods() else ConfirmGone(again)


def _after_failure(seen: ObservedState, last: ObservedJob) -> ConfirmGone | Wait:
    if seen.awaits_pods():
        return Wait()
    policies = policies_of(seen.record)
    if (until := news_of_pods_until(seen, policies)) is not None:
        return Wait(until)
    followed = triggered(policies, seen.runs.values())
    return ConfirmGone(after_failure(seen, last, policies, followed))
