"""Tests whether as many pods have succeeded as Volcano needs."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from controller.jobs.reconcile.lifecycle.completion import is_enough
from tests.controller.samples import make_job

PAIR: list[dict[str, Any]] = [
    {"name": "a", "replicas": 2, "min_available": 1},
    {"name": "b", "replicas": 2, "min_available": 1},
]


@pytest.mark.parametrize(
    ("fields", "succeeded", "enough"),
    [
        ({"tasks": PAIR}, {"a": 1, "b": 1}, True),
        # Each task of the gang needs its own.
        ({"tasks": PAIR}, {"a": 2}, False),
        ({"tasks": PAIR, "min_success": 2}, {"a": 2}, True),
        # Volcano counts all pods once one task is not in the gang.
        ({"tasks": [*PAIR, {"name": "c", "depends_on": ["a"]}]}, {"a": 2}, True),
        ({"tasks": [*PAIR, {"name": "c", "depends_on": ["a"]}]}, {"b": 1}, False),
    ],
)
def test_a_job_needs_as_many_successes_as_volcano(
    fields: dict[str, Any], succeeded: dict[str, int], enough: bool
) -> None:
    assert is_enough(make_job(**fields), Counter(succeeded)) is enough
