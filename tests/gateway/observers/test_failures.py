"""Tests recent failures: the last one of each session, bounded in number and time."""

from __future__ import annotations

from gateway.observers.reporter import KEPT_SECONDS, RecentFailures
from shared.reports import MOST_FAILING


def test_the_last_failure_of_a_session_expires() -> None:
    now = [0.0]
    failures = RecentFailures(wall=lambda: now[0])
    failures.note("a", "app_timeout")
    now[0] = 5.0
    failures.note("b", "app_timeout")
    failures.note("a", "app_unreachable")
    assert {sid: one.code for sid, one in failures.recent().items()} == {
        "a": "app_unreachable",
        "b": "app_timeout",
    }
    now[0] = 6.0 + KEPT_SECONDS
    assert failures.recent() == {}


def test_at_most_a_thousand_failing_sessions_are_kept() -> None:
    failures = RecentFailures(wall=lambda: 0.0)
    for number in range(MOST_FAILING + 10):
        failures.note(str(number), "app_timeout")
    found = failures.recent()
    assert len(found) == MOST_FAILING
    assert "9" not in found
    assert "10" in found
