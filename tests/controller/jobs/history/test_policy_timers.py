"""Tests timers of policies with a timeout: what starts, keeps and cancels them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.jobs.history.policy_timers import wanted_timers
from controller.jobs.history.retries import policies_of
from controller.store.jobs.progress import PodRecord, Timer
from controller.volcano.observed import Ended, ObservedJob, ObservedPod
from tests.controller.samples import UID, make_observed, make_pod, make_record

EXIT_3 = Ended(exit_code=3, signal=0, reason="Error", finished_at=50.0)
PENDING: dict[str, Any] = {"phase": "Pending", "running": False, "started_at": None, "node": ""}


def wanted(
    policies: list[dict[str, Any]],
    pods: list[ObservedPod],
    *,
    gone: tuple[PodRecord, ...] = (),
    job: ObservedJob | None = None,
    stored: dict[str, Timer] | None = None,
    now: float = 100.0,
    **fields: Any,
) -> dict[str, Timer]:
    spec = {"id": "j1", "owner": {"user": "ada"}, "image": "busybox", "policies": policies}
    record = make_record(uid=UID, spec=spec | fields)
    runs = {run.pod_uid: run for run in gone} | {pod.uid: run_of(pod) for pod in pods}
    return wanted_timers(
        record, job or make_observed(), pods, runs=runs, policies=policies_of(record),
        stored=stored or {}, now=now,
    )  # fmt: skip


def run_of(pod: ObservedPod, **fields: Any) -> PodRecord:
    values: dict[str, Any] = {
        "job_id": "j1", "pod_uid": pod.uid, "attempt": 1, "rank": pod.index, "task": pod.task,
        "index": pod.index, "pod": pod.name, "node": pod.node, "phase": pod.phase,
        "reason": pod.reason, "message": "", "exit_code": pod.ended and pod.ended.exit_code,
        "signal": 0, "seen_at": 10.0, "started_at": pod.started_at,
        "ended_at": pod.ended and pod.ended.finished_at, "retry": pod.retry,
    }  # fmt: skip
    return PodRecord(**values | fields)


def after(seconds: int, action: str = "RestartJob", **trigger: Any) -> dict[str, Any]:
    return {**trigger, "action": action, "timeout_seconds": seconds}


FAILED = make_pod(phase="Failed", running=False, ended=EXIT_3)


def test_a_failed_pod_starts_the_timer_of_the_first_matching_policy_at_its_end() -> None:
    policies = [after(30, exit_code=3), after(7, "AbortJob", event="PodFailed")]
    (timer,) = wanted(policies, [FAILED, make_pod(1)], replicas=2).values()
    assert (timer.trigger, timer.action, timer.due_at) == ("PodFailed/pod-0", "RestartJob", 80.0)
    other = replace(FAILED, ended=replace(EXIT_3, exit_code=4))
    (timer,) = wanted(policies, [other]).values()
    assert (timer.action, timer.due_at) == ("AbortJob", 57.0)
    # Failures that no timed policy covers are left to Volcano.
    assert wanted([after(30, exit_code=9)], [FAILED]) == {}
    assert wanted([{"event": "PodFailed", "action": "AbortJob"}], [FAILED]) == {}


def test_a_policy_without_timeout_after_one_with_timeout_is_due_at_once() -> None:
    policies = [after(30, exit_code=9), {"event": "PodFailed", "action": "TerminateJob"}]
    (timer,) = wanted(policies, [FAILED]).values()
    assert (timer.action, timer.due_at) == ("TerminateJob", 50.0)


def test_a_wrong_node_clock_advances_a_timer_by_at_most_the_pods_age() -> None:
    behind = replace(FAILED, ended=replace(EXIT_3, finished_at=-5000.0))
    ahead = replace(FAILED, ended=replace(EXIT_3, finished_at=5000.0))
    policies = [after(30, event="PodFailed")]
    assert [one.due_at for one in wanted(policies, [behind]).values()] == [40.0]
    assert [one.due_at for one in wanted(policies, [ahead]).values()] == [130.0]


def test_a_timer_keeps_its_time_while_its_trigger_holds() -> None:
    policies = [after(30, event="PodFailed")]
    first = wanted(policies, [FAILED], now=60.0)
    assert wanted(policies, [FAILED], stored=first, now=75.0) == first
    # Volcano has restarted something meanwhile: pods of the earlier retry count as earlier.
    over = make_observed(retries=1)
    again = make_pod(0, uid="next", retry=1)
    gone = run_of(FAILED)
    assert wanted(policies, [again], gone=(gone,), job=over, stored=first) == {}


def test_a_running_replacement_pod_cancels_a_timer_and_its_creation_does_not() -> None:
    policies = [after(30, event="PodEvicted")]
    gone = run_of(make_pod(), ended_at=50.0)
    evicted = wanted(policies, [], gone=(gone,))
    assert [one.due_at for one in evicted.values()] == [80.0]
    waits = make_pod(uid="next", **PENDING)
    runs = {"next": run_of(waits, seen_at=60.0)}
    assert wanted(policies, [waits], gone=(gone, runs["next"]), stored=evicted) == evicted
    # Holds also if no observation happened before the next pod was created.
    (timer,) = wanted(policies, [waits], gone=(gone,)).values()
    assert timer.trigger == "PodEvicted/pod-0"
    back = replace(waits, phase="Running", running=True, started_at=70.0)
    later = run_of(back, seen_at=60.0)
    both_runs = (gone, later)
    assert wanted_with(policies, [back], both_runs, stored=evicted) == {}
    # A pod that ran and failed since had returned as well.
    failed = run_of(replace(FAILED, uid="next"), seen_at=60.0)
    assert wanted_with(policies, [replace(FAILED, uid="next")], (gone, failed), evicted) == {}


def wanted_with(
    policies: list[dict[str, Any]],
    pods: list[ObservedPod],
    runs: tuple[PodRecord, ...],
    stored: dict[str, Timer],
) -> dict[str, Timer]:
    spec = {"id": "j1", "owner": {"user": "ada"}, "image": "busybox", "policies": policies}
    record = make_record(uid=UID, spec=spec)
    return wanted_timers(
        record, make_observed(), pods, runs={run.pod_uid: run for run in runs},
        policies=policies_of(record), stored=stored, now=100.0,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("pod", "job"),
    [
        (make_pod(deleting=True), make_observed("Restarting")),
        # Killed for a restart that Volcano has counted meanwhile.
        (make_pod(deleting=True, retry=0), make_observed("Pending", retries=1)),
    ],
)
def test_pods_deleted_by_a_volcano_restart_are_not_evicted(
    pod: ObservedPod, job: ObservedJob
) -> None:
    policies = [after(30, "AbortJob", event="PodEvicted")]
    assert wanted(policies, [pod], job=job) == {}
    assert len(wanted(policies, [make_pod(deleting=True)])) == 1


def test_a_pending_pod_is_timed_from_creation_until_it_runs() -> None:
    policies = [after(30, event="PodPending")]
    waits = make_pod(**PENDING, created_at=95.0)
    (timer,) = wanted(policies, [waits]).values()
    assert (timer.trigger, timer.due_at) == ("PodPending/pod-0", 125.0)
    stored = {timer.trigger: timer}
    assert wanted(policies, [make_pod()], stored=stored) == {}
    assert wanted(policies, [FAILED], stored=stored) == {}
    # Each pod has its own timer.
    other = replace(waits, uid="next", created_at=99.0)
    assert [one.due_at for one in wanted(policies, [other], stored=stored).values()] == [129.0]


def test_task_completion_and_a_broken_gang_start_timers() -> None:
    done = make_pod(phase="Succeeded", running=False, ended=replace(EXIT_3, exit_code=0))
    policies = [after(30, "CompleteJob", event="TaskCompleted"),
                after(9, "AbortJob", event="Unknown")]  # fmt: skip
    (timer,) = wanted(policies, [done]).values()
    assert (timer.trigger, timer.due_at) == ("TaskCompleted/job", 80.0)
    waits = make_pod(1, **PENDING)
    (torn,) = wanted(policies, [make_pod(), waits], replicas=2).values()
    assert (torn.trigger.partition("/")[0], torn.due_at) == ("Unknown", 109.0)
    placed = replace(waits, node="n2")
    assert wanted(policies, [make_pod(), placed], replicas=2) == {}
    # A gang is torn only after one of its pods has run.
    assert wanted(policies, [make_pod(**PENDING), waits], replicas=2) == {}


def test_a_policy_that_an_older_version_gave_to_volcano_is_left_to_it_until_failure() -> None:
    policies = [after(30, event="PodFailed")]
    assert wanted(policies, [FAILED], job=make_observed(timed=True)) == {}
    assert len(wanted(policies, [FAILED], job=make_observed("Failed", timed=True))) == 1
