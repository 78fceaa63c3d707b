from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.limits.rates import Rate, retry_after
from tests.clock import Clock


def test_a_burst_is_allowed_and_then_the_rate() -> None:
    clock = Clock(1000.0)
    rate = Rate(3, 60.0, clock=clock)
    assert [rate.take("a") for _ in range(3)] == [0.0] * 3
    assert rate.take("a") == pytest.approx(20.0)
    clock.now += 19.9
    assert 0 < rate.take("a") <= 0.11
    clock.now += 0.1
    assert rate.take("a") == 0.0
    assert rate.take("a") > 0


def test_a_refused_attempt_does_not_count() -> None:
    clock = Clock(1000.0)
    rate = Rate(1, 10.0, clock=clock)
    assert rate.take("a") == 0.0
    assert {round(rate.take("a"), 6) for _ in range(100)} == {10.0}
    clock.now += 10.0
    assert rate.take("a") == 0.0


def test_keys_are_limited_separately() -> None:
    rate = Rate(1, 10.0, clock=Clock(1000.0))
    assert rate.take("a") == rate.take("b") == 0.0
    assert rate.take("a") > 0


def test_zero_means_no_limit() -> None:
    rate = Rate(0, 10.0, clock=Clock(1000.0))
    assert {rate.take("a") for _ in range(1000)} == {0.0}
    assert len(rate) == 0


def test_idle_keys_are_evicted_before_limited_ones() -> None:
    clock = Clock(1000.0)
    rate = Rate(1, 10.0, clock=clock, max_keys=100)
    for number in range(60):
        rate.take(f"old{number}")
    clock.now += 10.0
    for number in range(40):
        rate.take(f"waits{number}")
    assert rate.take("one more") == 0.0
    assert len(rate) == 41
    assert all(rate.take(f"waits{number}") > 0 for number in range(40))


def test_if_all_keys_are_limited_the_oldest_are_evicted() -> None:
    clock = Clock(1000.0)
    rate = Rate(1, 10.0, clock=clock, max_keys=80)
    for number in range(80):
        rate.take(f"k{number}")
    assert rate.take("k0") > 0, "which makes it the latest one that was heard of"
    assert rate.take("one more") == 0.0
    assert len(rate) == 71
    waits = [rate.take(key) > 0 for key in ("k0", *(f"k{number}" for number in range(11, 80)))]
    assert all(waits)
    assert rate.take("k1") == rate.take("k10") == 0.0


@pytest.mark.parametrize("max_keys", [1, 2, 7, 8, 100])
def test_the_number_of_keys_is_bounded_and_the_latest_are_kept(max_keys: int) -> None:
    clock = Clock(1000.0)
    rate = Rate(1, 10.0, clock=clock, max_keys=max_keys)
    for number in range(1000):
        assert rate.take(f"k{number}") == 0.0
        clock.now += 0.001
        assert len(rate) <= max_keys
    assert rate.take("k999") > 0


@given(steps=st.lists(st.floats(0, 5), max_size=60), often=st.integers(1, 10))
def test_no_window_admits_more_than_twice_the_limit(steps: list[float], often: int) -> None:
    """A burst, and then the sustained rate: as many again in the same time, and no more."""
    clock = Clock(1000.0)
    rate = Rate(often, 10.0, clock=clock)
    taken = []
    for step in steps:
        clock.now += step
        if rate.take("a") == 0.0:
            taken.append(clock.now)
    for first in taken:
        assert sum(first <= at < first + 10.0 for at in taken) <= 2 * often


@given(waits=st.floats(0.0001, 1000))
def test_an_attempt_after_retry_after_succeeds(waits: float) -> None:
    assert waits <= retry_after(waits) < waits + 1.0001 or retry_after(waits) == 1


@pytest.mark.parametrize("tidied", [True, False])
def test_idle_keys_are_forgotten(*, tidied: bool) -> None:
    clock = Clock(1000.0)
    rate = Rate(2, 10.0, clock=clock)
    for number in range(1000):
        rate.take(f"k{number}")
    clock.now += 10.0
    rate.take("k0")
    assert len(rate) == 1000
    clock.now += 10.0
    rate.tidy() if tidied else rate.take("k0")
    assert len(rate) == 1
    clock.now += 20.0
    rate.tidy()
    assert len(rate) == 0


@given(st.lists(st.tuples(st.sampled_from("ab"), st.floats(0, 30)), max_size=60))
def test_forgetting_idle_keys_changes_no_decision(calls: list[tuple[str, float]]) -> None:
    clock = Clock(1000.0)
    rate = Rate(3, 10.0, clock=clock)
    paid_at: dict[str, float] = {}
    for key, pause in calls:
        clock.now += pause
        due = max(paid_at.get(key, clock.now), clock.now) + 10.0 / 3
        waits = due - clock.now - 10.0
        if waits <= 1e-9:
            paid_at[key] = due
        assert rate.take(key) == pytest.approx(max(0.0, waits) if waits > 1e-9 else 0.0)
