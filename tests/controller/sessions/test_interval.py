from __future__ import annotations

import pytest

from controller.sessions.interval import Interval
from tests.clock import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock(64.0)


@pytest.fixture
def interval(clock: Clock) -> Interval:
    return Interval(8.0, clock)


def test_a_new_interval_is_due(interval: Interval, clock: Clock) -> None:
    # A monotonic clock may start at any value.
    for clock.now in (-64.0, 0.0, 64.0):
        assert interval.is_due
        assert interval.left_seconds == 0.0


@pytest.mark.parametrize(
    ("passed", "left"), [(0.0, 8.0), (7.5, 0.5), (8.0, 0.0), (8.5, 0.0), (80.0, 0.0)]
)
def test_an_interval_is_due_after_its_seconds(
    interval: Interval, clock: Clock, passed: float, left: float
) -> None:
    interval.begin()
    clock.now += passed
    assert interval.left_seconds == left
    assert interval.is_due is (left == 0.0)


def test_an_interval_counts_from_the_last_run(interval: Interval, clock: Clock) -> None:
    interval.begin()
    clock.now += 20.0
    interval.begin()
    assert interval.left_seconds == 8.0


def test_an_interval_can_be_made_due(interval: Interval) -> None:
    interval.begin()
    interval.make_due()
    assert interval.is_due
    assert interval.left_seconds == 0.0
    interval.begin()
    assert not interval.is_due
