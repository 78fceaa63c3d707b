"""Tests that a continuing failure is logged in few lines."""

from __future__ import annotations

import logging

import pytest

from shared.log import AGAIN_SECONDS, Outage


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str, object, object]]:
    return [
        (one.levelname, one.message, getattr(one, "why", None), getattr(one, "seconds", None))
        for one in caplog.records
    ]


def test_an_outage_is_logged_once_then_each_minute_and_at_its_end(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.INFO)
    now = 1000.0
    outage = Outage(
        logging.getLogger("x"), begins="Redis is away", ends="back", monotonic=lambda: now
    )
    outage.passed()
    while now <= 1000.0 + AGAIN_SECONDS:
        outage.failed(ValueError("refused"))
        now += 0.25
    outage.passed()
    outage.passed()
    outage.failed("anew")
    assert lines(caplog) == [
        ("WARNING", "Redis is away", "refused", None),
        ("WARNING", "Redis is away", "refused", AGAIN_SECONDS),
        ("INFO", "back", None, AGAIN_SECONDS + 0.2),
        ("WARNING", "Redis is away", "anew", None),
    ]
