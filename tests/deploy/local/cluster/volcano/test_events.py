"""Tests which turns of a job follow from the events of its pods."""

from __future__ import annotations

from typing import Any

from deploy.local.cluster.volcano.events import Key, PodEvents, Turn, action_now


def job(version: int = 0) -> dict[str, Any]:
    spec = {
        "tasks": [{"name": "job", "replicas": 2, "maxRetry": 3}],
        "policies": [{"event": "PodFailed", "action": "RestartJob"}],
    }
    return {"spec": spec, "status": {"version": version}}


def pod(index: int, phase: str) -> dict[str, Any]:
    metadata = {
        "name": f"j-job-{index}", "namespace": "jobs", "uid": f"pod-{index}",
        "labels": {"volcano.sh/job-name": "j"},
        "annotations": {"volcano.sh/task-spec": "job", "volcano.sh/job-version": "0"},
    }  # fmt: skip
    return {"metadata": metadata, "status": {"phase": phase}}


def test_of_two_pods_that_fail_at_once_only_the_first_restarts_the_job() -> None:
    turns = list[Turn]()

    def look(_key: Key, turn: Turn | None) -> None:
        if turn is not None and turn.action is not None:
            turns.append(turn)

    events = PodEvents(lambda _key: job(), look)
    for phase in ("Running", "Failed"):
        for index in range(2):
            events.changed("MODIFIED", pod(index, phase))
    assert [turn.action for turn in turns] == ["RestartJob"] * 2
    assert [action_now(turn, job()) for turn in turns] == ["RestartJob"] * 2
    # The first restart raises the version. The second event is of a pod from before it.
    assert [action_now(turn, job(version=1)) for turn in turns] == [None] * 2
    assert action_now(Turn("TerminateJob"), job(version=7)) == "TerminateJob"
