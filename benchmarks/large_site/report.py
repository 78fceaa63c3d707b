"""The cost of a large site: as a table, as bars, and as the amounts that budgets judge."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from benchmarks.plot import Bars

_ROWS: Final = (
    ("memory of the leader, maximum", "peak_mib", "MiB", 0),
    ("longest stall of its event loop, in its own processor time", "stall_ms", "ms", 0),
    ("the same, in wall-clock time: other programs run, too", "stall_by_clock_ms", "ms", 0),
    ("a pod changes → its job is reconciled, p50", "p50_s", "s", 3),
    ("the same, p99", "p99_s", "s", 3),
    ("CPU while nothing happens, in each second", "at_rest_ms", "ms", 0),
    ("CPU of a job's whole life beside them", "life_ms", "ms", 0),
    ("memory of a standby controller", "standing_by_mib", "MiB", 0),
    ("a controller starts → every job was observed", "caught_up_s", "s", 1),
    ("the leader is killed → another leads, and works", "leads_s", "s", 1),
    ("the same → every change in between was observed", "change_while_nobody_led_s", "s", 1),
    ("the same → every job was observed", "all_looked_at_s", "s", 1),
    ("memory of the new leader, maximum", "standby_peak_mib", "MiB", 0),
    ("longest stall of its event loop, in its own processor time", "standby_stall_ms", "ms", 0),
)
_OURS: Final = "Fumarole"


def make_table(found: Mapping[str, Any]) -> str:
    """Return the results as tables in Markdown."""
    if not found:
        return "Not measured in this run."
    size = f"{found['jobs']:,} jobs with {found['pods']:,} pods of {found['pod_bytes']:,} bytes"
    rows = [
        f"| {title} | {found[name]:,.{digits}f} {unit} |"
        for title, name, unit, digits in _ROWS
        if name in found
    ]
    lines = ["\n".join([f"| {size} | |", "| --- | ---: |", *rows])]
    parts = [f"| {name} | {share:.0%} |" for name, share in found["parts"].items()]
    lines.append("\n".join(["| a job's life by part | of its CPU |", "| --- | ---: |", *parts]))
    return "\n\n".join(lines)


def make_panels(found: Mapping[str, Any]) -> list[Bars]:
    """Return the results as bars."""
    if not found:
        return []
    life = {name: found["life_ms"] * share for name, share in found["parts"].items()}
    times = {
        "a change, p50": found["p50_s"],
        "a change, p99": found["p99_s"],
        "another leads": found["leads_s"],
        "it observed changes": found["change_while_nobody_led_s"],
        "it observed all": found["all_looked_at_s"],
    }
    return [
        Bars("A job's life", "ms of CPU", life, _OURS),
        Bars("Beside 10,000 jobs", "s", times, _OURS),
    ]


def amounts_of(found: Mapping[str, Any]) -> dict[str, float]:
    """Return the amounts that budgets judge, by name."""
    if not found:
        return {}
    return {
        "site_mib": max(found["peak_mib"], found["standby_peak_mib"]),
        "site_stall_ms": max(found["stall_ms"], found["standby_stall_ms"]),
        "site_p99_s": found["p99_s"],
        "site_leads_s": max(found["leads_s"], found["change_while_nobody_led_s"]),
    }
