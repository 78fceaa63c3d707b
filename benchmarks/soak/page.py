"""``python -m benchmarks.soak.page FOLDER``: docs/soak.md, its plot and its figures from a soak.

All measured parts of the page come from FOLDER/results.json; the prose is ``prose.md``.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any, Final

from benchmarks.plot import Series, Time, draw_times
from benchmarks.soak.record import FILE
from benchmarks.soak.slopes import BLOCKS, WARM_UP, Slope, slope_of

ROOT: Final = Path(__file__).parents[2]
PROSE: Final = Path(__file__).with_name("prose.md")
_UNITS: Final = re.compile(" (RSS MiB|PSS MiB|descriptors)$")
_POINTS: Final = 360
"""The most points of each line of the plot."""
_LEVEL: Final = "worker 0 level"
_SERIES: Final = (
    ("gateway PSS MiB", "memory of all processes, shared pages once (PSS)", "MiB"),
    ("worker 0 RSS MiB", "memory of worker 0, which is never killed (RSS)", "MiB"),
    (_LEVEL, "the same, without what its number of descriptors explains", "MiB"),
    ("supervisor RSS MiB", "memory of the supervisor (RSS)", "MiB"),
    ("fork server RSS MiB", "memory of the fork server (RSS)", "MiB"),
    ("gateway descriptors", "descriptors of all processes", ""),
    ("worker 0 descriptors", "descriptors of worker 0", ""),
    ("supervisor descriptors", "descriptors of the supervisor", ""),
    ("tasks", "asyncio tasks of all workers", ""),
    ("pooled connections", "unused connections to apps", ""),
    ("sockets", "open WebSockets", ""),
    ("WebSockets", "WebSockets as the gateway counts them", ""),
)


def make_page(found: dict[str, Any], prose: str) -> str:
    """Return the page: *prose* with the measured parts in place of its markers."""
    parts = {
        "run": _run(found),
        "verdict": _verdict(found),
        "slopes": _slopes(found["columns"]),
        "counts": _counts(found),
        "closing": _closing(found["closing_ms"]),
        "killed": _killed(found["killed"]),
        "cost": _cost(found["columns"]),
    }
    for name, text in parts.items():
        prose = prose.replace(f"<!-- {name} -->", text)
    return prose


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---", *("---:" for _ in header[1:])], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _run(found: dict[str, Any]) -> str:
    machine, hours = found["machine"], found["elapsed_seconds"] / 3600
    ended = "" if found["ended"] == "finished" else f" (of {found['hours']:g}; {found['ended']})"
    return (
        f"{hours:.2f} hours{ended}, begun {machine['date']} at commit `{machine['commit']}` on "
        f"{machine['processor']}, {machine['cores']} cores, Linux {machine['kernel']}: "
        f"{found['sockets']:,} WebSockets of {found['sessions']:,} sessions, "
        f"{found['workers']} workers, a sample every {found['sample_seconds']:g} s."
    )


def _verdict(found: dict[str, Any]) -> str:
    if not found["wrong"]:
        return "No response, message, close code or end of a connection was wrong."
    rows = [
        (name, f"{count:,}", found["first_wrong"][name].replace("|", "/"))
        for name, count in sorted(found["wrong"].items())
    ]
    return _table(("wrong", "times", "the first"), rows)


def slopes(columns: dict[str, list[float | None]]) -> dict[str, Slope | None]:
    """Return the slope of each series that the page shows."""
    numbers = {name: [_number(value) for value in column] for name, column in columns.items()}
    seconds = numbers["seconds"]
    found = {name: slope_of(seconds, numbers[name]) for name, _, _ in _SERIES if name in numbers}
    memory, open_files = numbers.get("worker 0 RSS MiB"), numbers.get("worker 0 descriptors")
    if memory is not None and open_files is not None:
        found[_LEVEL] = slope_of(seconds, memory, beside=open_files)
    return found


def _number(value: float | None) -> float:
    return float("nan") if value is None else float(value)


def _slopes(columns: dict[str, list[float | None]]) -> str:
    found = slopes(columns)
    rows = []
    for name, title, unit in _SERIES:
        slope = found.get(name)
        if slope is None:
            continue
        word = "grows" if slope.grows else "falls" if slope.high < 0 else "neither is shown"
        rows.append(
            (
                f"{title}{', ' + unit if unit else ''}",
                f"{slope.first:,.1f}",
                f"{slope.last:,.1f}",
                f"{slope.per_hour:+,.2f}",
                f"{slope.low:+,.2f} to {slope.high:+,.2f}",
                word,
            )
        )
    if not rows:
        return "Too few samples."
    header = ("", "early", "late", "an hour", "95 %", "")
    note = (
        "\n\n- The slopes are fitted by least squares. The first "
        f"{WARM_UP:.0%} of the samples are left out. The line goes through the means of {BLOCKS} "
        "blocks of the others, because neighbouring samples are alike.\n"
        "- *Early* and *late* are the first and the last of those means.\n"
        "- Worker 0 takes over connections of killed workers. Its second line is the slope that "
        "remains once both memory and time are regressed on its descriptors."
    )
    return _table(header, rows) + note


def _counts(found: dict[str, Any]) -> str:
    rows = [(name, f"{count:,}") for name, count in sorted(found["counts"].items())]
    return _table(("correct", "times"), rows)


def _closing(found: dict[str, dict[str, float]]) -> str:
    rows = [
        (f"session {kind}", f"{of['count']:,}", f"{of['p50']:.1f}", f"{of['p99']:.1f}",
         f"{of['most']:.1f}")
        for kind, of in sorted(found.items())
    ]  # fmt: skip
    return _table(
        ("publication begun → socket closed", "sockets", "p50 ms", "p99 ms", "last ms"), rows
    )


def _killed(found: list[dict[str, Any]]) -> str:
    if not found:
        return "No worker was killed in this run."
    back = sorted(one["back_seconds"] for one in found if one["back_seconds"] is not None)
    return (
        f"{len(found)} workers were killed. {len(back)} of them were replaced; the replacement "
        f"accepted after {back[len(back) // 2]:.2f} s (median) and {back[-1]:.2f} s at most. "
        f"{sum(one['lost'] for one in found):,} sockets were lost with the killed workers, which "
        f"had reported {sum(one['sockets'] for one in found):,} connections."
        if back
        else f"{len(found)} workers were killed, and none was replaced."
    )


def _cost(columns: dict[str, list[float | None]]) -> str:
    seconds = _number(columns["seconds"][-1]) - _number(columns["seconds"][0])
    if seconds <= 0:
        return ""
    parts = []
    for name in ("gateway", "load", "apps"):
        # The processor time of a killed worker is lost from the sum.
        used = [_number(value) for value in columns[f"{name} CPU s"]]
        spent = sum(max(0.0, after - before) for before, after in pairwise(used))
        parts.append(f"{name} {spent / seconds:.1%}")
    late = max(_number(value) for value in columns["load late ms"])
    return (
        f"Of one core: {', '.join(parts)}. The load's own timers were {late:,.0f} ms late at most: "
        "up to that much of any time above may be due to the machine."
    )


def draw(columns: dict[str, list[float | None]]) -> str:
    """Return the plot as SVG."""
    hours = [_number(at) / 3600 for at in columns["seconds"]]

    def series(names: Iterable[str]) -> list[Series]:
        return [
            Series(
                name.removesuffix(" MiB").removesuffix(" descriptors"), _thin(hours, columns[name])
            )
            for name in names
            if name in columns
        ]

    workers = sorted(name.removesuffix(" threads") for name in columns if name.endswith("threads"))
    return draw_times(
        [
            Time("Memory, RSS", "MiB", series(f"{name} RSS MiB" for name in workers)),
            Time("Memory of all, PSS", "MiB", series(["gateway PSS MiB"])),
            Time("Descriptors", "open", series(f"{name} descriptors" for name in workers)),
            Time("WebSockets", "open", series(["sockets", "WebSockets"])),
            Time("Asyncio tasks of all workers", "tasks", series(["tasks"])),
            Time("Unused connections to apps", "open", series(["pooled connections"])),
        ]
    )


def _thin(hours: Sequence[float], values: Sequence[float | None]) -> list[tuple[float, float]]:
    points = [
        (at, float(value)) for at, value in zip(hours, values, strict=True) if value is not None
    ]
    step = max(1, len(points) // _POINTS)
    return points[::step]


def write(folder: Path, out: Path) -> Path:
    """Write page, plot and figures of the soak in *folder* into *out*; return the page."""
    text = (folder / FILE).read_text()
    found: dict[str, Any] = json.loads(text)
    beside = out / "soak"
    beside.mkdir(parents=True, exist_ok=True)
    (beside / FILE).write_text(text)
    (beside / "soak.svg").write_text(draw(found["columns"]))
    page = out / "soak.md"
    page.write_text(make_page(found, PROSE.read_text()))
    return page


def main() -> int:
    """Write the page."""
    parser = argparse.ArgumentParser(prog="benchmarks.soak.page", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path, default=ROOT / "docs")
    told = parser.parse_args()
    print(write(told.folder, told.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
