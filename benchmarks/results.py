"""The results of a run: collected while it runs, written and read as JSON."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
import subprocess
from collections.abc import Collection
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from benchmarks.budgets import Spreads
from benchmarks.growth import Latency, Point
from benchmarks.large_site.report import amounts_of
from benchmarks.measure import median
from benchmarks.works import Sample


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """The machine and the versions of a run."""

    processor: str
    cores: int
    kernel: str
    commit: str
    date: str
    versions: dict[str, str]
    quick: bool
    load_average: float


def this_machine(versions: dict[str, str], *, quick: bool) -> Machine:
    """Return a description of this machine, now."""
    lines = Path("/proc/cpuinfo").read_text().splitlines()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return Machine(
        processor=names[0] if names else platform.machine(),
        cores=len(os.sched_getaffinity(0)),
        kernel=platform.release(),
        commit=_git("rev-parse", "--short=12", "HEAD")
        + ("+" if _git("status", "-s", "-uno") else ""),
        date=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        versions=versions,
        quick=quick,
        load_average=os.getloadavg()[0],
    )


def _git(*arguments: str) -> str:
    done = subprocess.run(["git", *arguments], capture_output=True, text=True)
    return done.stdout.strip() if done.returncode == 0 else "unknown"


@dataclass(slots=True, kw_only=True)
class Results:
    """All results; ``missing`` and ``problems`` say what was not measured."""

    machine: Machine
    samples: list[Sample] = field(default_factory=list)
    points: list[Point] = field(default_factory=list)
    idle_kib: dict[str, float] = field(default_factory=dict)
    """The median of each proxy's ``idle_runs``."""
    idle_runs: dict[str, list[float]] = field(default_factory=dict)
    latencies: dict[str, Latency] = field(default_factory=dict)
    tables: str = ""
    lists: str = ""
    submission: dict[str, float] = field(default_factory=dict)
    many_jobs: dict[str, Any] = field(default_factory=dict)
    large_site: dict[str, Any] = field(default_factory=dict)
    revocations: dict[str, Any] = field(default_factory=dict)
    attackers: list[dict[str, Any]] = field(default_factory=list)
    keystrokes: list[dict[str, Any]] = field(default_factory=list)
    apart: dict[str, str] = field(default_factory=dict)
    """The works that come from another run than the rest, with a description of that run."""
    missing: dict[str, str] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(self, sample: Sample) -> None:
        """Keep *sample*, or note why it does not count."""
        if sample.problem:
            self.problems.append(f"{sample.work} on {sample.proxy}: {sample.problem}")
        else:
            self.samples.append(sample)

    def take(self, names: Collection[str], other: Results) -> None:
        """Replace the works called *names* by those of *other*."""
        kept = [one for one in self.samples if one.work not in names]
        self.samples = kept + [one for one in other.samples if one.work in names]
        self.keystrokes = other.keystrokes or self.keystrokes
        machine = other.machine
        when = f"{machine.date} at commit `{machine.commit}`, load average before"
        self.apart |= dict.fromkeys(names, f"{when} {machine.load_average:.1f}")
        self.problems += other.problems

    def add_idle(self, proxy: str, kib: float) -> None:
        """Keep one measurement of an idle WebSocket's memory."""
        runs = self.idle_runs.setdefault(proxy, [])
        runs.append(kib)
        self.idle_kib[proxy] = median(runs)

    def spreads(self) -> Spreads:
        """Return the least and the greatest cost by work and proxy."""
        found: Spreads = {}
        for sample in self.samples:
            key = sample.work, sample.proxy
            low, high = found.get(key, (sample.cost, sample.cost))
            found[key] = min(low, sample.cost), max(high, sample.cost)
        return found

    def medians(self) -> dict[tuple[str, str], Sample]:
        """Return the median of each figure by work and proxy."""
        grouped: dict[tuple[str, str], list[Sample]] = {}
        for sample in self.samples:
            grouped.setdefault((sample.work, sample.proxy), []).append(sample)
        return {key: _median_of(group) for key, group in grouped.items()}

    def costs(self) -> dict[tuple[str, str], float]:
        """Return the median cost by work and proxy."""
        return {key: sample.cost for key, sample in self.medians().items()}

    def amounts(self) -> dict[str, float]:
        """Return the amounts for the budgets that are no ratios, by name."""
        amounts = {name: latency.p99 for name, latency in self.latencies.items()}
        if "fumarole" in self.idle_kib:
            amounts["idle"] = self.idle_kib["fumarole"]
        if self.revocations:
            amounts["revoked"] = self.revocations["latencies"][-1]["p99"]
        if self.attackers:
            # A turn beyond the histogram's bounds has no number.
            turns = [float("inf") if one["turn"] is None else one["turn"] for one in self.attackers]
            amounts["turn"] = max(turns)
            amounts["beside"] = max(one["p95"] / one["quiet_p95"] for one in self.attackers)
        if "ratio" in self.submission:
            amounts["submission"] = self.submission["ratio"]
        if self.many_jobs:
            alone = self.many_jobs["alone"]["life_ms"]
            amounts |= {
                f"life_{beside}": self.many_jobs[beside]["life_ms"] / alone
                for beside in ("waiting", "over")
            }
        return amounts | _amounts_of(self.tables) | amounts_of(self.large_site)

    @classmethod
    def from_json(cls, text: str) -> Results:
        """Return the results that :meth:`to_json` wrote."""
        return msgspec.json.decode(text, type=cls)

    def to_json(self) -> str:
        """Return all results as JSON."""
        return json.dumps(dataclasses.asdict(self), indent=1, ensure_ascii=False) + "\n"


def _amounts_of(tables: str) -> dict[str, float]:
    """Return the costs of the largest table, from the output of benchmarks.routes."""
    found, signed = {}, {}
    for line in tables.splitlines():
        cells = [cell.strip().split(" ")[0].replace(",", "") for cell in line.split("|")[1:-1]]
        if cells and cells[0].isdigit():
            found[int(cells[0])] = cells
        elif cells and cells[0] == "signed":
            signed = {"signed_s": float(cells[1]), "signed_stall_ms": float(cells[2])}
    if 100_000 not in found or 1000 not in found:
        return {}
    large, small = found[100_000], found[1000]
    return signed | {
        "snapshot_s": float(large[1]),
        "stall_ms": float(large[2]),
        "route_kib": float(large[3]),
        "event_growth": float(large[4]) / float(small[4]),
    }


def _median_of(group: list[Sample]) -> Sample:
    return dataclasses.replace(
        group[0],
        cost=median(sample.cost for sample in group),
        rate=median(sample.rate for sample in group),
        p50=median(sample.p50 for sample in group),
        p99=median(sample.p99 for sample in group),
        p999=median(sample.p999 for sample in group),
        busy=median(sample.busy for sample in group),
        load_busy=median(sample.load_busy for sample in group),
    )
