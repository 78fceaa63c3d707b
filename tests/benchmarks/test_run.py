"""Tests a whole benchmark run, as small as possible, where no peer could be installed."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

from benchmarks import tls
from benchmarks.install import Programs
from benchmarks.native_programs import build
from benchmarks.plan import Plan
from benchmarks.report import write_report
from benchmarks.run import PEERS, Run
from benchmarks.works import WORKS

TINY = Plan(
    enough_seconds=600.0,
    rounds=1,
    seconds=0.5,
    sockets=(1, 8),
    in_flight=(1, 8),
    routes=(1, 20),
    idle=16,
    idle_rounds=1,
    events=3,
    revoked=16,
    followers=2,
    gateways=2,
    attacks=0,
    keys=26,
    tables=False,
    submitted=0,
    beside=0,
    listed=2000,
)


@pytest.mark.long
@pytest.mark.timeout(600)
@pytest.mark.needs("cc")
async def test_a_run_without_peers_measures_the_gateway(tmp_path: Path) -> None:
    programs = Programs(found={"python": sys.executable}, missing={"nginx": "no network"})
    run = Run(TINY, programs, build(tmp_path), tmp_path)
    await run.all()
    found = run.results
    assert found.problems == []
    assert found.missing["nginx"] == "no network"
    assert set(found.missing) == {peer.name for peer in PEERS if peer.program != "python"}
    assert {work for work, proxy in found.costs() if proxy == "fumarole"} == {
        w.name for w in (*WORKS, *tls.WORKS)
    }
    assert set(found.amounts()) == {"idle", "routable", "revoked", "many"}
    assert {point.curve for point in found.points} == {"sockets", "in flight", "routes"}
    ways = {(one["way"], one["terminals"]) for one in found.keystrokes}
    assert len(ways) == len(found.keystrokes) == 6
    page = write_report(found, tmp_path / "docs").read_text()
    assert "without nginx: no network" in page


def test_an_unavailable_peer_is_reported_and_not_fatal(tmp_path: Path) -> None:
    run = Run(TINY, Programs(found={"python": sys.executable}), {}, tmp_path)
    assert {peer.program for peer in run._present()} == {"python"}
    assert run.results.missing["envoy"] == "not found"


async def test_a_late_run_skips_works_that_have_not_begun(tmp_path: Path) -> None:
    plan = replace(TINY, enough_seconds=0.0, rounds=2)
    run = Run(plan, Programs(found={"python": sys.executable}), {}, tmp_path)
    await run._measure_works([])
    await run._measure_growth([])
    left_out = [text.rpartition(": ")[2] for text in run.results.problems]
    assert left_out == ["round 2", "1 sockets", "8 sockets", "1 in flight", "8 in flight"]
