"""Tests that the page on scale states the measured values."""

from __future__ import annotations

import json

from benchmarks.sizing import BEGIN, END, OWN, PAGE, RESULTS, cores, gateway_mib, make_table


def test_the_page_shows_the_results() -> None:
    table = make_table(json.loads(RESULTS.read_text()), json.loads(OWN.read_text()))
    assert f"{BEGIN}\n\n{table}\n\n{END}" in PAGE.read_text()


def test_needs_grow_with_sessions_and_cost_per_session() -> None:
    works = {"get-varied": 40.0, "echo": 10.0, "frames": 0.5}
    results = {
        "samples": [{"work": w, "proxy": "fumarole", "cost": c} for w, c in works.items()],
        "idle_kib": {"fumarole": 4.0},
    }
    # A fifth of the sessions is in use: a request, ten messages and 0.1 MB a second.
    assert cores(results, 1000) == 200 * (40 + 100 + 50) / 1e6
    own = {"gateway_mib": 50.0, "route_kib": 1.0}
    assert gateway_mib(results, own, 1024) == 50.0 + 1.0 + 3 * 4.0
