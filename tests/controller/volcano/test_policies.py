from __future__ import annotations

import pytest

from controller.volcano.policies import Rule, deciding, problems_of, retries, volcano_max_retry

FAILED = Rule(action="RestartJob", event="PodFailed")
ANY = Rule(action="TerminateJob", event="*")
THREE = Rule(action="RestartTask", exit_code=3)


@pytest.mark.parametrize(
    ("max_retry", "rules", "restarts"),
    [(None, [], 0), (None, [ANY], 0), (None, [FAILED], 3), (0, [FAILED], 0), (1, [FAILED], 1),
     (5, [], 5)],
)  # fmt: skip
def test_max_retry_is_how_often_a_job_is_started_again(
    max_retry: int | None, rules: list[Rule], restarts: int
) -> None:
    assert retries(max_retry, rules) == restarts
    # Volcano: N allows N-1 restarts, and an explicit 0 is rewritten to 3.
    assert volcano_max_retry(max_retry, rules) == restarts + 1 >= 1


@pytest.mark.parametrize(
    ("event", "code", "of_task", "of_job", "expected"),
    [
        ("PodFailed", 1, [THREE], [FAILED], FAILED),
        ("PodFailed", 3, [THREE], [FAILED], THREE),
        ("PodFailed", 3, [ANY], [THREE], ANY),
        ("PodEvicted", None, [THREE], [FAILED], None),
        ("PodEvicted", None, [THREE], [ANY], ANY),
        ("PodFailed", 3, [], [THREE, FAILED], THREE),
        ("PodFailed", 3, [], [FAILED, THREE], FAILED),
        ("PodFailed", None, [THREE], [], None),
        ("TaskCompleted", 3, [THREE], [], None),
    ],
)  # fmt: skip
def test_task_policies_precede_job_policies_and_the_first_match_decides(
    event: str, code: int | None, of_task: list[Rule], of_job: list[Rule], expected: Rule | None
) -> None:
    assert deciding(event, code, of_task=of_task, of_job=of_job) == expected


@pytest.mark.parametrize(
    ("rules", "positions"),
    [
        ([FAILED, THREE], []),
        ([FAILED, FAILED], [0, 1]),
        ([THREE, THREE], [0, 1]),
        ([ANY, FAILED], [0]),
        ([Rule(action="RestartJob", event="JobUpdated")], [0]),
        ([Rule(action="RestartJob", event="TaskFailed")], [0]),
        ([Rule(action="SyncJob", event="*")], [0]),
        ([Rule(action="RestartJob")], [0]),
        ([Rule(action="RestartJob", event="PodFailed", exit_code=1)], [0]),
        ([Rule(action="RestartJob", exit_code=0)], [0]),
        ([Rule(action="RestartJob", event="PodPending")], [0]),
        ([Rule(action="RestartJob", event="PodPending", timeout_seconds=60)], []),
    ],
)
def test_policies_that_volcano_refuses_are_detected(
    rules: list[Rule], positions: list[int]
) -> None:
    assert sorted({index for index, _ in problems_of(rules)}) == positions


def test_a_policy_is_written_in_volcanos_form() -> None:
    assert Rule(action="RestartTask", exit_code=3).manifest() == {
        "action": "RestartTask",
        "exitCode": 3,
    }
    assert Rule(action="AbortJob", event="PodPending", timeout_seconds=90).manifest() == {
        "action": "AbortJob",
        "event": "PodPending",
        "timeout": "90s",
    }
