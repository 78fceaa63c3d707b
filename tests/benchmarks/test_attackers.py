"""Tests the benchmark of one attacker's cost to others: the arithmetic, and a real round."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks import attackers
from benchmarks.attackers import Cost, longest_turn, measure_all, median_of, to_json


def histogram(**counts: float) -> dict[str, float]:
    """Return cumulated samples; ``_0_005`` is the bound 0.005."""
    return {
        f'fumarole_gateway_turn_seconds_bucket{{le="{name.strip("_").replace("_", ".")}"}}': count
        for name, count in counts.items()
    }


def cost(turn: float, p95: float = 1.0, wrong: int = 0) -> Cost:
    return Cost(attacker="x", turn=turn, core=0.5, quiet_p95=1.0, p95=p95, slowest=2.0, wrong=wrong)


def test_the_longest_turn_is_the_smallest_bucket_that_holds_all() -> None:
    before = histogram(_0_001=5, _0_005=6, _0_01=7, inf=7)
    after = histogram(_0_001=9, _0_005=12, _0_01=13, inf=13)
    assert longest_turn(before, after) == pytest.approx(5.0)
    assert longest_turn(before, before) == 0.0
    assert longest_turn({}, histogram(_0_001=1, inf=2)) == float("inf")
    assert longest_turn({}, {"another": 1.0}) == 0.0


def test_medians_are_taken_per_figure_and_wrong_responses_are_summed() -> None:
    found = median_of([cost(1.0, 9.0, 1), cost(5.0, 2.0), cost(2.5, 3.0, 2)])
    assert (found.turn, found.p95, found.wrong) == (2.5, 3.0, 3)


def test_a_turn_beyond_the_histogram_has_no_value() -> None:
    assert json.loads(to_json([cost(float("inf"))]))[0]["turn"] is None


async def test_a_round_is_measured_on_a_real_gateway(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = "4-byte RFB messages, view only"
    monkeypatch.setattr(attackers, "SETTLE_SECONDS", 0.1)
    monkeypatch.setattr(attackers, "QUIET_SECONDS", 0.3)
    begun = list[str]()
    found = await measure_all(
        tmp_path,
        rounds=1,
        seconds=0.5,
        names=[one],
        begun=lambda: begun.append("once all others run"),
    )
    assert begun == ["once all others run"]
    assert [(each.attacker, each.wrong) for each in found] == [(one, 0)]
    assert found[0].turn > 0
    assert found[0].core > 0
    assert found[0].p95 > 0
