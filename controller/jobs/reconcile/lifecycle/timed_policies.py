"""Policies with a timeout, which the controller times itself."""

from __future__ import annotations

from controller.jobs.history.policy_timers import wanted_timers
from controller.jobs.history.retries import Policies, has_delayed, policies_of, used_retries
from controller.jobs.reconcile.lifecycle.observed_state import ObservedState
from controller.jobs.reconcile.lifecycle.steps import (
    ConfirmPods,
    Order,
    SetTimers,
    StartNextAttempt,
    Step,
)
from controller.store.jobs.progress.timers import Timer
from controller.volcano.observed import ObservedJob
from controller.volcano.policies import RESTARTS


def due_policies(seen: ObservedState, job: ObservedJob) -> Step | None:
    """Return what is to be done about policies that we time; None if nothing is now."""
    record = seen.record
    if record.ordered is not None:
        return Order(record.ordered, record.ordered_why or "")
    if seen.blind or not (seen.timers or has_delayed(record)):
        return None
    policies = policies_of(record)
    timers = wanted_timers_of(seen, job, policies)
    if timers != seen.timers:
        return SetTimers(tuple(timers.values()))
    first = min(timers.values(), key=lambda one: (one.due_at, one.trigger), default=None)
    if first is None or seen.now < first.due_at:
        return None
    return ConfirmPods(_due(seen, job, policies, first))


def _due(
    seen: ObservedState, job: ObservedJob, policies: Policies, timer: Timer
) -> StartNextAttempt | Order:
    if timer.action not in RESTARTS:
        return Order(timer.action, timer.why)
    used = seen.record.retries_used + used_retries(job.retries, seen.runs.values(), None)
    if used < policies.most:
        return StartNextAttempt(
            "retried", f"{timer.why}; started again by its policy {timer.action}"
        )
    return Order("TerminateJob", f"{timer.why}, and no retry is left")


def wanted_timers_of(seen: ObservedState, job: ObservedJob, policies: Policies) -> dict[str, Timer]:
    """Return the timers that the job's policies want now, by their triggers."""
    return wanted_timers(
        seen.record,
        job,
        seen.own(seen.pods),
        runs=seen.runs,
        policies=policies,
        stored=seen.timers,
        now=seen.now,
    )
