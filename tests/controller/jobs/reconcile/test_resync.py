"""How long a resync rests."""

from __future__ import annotations

import pytest

from controller.jobs.reconcile.reconciler import rest_after


@pytest.mark.parametrize(
    ("jobs", "each", "round_seconds", "share"),
    [
        (100, 0.003, 6, 0.05),
        (10_000, 0.004, 600, 0.067),
        (20_000, 0.01, 800, 0.25),
        (100_000, 0.005, 2000, 0.25),
    ],
)
def test_a_round_takes_ten_minutes_or_a_share_of_the_time(
    jobs: int, each: float, round_seconds: float, share: float
) -> None:
    took = 20 * each
    took_and_rest = took + rest_after(took, 20 / jobs)
    assert took_and_rest * jobs / 20 == pytest.approx(round_seconds, rel=0.02)
    assert took / took_and_rest == pytest.approx(share, rel=0.02)


def test_one_that_took_long_is_followed_by_the_next_soon() -> None:
    assert rest_after(60.0, 0.5) == 5.0
