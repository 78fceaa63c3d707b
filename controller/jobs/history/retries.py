"""The policies that a job's pods have triggered, and the retries that it has used. No I/O.

As a rule Volcano applies the policies itself. But it may see a failed pod in a sync that was queued
before the event of the failure. Then the job ends as Failed, and its policies are not applied (seen
with 1.15.1). The effect of these policies is derived from the records of the pods.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Final, TypeAlias

from pydantic import BaseModel, ConfigDict, Field

from controller.jobs.history.failures import KILLED, explain_run
from controller.jobs.history.pod_records import age, was_taken
from controller.jobs.spec.accepted import read_spec
from controller.jobs.spec.model import EffectiveTask, Job
from controller.jobs.spec.problems import JobRejected
from controller.jobs.spec.scheduling import Policy
from controller.store.jobs.job_rows import JobRecord
from controller.store.jobs.progress import PodRecord
from controller.volcano.policies import (
    REASONS,
    RESTARTS,
    Rule,
    carried_out_here,
    deciding,
    is_among,
    retries,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Policies:
    """The effective policies of a job; ``most`` is the maximum number of restarts."""

    tasks: tuple[EffectiveTask, ...]
    of_task: Mapping[str, Sequence[Rule]]
    of_job: Sequence[Rule]
    most: int
    ours: Sequence[Rule]
    """The policies that this controller carries out instead of Volcano."""

    def __bool__(self) -> bool:
        return bool(self.of_job) or any(self.of_task.values())

    @property
    def restarts(self) -> bool:
        """Whether any policy restarts something."""
        rules = (*self.of_job, *(rule for rules in self.of_task.values() for rule in rules))
        return any(rule.action in RESTARTS for rule in rules)

    def is_ours(self, rule: Rule) -> bool:
        """Return whether this controller carries it out."""
        return is_among(rule, self.ours)

    def restarting_any_failure(self, task: str) -> Rule | None:
        """Return the policy that restarts something after any failure in *task*, if any."""
        for rule in (*self.of_task.get(task, ()), *self.of_job):
            of_code = rule.exit_code is not None
            if (of_code or rule.fits("PodFailed", None)) and rule.action not in RESTARTS:
                return None
            if not of_code and rule.fits("PodFailed", None):
                return rule
        return None

    def deciding(self, event: str, exit_code: int | None, task: str) -> Rule | None:
        """Return the first policy that applies: the task's before the job's."""
        of_task = self.of_task.get(task, ())
        return deciding(event, exit_code, of_task=of_task, of_job=self.of_job)


NO_POLICIES: Final = Policies(tasks=(), of_task={}, of_job=(), most=0, ours=())


def policies_of(record: JobRecord) -> Policies:
    """Return the job's policies; none if this version cannot read the job."""
    try:
        job = read_spec(record.spec, {})
    except JobRejected:
        return NO_POLICIES
    tasks, lists = job.effective_tasks, job.rules()
    *of_tasks, of_job = lists
    return Policies(
        tasks=tasks,
        of_task={task.name: rules for task, rules in zip(tasks, of_tasks, strict=True)},
        of_job=of_job,
        most=retries(job.max_retry, chain.from_iterable(lists)),
        ours=carried_out_here(lists),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Triggered:
    """A policy, and the event that triggered it; ``pod_uid`` is empty if no single pod did."""

    rule: Rule
    event: str
    at: float
    why: str
    pod_uid: str = ""
    task: str = ""

    @property
    def trigger(self) -> str:
        """The key of its timer."""
        return f"{self.event}/{self.pod_uid or self.task}"


UNKNOWN_TRIGGER: Final = Triggered(rule=Rule(action="RestartJob"), event="", at=0.0, why="")
"""The trigger of a retried attempt without a record of the trigger."""


def triggered(policies: Policies, runs: Iterable[PodRecord]) -> Triggered | None:
    """Return the policy that applies to a failed attempt; None without one.

    As in Volcano, an event without a policy does nothing, and the next event decides. A policy that
    is due earlier precedes a policy with a timeout.

    Args:
        policies: The job's policies.
        runs: The records of the attempt's pods. The last pod of each replica counts: the failures
            of those before it were handled already.
    """
    found = []
    for at, event, run, task in _events(policies, last_of_replicas(runs)):
        exit_code = run.exit_code if run is not None else None
        rule = policies.deciding(event, exit_code, task)
        if rule is not None:
            pod_uid = run.pod_uid if run is not None else ""
            why = described(run, task)
            found.append(
                Triggered(rule=rule, event=event, at=at, why=why, pod_uid=pod_uid, task=task)
            )
    return min(found, key=lambda one: one.at + (one.rule.timeout_seconds or 0), default=None)


def by_replica(runs: Iterable[PodRecord]) -> dict[tuple[str, int], list[PodRecord]]:
    """Return the records of each replica's pods, by task and index; the last one is at the end."""
    found = dict[tuple[str, int], list[PodRecord]]()
    for run in sorted(runs, key=age):
        found.setdefault((run.task, run.index), []).append(run)
    return found


def last_of_replicas(runs: Iterable[PodRecord]) -> list[PodRecord]:
    """Return the record of each replica's last pod."""
    last = {(run.task, run.index): run for run in sorted(runs, key=age)}
    return list(last.values())


def unknown_failure(policies: Policies, runs: Iterable[PodRecord]) -> Triggered | None:
    """Return the policy that applies to a failure without a record; None if unknown.

    Pods can be gone before anybody has observed how they ended, for example while no controller
    leads. The policy is known if each task that may have failed is restarted after any failure.
    """
    last = last_of_replicas(runs)
    rules = []
    for task in policies.tasks:
        done = [run for run in last if run.task == task.name and run.phase == "Succeeded"]
        if len(done) < task.replicas:
            rules.append(policies.restarting_any_failure(task.name))
    if not rules or rules[0] is None or None in rules:
        return None
    why = "how its pods failed was not observed"
    return Triggered(rule=rules[0], event="PodFailed", at=0.0, why=why)


def has_failed(run: PodRecord) -> bool:
    """Return whether the pod has failed, and was not only evicted."""
    return run.phase == "Failed" or bool(run.ended_at is not None and run.exit_code)


def _events(
    policies: Policies, runs: Sequence[PodRecord]
) -> Iterator[tuple[float, str, PodRecord | None, str]]:
    """Yield the events in order: time, event, pod, task.

    Kubernetes' times are whole seconds. Of pods that failed in the same second, a pod that a signal
    killed comes last, since the signal may be a consequence.
    """
    found: list[tuple[float, bool, int, str, PodRecord | None, str]] = []
    for run in runs:
        if has_failed(run):
            at = run.seen_at if run.ended_at is None else run.ended_at
            found.append((at, run.exit_code in KILLED, run.rank, "PodFailed", run, run.task))
    for task in policies.tasks:
        done = [run for run in runs if run.task == task.name and run.phase == "Succeeded"]
        if len(done) >= task.replicas:
            at = max(run.ended_at or 0.0 for run in done)
            found.append((at, False, task.first, "TaskCompleted", None, task.name))
    for at, _, _, event, about, name in sorted(found, key=lambda one: one[:4]):
        yield at, event, about, name


def described(run: PodRecord | None, task: str) -> str:
    """Return a text for the event: how a pod failed, or that a task is done."""
    if run is None:
        return f"the task {task} is done"
    return explain_run(run).message


def used_retries(
    counted: int,
    runs: Iterable[PodRecord],
    followed: Triggered | None = None,
    *,
    policies: Policies = NO_POLICIES,
) -> int:
    """Return how many of the job's retries an attempt has used.

    Args:
        counted: How often Volcano restarted the job (``status.retryCount``).
        runs: The records of its pods. Evictions do not use up retries.
        followed: The policy that another attempt carries out, if any. It uses one more retry,
            whatever triggered it.
        policies: The job's policies; without any, each eviction may have been counted.
    """
    about = followed.pod_uid if followed is not None else None
    evicted = _retries_of_evictions(counted, runs, about, policies)
    return max(0, counted - evicted) + (followed is not None)


_DELETED: Final = frozenset(
    {
        *("EvictionByEvictionAPI", "PreemptionByScheduler", "Evict"),
        *("DeletionByTaintManager", "DeletionByDeviceTaintManager"),
    }
)
"""Reasons of pods that are deleted and do not fail before that: to Volcano, only PodEvicted."""
_OOM_KILLED: Final = "OOMKilled"


def _retries_of_evictions(
    counted: int, runs: Iterable[PodRecord], about: str | None, policies: Policies
) -> int:
    """Return how many of the *counted* retries went to evictions, except that of the pod *about*.

    To Volcano, each change of a pod that is being deleted is another eviction. So with RestartPod
    or RestartTask a single one may count several times, until a pod of the replica runs again. Of
    the restarts until then, those after failures of other pods are not given back. Without a policy
    for evictions, none counts at all.
    """
    evictions, failures, spans, unknown = list[_Span](), list[_Span](), list[_Span](), 0
    for of_replica in by_replica(runs).values():
        for at, run in enumerate(of_replica):
            later = of_replica[at + 1 :]
            replaced = (run.retry or 0, min(counted, _count_of(later[:1], counted)))
            if run.pod_uid == about:
                continue
            if not was_taken(run):
                if run.retry is not None and _failure_counts(run, policies):
                    failures.append(replaced)
            elif not _eviction_counts(run, policies):
                continue
            elif run.retry is None:
                unknown += 1
            else:
                again = [one for one in later if one.started_at is not None]
                evictions.append(replaced)
                spans.append((run.retry, min(counted, _count_of(again[:1], counted))))
    own = _restarts_after(failures, besides=evictions)
    within = sum(1 for number in own if any(first <= number < last for first, last in spans))
    return _length_of_union(spans) - within + unknown


_Span: TypeAlias = tuple[int, int]
"""Numbers of Volcano's restarts, half open."""


def _count_of(next_runs: Sequence[PodRecord], counted: int) -> int:
    """Return Volcano's count with which the next pod was created; *counted* without one."""
    return next_runs[0].retry or 0 if next_runs else counted


def _failure_counts(run: PodRecord, policies: Policies) -> bool:
    """Return whether Volcano restarts something because the program failed by itself."""
    by_itself = run.exit_code not in KILLED or run.reason == _OOM_KILLED
    return has_failed(run) and by_itself and _restarts(policies, "PodFailed", run)


def _eviction_counts(run: PodRecord, policies: Policies) -> bool:
    if not policies or _restarts(policies, "PodEvicted", run):
        return True
    return run.reason not in _DELETED and _restarts(policies, "PodFailed", run)


def _restarts(policies: Policies, event: str, run: PodRecord) -> bool:
    rule = policies.deciding(event, run.exit_code, run.task)
    return rule is not None and rule.action in RESTARTS and not policies.is_ours(rule)


def _restarts_after(failures: Iterable[_Span], *, besides: Iterable[_Span]) -> set[int]:
    """Return the numbers of the restarts that *failures* caused, one each as far as there are any.

    Each of *besides* has caused one, too. The span that ends first is served first, so that as many
    as possible are.
    """
    causes = sorted(
        [(span, False) for span in besides] + [(span, True) for span in failures],
        key=lambda one: (one[0][1], one[1]),
    )
    following, found = dict[int, int](), set[int]()
    for (first, last), is_failure in causes:
        number = first
        while number in following:
            number = following[number]
        if number < last:
            following[number] = number + 1
            if is_failure:
                found.add(number)
        if first < number:
            following[first] = number  # shortens the next search
    return found


def _length_of_union(spans: Iterable[_Span]) -> int:
    """Return how many numbers the half-open *spans* cover together."""
    length, reached = 0, -1
    for first, last in sorted(spans):
        begin = max(first, reached)
        if last > begin:
            length, reached = length + last - begin, last
    return length


_DONE = {
    "AbortJob": "the job is stopped and has failed",
    "RestartJob": "the job is started again",
    "RestartTask": "the task is started again",
    "RestartPod": "the pod is started again",
    "TerminateJob": "the job is ended and has failed",
    "CompleteJob": "the job is ended, and counts as done",
}


class PolicyView(BaseModel):
    """The action of Volcano on an event or exit code, and the field of the job that defines it."""

    model_config = ConfigDict(frozen=True)

    task: str | None = Field(description="The task; None if the policy applies to every task.")
    event: str | None
    exit_code: int | None
    action: str
    timeout_seconds: int | None
    explanation: str


def explain_retries(job: Job) -> tuple[list[PolicyView], int, str]:
    """Return the effective policies of the job, its most restarts, and what both mean together.

    The policies of its tasks come before its own; the first that applies decides.
    """
    of_tasks = ((one, task.name) for task in job.effective_tasks for one in task.policies)
    explained = [_explain(*one) for one in (*of_tasks, *((one, None) for one in job.policies))]
    most = retries(job.max_retry, chain.from_iterable(job.rules()))
    return explained, most, _sum(explained, most)


def _explain(policy: Policy, task: str | None) -> PolicyView:
    what = (
        f"a program ended with exit code {policy.exit_code}"
        if policy.event is None
        else REASONS[policy.event]
    )
    where = f" in the task {task}" if task else ""
    wait = f" and {policy.timeout_seconds} s have passed" if policy.timeout_seconds else ""
    return PolicyView(
        task=task,
        event=policy.event,
        exit_code=policy.exit_code,
        action=policy.action,
        timeout_seconds=policy.timeout_seconds,
        explanation=f"when {what}{where}{wait}, {_DONE[policy.action]}",
    )


def _sum(policies: Sequence[PolicyView], most: int) -> str:
    if not any(policy.action in RESTARTS for policy in policies):
        return "nothing is started again by a policy; the cluster's evictions are made good apart"
    times = {0: "never", 1: "once"}.get(most, f"{most} times")
    return f"started again {times} at most; of policies that fit, the first in this list decides"
