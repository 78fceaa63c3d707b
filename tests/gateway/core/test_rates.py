from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.rates import Rate, whole_seconds


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_so_many_at_once_and_then_one_by_one() -> None:
    clock = Clock()
    rate = Rate(3, 60.0, clock=clock)
    assert [rate.take("a") for _ in range(3)] == [0.0] * 3
    assert rate.take("a") == pytest.approx(20.0)
    clock.now += 19.9
    assert 0 < rate.take("a") <= 0.11
    clock.now += 0.1
    assert rate.take("a") == 0.0
    assert rate.take("a") > 0


def test_who_waits_is_not_counted() -> None:
    clock = Clock()
    rate = Rate(1, 10.0, clock=clock)
    assert rate.take("a") == 0.0
    assert {round(rate.take("a"), 6) for _ in range(100)} == {10.0}
    clock.now += 10.0
    assert rate.take("a") == 0.0


def test_keys_do_not_mind_each_other() -> None:
    rate = Rate(1, 10.0, clock=Clock())
    assert rate.take("a") == rate.take("b") == 0.0
    assert rate.take("a") > 0


def test_zero_is_without_limit() -> None:
    rate = Rate(0, 10.0, clock=Clock())
    assert {rate.take("a") for _ in range(1000)} == {0.0}
    assert len(rate) == 0


def test_who_has_many_keys_fills_no_memory_and_frees_nobody_who_waits_alone() -> None:
    clock = Clock()
    rate = Rate(1, 10.0, clock=clock, most_keys=100)
    for number in range(1000):
        assert rate.take(f"k{number}") == 0.0
        clock.now += 0.001
    assert len(rate) <= 100
    assert rate.take("k999") > 0
    clock.now += 20
    rate.take("new")
    for number in range(99):
        rate.take(f"more{number}")
    rate.take("last")
    assert len(rate) <= 101


@given(steps=st.lists(st.floats(0, 5), max_size=60), often=st.integers(1, 10))
def test_never_more_than_twice_as_many_in_any_window(steps: list[float], often: int) -> None:
    """A burst, and then what came due since: so many again in the same time, and no more."""
    clock = Clock()
    rate = Rate(often, 10.0, clock=clock)
    taken = []
    for step in steps:
        clock.now += step
        if rate.take("a") == 0.0:
            taken.append(clock.now)
    for first in taken:
        assert sum(first <= at < first + 10.0 for at in taken) <= 2 * often


@given(waits=st.floats(0.0001, 1000))
def test_retry_after_is_long_enough(waits: float) -> None:
    assert waits <= whole_seconds(waits) < waits + 1.0001 or whole_seconds(waits) == 1
