"""Tests the detection of jobs whose pods would have the same names."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.jobs.spec.accepted import has_a_task
from controller.jobs.spec.model import DEFAULT_TASK
from controller.volcano.names import pod_name, same_pod_names


def other_jobs(job_id: str, *tasks: str) -> dict[str, set[str]]:
    found = same_pod_names(job_id, tasks or [DEFAULT_TASK])
    return {other: set(names) for other, names in found.items()}


def test_a_hyphen_may_belong_to_the_identifier_or_to_the_task() -> None:
    assert other_jobs("exp-train") == {"exp": {"train-job"}}
    assert other_jobs("exp", "train-job") == {"exp-train": {"job"}}
    assert other_jobs("a-b", "c", "d-e") == {"a": {"b-c", "b-d-e"}, "a-b-d": {"e"}}
    # A task name does not begin with a digit, and is shorter than this one.
    assert other_jobs("sweep-0") == {}
    assert other_jobs("a-0123456789ab") == {}


@given(st.lists(st.sampled_from(["a", "b1", "-", "0"]), max_size=8), st.data())
def test_name_conflicts_are_found_exactly_if_pod_names_collide(
    parts: list[str], data: st.DataObject
) -> None:
    middle = "".join(parts)
    job_id, task = f"x{middle}y", data.draw(st.sampled_from(["job", "a-b", "w-1-z"]))
    for other, tasks in same_pod_names(job_id, [task]).items():
        assert other != job_id
        assert {pod_name(other, name, 0) for name in tasks} == {pod_name(job_id, task, 0)}


@pytest.mark.parametrize(
    ("spec", "has"),
    [
        ({}, True), ({"tasks": [{"name": "a"}, {"name": "job"}]}, True),
        ({"tasks": [{}, 3]}, False), ({"tasks": 3}, False), ({"tasks": [{"name": {}}]}, False),
        (None, False), ([], False),
    ],
)  # fmt: skip
def test_a_job_without_tasks_has_one_implicit_task(spec: Any, has: bool) -> None:
    assert has_a_task(spec, {"job"}) is has
