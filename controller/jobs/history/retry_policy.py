"""What is done when something of a job goes wrong: its policies in words, in order. No I/O."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from controller.jobs.spec.model import Job, Policy
from controller.volcano.policies import REASONS, RESTARTS, retries

_DONE = {
    "AbortJob": "the job is stopped and has failed",
    "RestartJob": "the job is started again",
    "RestartTask": "the task is started again",
    "RestartPod": "the pod is started again",
    "TerminateJob": "the job is ended and has failed",
    "CompleteJob": "the job is ended, and counts as done",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedPolicy:
    """A policy as it takes effect; ``task`` is None where it holds for all tasks."""

    task: str | None
    event: str | None
    exit_code: int | None
    action: str
    timeout_seconds: int | None
    explanation: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExplainedRetry:
    """How often a job is started again, and what decides it; the first policy that fits does."""

    max_retry: int
    policies: tuple[ExplainedPolicy, ...]
    explanation: str


def explain_retry(job: Job) -> ExplainedRetry:
    """Return the policies that hold for the job: those of its tasks before its own."""
    explained = (
        *(_explain(policy, task.name) for task in job.effective_tasks for policy in task.policies),
        *(_explain(policy, None) for policy in job.policies),
    )
    most = retries(job.max_retry, [policy.rule() for policy in _all(job)])
    return ExplainedRetry(max_retry=most, policies=explained, explanation=_sum(explained, most))


def _all(job: Job) -> Iterator[Policy]:
    for task in job.effective_tasks:
        yield from task.policies
    yield from job.policies


def _explain(policy: Policy, task: str | None) -> ExplainedPolicy:
    what = (
        f"a program ended with exit code {policy.exit_code}"
        if policy.event is None
        else REASONS[policy.event]
    )
    where = f" in the task {task}" if task else ""
    wait = f" and {policy.timeout_seconds} s have passed" if policy.timeout_seconds else ""
    return ExplainedPolicy(
        task=task,
        event=policy.event,
        exit_code=policy.exit_code,
        action=policy.action,
        timeout_seconds=policy.timeout_seconds,
        explanation=f"when {what}{where}{wait}, {_DONE[policy.action]}",
    )


def _sum(policies: Sequence[ExplainedPolicy], most: int) -> str:
    if not any(policy.action in RESTARTS for policy in policies):
        return "nothing is started again by a policy; the cluster's evictions are made good apart"
    times = {0: "never", 1: "once"}.get(most, f"{most} times")
    return f"started again {times} at most; of policies that fit, the first in this list decides"
