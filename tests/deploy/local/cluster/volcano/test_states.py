"""Tests a job's state machine, as a table of states and events."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.local.cluster.volcano.states import Victim, decide

Object = dict[str, Any]


def make_job(phase: str, **rest: Any) -> Object:
    """Return a job of two tasks, two pods each."""
    spec = {
        "minAvailable": 4,
        "maxRetry": 3,
        "tasks": [{"name": n, "replicas": 2, "minAvailable": 2} for n in ("one", "two")],
        **rest.pop("spec", {}),
    }
    return {"spec": spec, "status": {"state": {"phase": phase}, **rest}}


def make_pods(*phases: str) -> list[Object]:
    """Return pods of the two tasks in *phases*; ``Going`` is being deleted."""
    pods = []
    for number, phase in enumerate(phases):
        task = "one" if number < 2 else "two"
        metadata: Object = {
            "name": f"{task}-{number % 2}",
            "annotations": {"volcano.sh/task-spec": task},
        }
        if phase == "Going":
            metadata["deletionTimestamp"] = "now"
        pods.append({"metadata": metadata, "status": {"phase": phase}})
    return pods


R, S, F, P = "Running", "Succeeded", "Failed", "Pending"


@pytest.mark.parametrize(
    ("phase", "pods", "spec", "leads_to"),
    [
        (P, (), {}, P),
        (P, (R, R, R), {}, P),
        (P, (R, R, R, R), {}, R),
        (P, (R, S, F, R), {}, R),
        (P, (R,), {"minAvailable": 1}, R),
        (R, (R, R, R, R), {}, R),
        (R, (S, S, S, R), {}, R),
        (R, (S, S, S, S), {}, "Completed"),
        (R, (S, S, S, F), {}, F),
        (R, (S, S, S, F), {"minAvailable": 3}, "Completed"),
        (R, (S, R, R, R), {"minSuccess": 1}, "Completed"),
        (R, (F, F, F, S), {"minSuccess": 2, "minAvailable": 1}, F),
        (R, (P, R, R, R), {}, P),
        (R, (P, R, R, R), {"minAvailable": 3}, R),
        ("Restarting", ("Going", R, R, R), {}, "Restarting"),
        ("Restarting", ("Going", R, R, R), {"minAvailable": 3}, P),
        ("Restarting", (), {}, P),
        ("Aborting", (R, "Going"), {}, "Aborting"),
        ("Aborting", (S, F), {}, "Aborted"),
        ("Completing", (), {}, "Completed"),
        ("Terminating", (), {}, "Terminated"),
        ("Failed", (R,), {}, "Failed"),
    ],
)
def test_pod_states_advance_a_job(phase: str, pods: Any, spec: Object, leads_to: str) -> None:
    assert decide(make_job(phase, spec=spec), make_pods(*pods), None, Victim()).phase == leads_to


@pytest.mark.parametrize(
    ("action", "leads_to", "killed", "retry"),
    [
        ("RestartJob", "Restarting", {"one-0", "one-1", "two-0", "two-1"}, True),
        ("RestartTask", "Restarting", {"two-0", "two-1"}, True),
        ("RestartPod", "Restarting", {"two-1"}, True),
        ("AbortJob", "Aborting", {"one-0", "two-1"}, False),
        ("CompleteJob", "Completing", {"one-0", "two-1"}, False),
        ("TerminateJob", "Terminating", {"one-0", "two-1"}, False),
        ("ResumeJob", "Running", set(), False),
    ],
)
def test_an_action_kills_pods_and_changes_the_phase(
    action: str, leads_to: str, killed: set[str], retry: bool
) -> None:
    pods = make_pods(R, S, F, R)
    decision = decide(make_job(R), pods, action, Victim("two", "two-1"))
    assert (decision.phase, set(decision.kill), decision.retry) == (leads_to, killed, retry)


@pytest.mark.parametrize("phase", ["Completed", "Failed", "Terminated"])
@pytest.mark.parametrize("action", ["RestartJob", "AbortJob", "ResumeJob", "TerminateJob"])
def test_a_final_phase_is_never_left(phase: str, action: str) -> None:
    decision = decide(make_job(phase), make_pods(S, S), action, Victim())
    assert (decision.phase, decision.retry) == (phase, False)


@pytest.mark.parametrize(
    ("retries", "max_retry", "leads_to"), [(1, 1, F), (1, 2, P), (2, 2, F), (2, 3, P), (3, 3, F)]
)
def test_max_retry_n_means_n_minus_one_restarts(
    retries: int, max_retry: int, leads_to: str
) -> None:
    job = make_job("Restarting", retryCount=retries, spec={"maxRetry": max_retry})
    assert decide(job, [], None, Victim()).phase == leads_to


def test_the_last_restart_keeps_finished_pods() -> None:
    job = make_job(R, retryCount=2)
    assert set(decide(job, make_pods(F, R, S, R), "RestartJob", Victim()).kill) == {
        "one-1",
        "two-1",
    }


def test_an_abort_during_restarting_kills_pods_and_is_lost() -> None:
    decision = decide(make_job("Restarting"), make_pods(R), "AbortJob", Victim())
    assert (decision.phase, decision.kill) == ("Restarting", ("one-0",))


def test_an_aborted_job_is_resumed_as_a_retry() -> None:
    decision = decide(make_job("Aborted"), [], "ResumeJob", Victim())
    assert (decision.phase, decision.retry) == ("Restarting", True)
