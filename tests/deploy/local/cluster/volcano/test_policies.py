"""Tests which action follows an event."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.local.cluster.volcano.policies import Called, Happened, called_for, parse_duration


def _job(task: list[Any], job: list[Any], version: int = 0) -> dict[str, Any]:
    tasks = [{"name": "one", "policies": task}, {"name": "two"}]
    return {"spec": {"tasks": tasks, "policies": job}, "status": {"version": version}}


FAILED = Happened("PodFailed", task="one", exit_code=3)
ABORT = {"event": "PodFailed", "action": "AbortJob"}
RESTART = {"events": ["PodFailed", "PodEvicted"], "action": "RestartTask"}


@pytest.mark.parametrize(
    ("task", "job", "happened", "action"),
    [
        ([], [], FAILED, None),
        ([ABORT], [RESTART], FAILED, "AbortJob"),
        ([], [RESTART], FAILED, "RestartTask"),
        ([ABORT], [RESTART], Happened("PodFailed", task="two"), "RestartTask"),
        ([ABORT], [RESTART], Happened("PodEvicted", task="one"), "RestartTask"),
        ([{"exitCode": 3, "action": "RestartPod"}, ABORT], [], FAILED, "RestartPod"),
        ([{"exitCode": 4, "action": "RestartPod"}, ABORT], [], FAILED, "AbortJob"),
        ([], [{"event": "*", "action": "TerminateJob"}], FAILED, "TerminateJob"),
        ([], [{"event": "PodPending", "action": "RestartJob"}], Happened("PodPending"), None),
    ],
)
def test_task_policies_precede_job_policies_and_the_first_match_wins(
    task: list[Any], job: list[Any], happened: Happened, action: str | None
) -> None:
    called = called_for(_job(task, job), happened)
    assert (called.action if called else None) == action


def test_events_of_pods_of_an_earlier_version_trigger_no_policy() -> None:
    assert called_for(_job([ABORT], [], version=1), FAILED) is None
    now = Happened("PodFailed", task="one", version=1)
    assert called_for(_job([ABORT], [], version=1), now) == Called("AbortJob")


def test_a_timeout_delays_an_action() -> None:
    policy = {"event": "PodPending", "action": "RestartJob", "timeout": "1m30s"}
    assert called_for(_job([], [policy]), Happened("PodPending")) == Called("RestartJob", 90.0)


@pytest.mark.parametrize(
    ("text", "seconds"), [("10s", 10), ("1h2m3s", 3723), ("500ms", 0.5), ("1.5m", 90), ("0s", 0)]
)
def test_go_durations_are_parsed(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)
