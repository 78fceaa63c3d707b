from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.limits import overload
from gateway.core.limits.overload import THRESHOLDS, Overload, Step, next_step

SHARES = st.floats(0, 2)


def test_the_table_has_each_step_once_in_order_with_room_between() -> None:
    assert [row.step for row in THRESHOLDS] == list(Step)[1:]
    for row in THRESHOLDS:
        assert row.leave < row.enter <= 1
    for before, after in pairwise(THRESHOLDS):
        assert before.enter <= after.leave, "steps come and go one by one"


@pytest.mark.parametrize(
    ("step", "used", "then"),
    [
        (Step.NONE, 0.69, Step.NONE), (Step.NONE, 0.70, Step.BUFFERS),
        (Step.BUFFERS, 0.66, Step.BUFFERS), (Step.BUFFERS, 0.64, Step.NONE),
        (Step.NONE, 0.79, Step.BUFFERS), (Step.NONE, 0.80, Step.UNAUTHENTICATED),
        (Step.NONE, 0.90, Step.IDLE), (Step.NONE, 2.0, Step.REQUESTS),
        (Step.UNAUTHENTICATED, 0.76, Step.UNAUTHENTICATED),
        (Step.UNAUTHENTICATED, 0.74, Step.BUFFERS),
        (Step.UNAUTHENTICATED, 0.84, Step.UNAUTHENTICATED), (Step.IDLE, 0.84, Step.IDLE),
        (Step.IDLE, 0.82, Step.UNAUTHENTICATED), (Step.REQUESTS, 0.91, Step.REQUESTS),
        (Step.REQUESTS, 0.89, Step.IDLE), (Step.REQUESTS, 0.1, Step.NONE),
    ],
)  # fmt: skip
def test_steps_are_entered_and_left_at_different_shares(
    step: Step, used: float, then: Step
) -> None:
    assert next_step(step, used) is then


@given(st.sampled_from(Step), SHARES, SHARES)
def test_higher_memory_use_never_sheds_less(step: Step, one: float, other: float) -> None:
    assert next_step(step, min(one, other)) <= next_step(step, max(one, other))


@given(st.sampled_from(Step), SHARES)
def test_a_repeated_measurement_keeps_the_step(step: Step, used: float) -> None:
    then = next_step(step, used)
    assert next_step(then, used) is then


@given(st.sampled_from(Step))
def test_without_a_measurement_no_load_is_shed(step: Step) -> None:
    assert next_step(step, None) is Step.NONE


def test_without_a_memory_bound_no_load_is_shed() -> None:
    one = Overload(0)
    assert not one.measured(1 << 60)
    assert (one.step, one.used_bytes) == (Step.NONE, 1 << 60)


def test_entered_steps_are_counted_and_changes_reported() -> None:
    one = Overload(100)
    changes = [one.measured(used) for used in (10, 85, 86, 99, 99, 10, None, 85)]
    assert changes == [False, True, False, True, False, True, False, True]
    assert one.entered == {
        Step.NONE: 0, Step.BUFFERS: 2, Step.UNAUTHENTICATED: 2, Step.IDLE: 1, Step.REQUESTS: 1,
    }  # fmt: skip


def test_a_failing_measurement_ends_load_shedding() -> None:
    one = Overload(100)
    one.measured(99)
    assert one.measured(None)
    assert (one.step, one.used_bytes) == (Step.NONE, 0)


def test_the_documented_steps_match_the_table() -> None:
    text = overload.__doc__ or ""
    for row in THRESHOLDS:
        words = next(line for line in text.splitlines() if f"``{row.step.name}``" in line).split()
        assert (int(words[1]), int(words[3])) == (round(row.enter * 100), round(row.leave * 100))
