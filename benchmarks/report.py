"""Writes the page, the figures and the plots from the results of a run."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Final

from benchmarks import tls
from benchmarks.budgets import OURS, Verdict, judge_all
from benchmarks.figures import fill
from benchmarks.growth import Latency
from benchmarks.large_site import report as large_site
from benchmarks.plot import Bars, Lines, draw_bars, draw_lines, round_number
from benchmarks.results import Results
from benchmarks.run import PEERS
from benchmarks.works import WORKS, Sample, Work

PROSE: Final = Path(__file__).with_name("prose.md")
_LABELS: Final = {peer.name: peer.label for peer in PEERS}
_PLAIN: Final = {name: label.replace("*", "").replace("`", "") for name, label in _LABELS.items()}


_SUBMISSION: Final = (
    ("controller: jobs accepted", "accepted", "accepted_ms", ""),
    ("controller: from accepted to VolcanoJob", "controller", "controller_ms",
     "server_for_controller_ms"),
    ("bare client loop", "bare", "bare_ms", "server_for_bare_ms"),
)  # fmt: skip


def write_report(results: Results, out: Path) -> Path:
    """Write ``benchmarks.md`` and the folder ``benchmarks`` into *out*; return the page."""
    folder = out / "benchmarks"
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "results.json").write_text(results.to_json())
    (folder / "costs.svg").write_text(draw_bars(list(_cost_panels(results))))
    (folder / "growth.svg").write_text(draw_lines(_growth_panels(results)))
    if results.large_site:
        bars = large_site.make_panels(results.large_site)
        (folder / "large-site.svg").write_text(draw_bars(bars))
    page = out / "benchmarks.md"
    page.write_text(make_page(results, PROSE.read_text()))
    return page


def make_page(results: Results, prose: str) -> str:
    """Return the page: *prose* with the measured parts in place of its markers."""
    parts = {
        "machine": _machine(results),
        "budgets": _budgets(judge_all(results.costs(), results.amounts(), results.spreads())),
        "works": "\n\n".join(_work(results, work) for work in WORKS),
        "tls": "\n\n".join(_work(results, work) for work in tls.WORKS),
        "memory": _memory(results),
        "latencies": _latencies(results),
        "revocations": _revocations(results),
        "attackers": _attackers(results),
        "keystrokes": _keystrokes(results),
        "growth": _growth(results),
        "tables": results.tables or "Not measured in this run.",
        "submission": _submission(results),
        "many jobs": _many_jobs(results),
        "large site": large_site.make_table(results.large_site),
        "lists": results.lists or "Not measured in this run.",
        "problems": _problems(results),
    }
    prose = fill(prose, results)
    for name, text in parts.items():
        prose = prose.replace(f"<!-- {name} -->", text)
    return prose


def _table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    numbers = ["---", *("---:" for _ in header[1:])]
    lines = [header, numbers, *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def _machine(results: Results) -> str:
    machine = results.machine
    versions = ", ".join(f"{name} {version}" for name, version in machine.versions.items())
    return (
        f"Measured {machine.date} at commit `{machine.commit}` by "
        f"`make bench{' QUICK=1' if machine.quick else ''}` on {machine.processor}, "
        f"{machine.cores} cores, Linux {machine.kernel}; {versions}. "
        f"Load average before the run: {machine.load_average:.1f}."
    )


def _budgets(verdicts: Iterable[Verdict]) -> str:
    rows = []
    for verdict in verdicts:
        value = "not measured" if verdict.value is None else round_number(verdict.value)
        word = {True: "met", False: "**missed**", None: "–"}[verdict.met]
        if verdict.missed_by:
            word += f" by {100 * verdict.missed_by:.0f} %"
        spread = "–"
        if verdict.spread is not None:
            spread = "-".join(round_number(one) for one in verdict.spread)
            word = "within the spread" if verdict.met is None else word
        rows.append((verdict.work, verdict.limit, value, spread, word))
    return _table(("work", "budget", "measured", "from-to", ""), rows)


def _work(results: Results, work: Work) -> str:
    medians = results.medians()
    found = [(peer.name, medians.get((work.name, peer.name))) for peer in PEERS]
    there = [(name, sample) for name, sample in found if sample is not None]
    ordered = sorted(there, key=lambda found: found[1].cost)
    rows = [_row(results, name, sample, work) for name, sample in ordered]
    cost, rate = ("CPU, µs each", "a second") if work.unit == "µs" else ("CPU, ms/MB", "MB/s")
    spread = ("min", "max", "× Fumarole")
    head = ("proxy", cost, *spread, rate, "p50 µs", "p99 µs", "p99.9 µs", "core used")
    return f"### {work.title}\n\n" + _table(head, rows)


def _row(results: Results, name: str, sample: Sample, work: Work) -> tuple[str, ...]:
    # A stream has no latency of its own.
    stream = work.unit != "µs" and not work.desktop
    latencies = (
        ("–",) * 3
        if stream
        else tuple(f"{value:,.0f}" for value in (sample.p50, sample.p99, sample.p999))
    )
    costs = (sample.cost, *results.spreads()[work.name, name])
    digits = 1 if work.unit == "µs" else 2
    return (
        _LABELS[name],
        *(f"{value:.{digits}f}" for value in costs),
        _times(results, work, name),
        f"{sample.rate:,.0f}",
        *latencies,
        f"{sample.busy:.0%}",
    )


def _times(results: Results, work: Work, name: str) -> str:
    """Return the cost as a multiple of ours, in brackets where the rounds overlap."""
    costs, spreads = results.costs(), results.spreads()
    if (work.name, OURS) not in costs:
        return "–"
    times = f"{costs[work.name, name] / costs[work.name, OURS]:.2f}"
    if name == OURS:
        return times
    (low, high), (least, most) = spreads[work.name, name], spreads[work.name, OURS]
    return f"({times})" if low <= most and least <= high else times


def _memory(results: Results) -> str:
    ordered = sorted(results.idle_kib.items(), key=lambda item: item[1])
    rows = []
    for name, kib in ordered:
        runs = results.idle_runs.get(name, [kib])
        rows.append((_LABELS[name], *(f"{value:.1f}" for value in (kib, min(runs), max(runs)))))
    return _table(("proxy", "KiB an idle WebSocket", "min", "max"), rows)


def _latencies(results: Results) -> str:
    rows = [
        (one.name, f"{one.count:,}", f"{one.p50:.1f}", f"{one.p99:.1f}", f"{one.most:.1f}")
        for one in results.latencies.values()
    ]
    return _table(("from → to", "count", "p50 ms", "p99 ms", "longest ms"), rows)


def _revocations(results: Results) -> str:
    if not results.revocations:
        return "Not measured in this run."
    found = [Latency(**one) for one in results.revocations["latencies"]]
    rows = [
        (one.name, f"{one.count:,}", f"{one.p50:.1f}", f"{one.p99:.1f}", f"{one.most:.1f}")
        for one in found
    ]
    many = results.revocations["many"]
    return _table(("revoked", "sockets", "p50 ms", "p99 ms", "last ms"), rows) + (
        f"\n\nIn another test {many['followers']} followers of {many['routes']:,} routes run in "
        "one process, and their Redis is flushed and filled again. All tables were equal "
        f"{many['equal_seconds']:.2f} s after the flush, by {many['snapshots']} snapshots. "
        f"Meanwhile the slowest response to another client took {many['slowest_ms']:.0f} ms."
    )


def _attackers(results: Results) -> str:
    if not results.attackers:
        return "Not measured in this run."
    rows = [
        (
            one["attacker"],
            "beyond" if one["turn"] is None else f"{one['turn']:g}",
            f"{one['core']:.0%}" if "core" in one else "–",
            *(f"{one[name]:.1f}" for name in ("quiet_p95", "p95", "slowest")),
            str(one["wrong"]),
        )
        for one in results.attackers
    ]
    head = (
        "attacker",
        "longest turn, ms, at most",
        "gateway's core",
        "honest p95 ms, no attacker",
        "honest p95 ms, beside it",
        "honest slowest, ms",
    )
    return _table((*head, "wrong responses"), rows)


def _keystrokes(results: Results) -> str:
    if not results.keystrokes:
        return "Not measured in this run."
    rows = [
        (
            one["way"],
            str(one["terminals"]),
            f"{one['keys']:,}",
            f"{one['p50']:.2f}",
            f"{one['p99']:.2f}",
            f"{one['cpu_us']:.0f}" if one["cpu_us"] else "–",
        )
        for one in results.keystrokes
    ]
    head = ("way to the terminal", "terminals", "keys", "p50 ms", "p99 ms", "CPU, µs a key")
    return _table(head, rows)


def _growth(results: Results) -> str:
    tables = []
    for curve in dict.fromkeys(point.curve for point in results.points):
        points = [point for point in results.points if point.curve == curve]
        counts = sorted({point.count for point in points})
        rows = []
        for name in dict.fromkeys(point.sample.proxy for point in points):
            of = {p.count: p.sample.cost for p in points if p.sample.proxy == name}
            rows.append((_LABELS[name], *(f"{of[c]:.1f}" if c in of else "–" for c in counts)))
        tables.append(_table((f"µs, by {curve}", *(f"{count:,}" for count in counts)), rows))
    return "\n\n".join(tables)


def _submission(results: Results) -> str:
    pace = results.submission
    if not pace:
        return "Not measured in this run."
    head = ("", "jobs a second", "own CPU, ms a job", "API server's CPU, ms a job")
    rows = [
        (of, *(f"{pace[name]:,.1f}" if name in pace else "–" for name in names))
        for of, *names in _SUBMISSION
    ]
    return _table(head, rows)


def _many_jobs(results: Results) -> str:
    found = results.many_jobs
    if not found:
        return "Not measured in this run."
    head = ("beside", "CPU ms of a job's life", "CPU ms a second at rest", "memory, MiB")
    names = {
        "alone": "nothing",
        "waiting": f"{found['jobs']:,} waiting jobs",
        "over": f"{found['jobs']:,} ended jobs",
    }
    rows = [
        (title, *(f"{found[name][of]:,.0f}" for of in ("life_ms", "at_rest_ms", "memory_mib")))
        for name, title in names.items()
    ]
    submitted, ended = (f"{found[name]:,.0f}" for name in ("submitted", "ended"))
    pace = f"The other jobs were submitted at {submitted} a second, and ended at {ended} a second."
    return f"{_table(head, rows)}\n\n{pace}"


def _problems(results: Results) -> str:
    lines = [f"- without {_PLAIN[name]}: {why}" for name, why in results.missing.items()]
    lines += [f"- measured apart from the rest: {n}, {of}" for n, of in results.apart.items()]
    lines += [f"- {problem}" for problem in results.problems]
    return "\n".join(lines) or "Everything was measured, and no response was wrong."


def _cost_panels(results: Results) -> Iterable[Bars]:
    costs = results.costs()
    for work in WORKS:
        values = {_PLAIN[n]: cost for (w, n), cost in costs.items() if w == work.name}
        if values:
            yield Bars(work.short, work.unit, values, _PLAIN[OURS])
    if results.idle_kib:
        values = {_PLAIN[name]: kib for name, kib in results.idle_kib.items()}
        yield Bars("Idle WebSocket", "KiB", values, _PLAIN[OURS])


def _growth_panels(results: Results) -> list[Lines]:
    panels = []
    for curve, title in (
        ("sockets", "WebSocket echo"),
        ("in flight", "GET, new fields each time"),
        ("routes", "GET, by routes in the table"),
    ):
        points = [point for point in results.points if point.curve == curve]
        series: dict[str, list[tuple[float, float]]] = {}
        for point in points:
            label = _PLAIN[point.sample.proxy]
            series.setdefault(label, []).append((point.count, point.sample.cost))
        if series:
            panels.append(Lines(title, curve, "CPU, µs", series, _PLAIN[OURS]))
    return panels
