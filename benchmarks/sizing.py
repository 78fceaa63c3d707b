"""Resources by number of sessions: ``python -m benchmarks.sizing [--measure]``.

The figures come from docs/benchmarks/results.json. With ``--measure`` two further figures are
measured first, into docs/benchmarks/sizing.json: the memory of a gateway that was just started, and
the memory of a route in Redis. The table goes into docs/how-to/scale.md.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import statistics
import tempfile
from pathlib import Path
from typing import Any, Final, TypeAlias

from benchmarks.peers.fumarole import make_route, new_sid, running_gateway
from benchmarks.workers import family_of, memory_mib, until_known
from shared.bus import connect

Json: TypeAlias = dict[str, Any]

SESSIONS: Final = (100, 1_000, 10_000)
SOCKETS: Final = 3
"""Of each session."""
USED: Final = 0.2
"""The share of sessions in use at the same moment. In a second, each of them has:"""
REQUESTS: Final = 1
MESSAGES: Final = 10
SHOWN_MB: Final = 0.1
SHELLS: Final = 0.2
"""The share of sessions that are terminals."""
SCROLLBACK_MIB: Final = 8
ALL_SCROLLBACK_MIB: Final = 512
ROUTES: Final = 10_000
_DOCS: Final = Path(__file__).parents[1] / "docs"
PAGE: Final = _DOCS / "how-to" / "scale.md"
RESULTS: Final = _DOCS / "benchmarks" / "results.json"
OWN: Final = _DOCS / "benchmarks" / "sizing.json"
BEGIN, END = "<!-- written by benchmarks/sizing.py -->", "<!-- end -->"


def cores(results: Json, sessions: int) -> float:
    """Return how many cores the gateways need at that share of sessions in use."""
    second: float = REQUESTS * _cost(results, "get-varied") + MESSAGES * _cost(results, "echo")
    second += SHOWN_MB * _cost(results, "frames") * 1e3
    return sessions * USED * second / 1e6


def _cost(results: Json, work: str) -> float:
    """Return the gateway's median cost: microseconds each, or milliseconds a megabyte."""
    samples = results["samples"]
    ours = [one for one in samples if (one["work"], one["proxy"]) == (work, "fumarole")]
    return float(statistics.median(one["cost"] for one in ours))


def gateway_mib(results: Json, own: dict[str, float], sessions: int) -> float:
    """Return the memory of one gateway process that has all routes, and all sockets."""
    kib: float = sessions * (own["route_kib"] + SOCKETS * results["idle_kib"]["fumarole"])
    return own["gateway_mib"] + kib / 1024


def make_table(results: Json, own: dict[str, float]) -> str:
    """Return the table of the page."""
    site = results["large_site"]
    lines = [
        "| | " + " | ".join(f"{count:,} sessions" for count in SESSIONS) + " |",
        "|---|" + "---:|" * len(SESSIONS),
    ]
    rows: list[tuple[str, list[str]]] = [
        ("WebSockets open", [f"{count * SOCKETS:,}" for count in SESSIONS]),
        ("all gateways: cores in use", [f"{cores(results, count):.2g}" for count in SESSIONS]),
        (
            "each gateway process: memory, with all sockets on it",
            [f"{gateway_mib(results, own, count):.0f} MiB" for count in SESSIONS],
        ),
        (
            "hub: scrollback of the shells, at most",
            [f"{_scrollback(count)} MiB" for count in SESSIONS],
        ),
        (
            "Redis: routes",
            [f"{count * own['redis_route_kib'] / 1024:.1f} MiB" for count in SESSIONS],
        ),
    ]
    lines += [f"| {name} | " + " | ".join(values) + " |" for name, values in rows]
    return "\n".join([
        *lines,
        "",
        f"The controller with {site['pods']:,} pods in {site['jobs']:,} jobs:",
        "",
        "| | |",
        "|---|---:|",
        f"| peak memory of the leader, of a standby replica "
        f"| {site['peak_mib']:.0f} MiB, {site['standby_peak_mib']:.0f} MiB |",
        f"| processor time of a job's whole life | {site['life_ms']:.0f} ms |",
        f"| from a change in the cluster until its job is reconciled: median, p99 "
        f"| {site['p50_s'] * 1e3:.0f} ms, {site['p99_s'] * 1e3:.0f} ms |",
        f"| from the leader's death until another one leads | {site['leads_s']:.1f} s |",
    ])  # fmt: skip


def _scrollback(sessions: int) -> int:
    return min(round(sessions * SHELLS) * SCROLLBACK_MIB, ALL_SCROLLBACK_MIB)


async def measure() -> dict[str, float]:
    """Return the memory of a gateway without routes and with many, and of Redis for these."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        routes = [make_route(new_sid(), 1) for _ in range(ROUTES)]
        async with running_gateway(folder, []) as (proxy, orchestrator):
            pids = [*family_of(proxy.group)]
            empty = memory_mib(pids)
            redis = connect(f"unix://{folder / 'redis.sock'}")
            before = await _used(redis)
            await orchestrator.rebuild(routes)
            await until_known(folder, orchestrator)
            found = {
                "gateway_mib": empty,
                "route_kib": (memory_mib(pids) - empty) * 1024 / ROUTES,
                "redis_route_kib": (await _used(redis) - before) / 1024 / ROUTES,
            }
            await redis.aclose()
    return found


async def _used(redis: Any) -> int:
    return int((await redis.info("memory"))["used_memory"])


def write(table: str) -> None:
    """Put the table into the page."""
    page = PAGE.read_text()
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    PAGE.write_text(f"{before}{BEGIN}\n\n{table}\n\n{END}{after}")


def main() -> None:
    """Write the table; measure first with ``--measure``."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--measure", action="store_true")
    if parser.parse_args().measure:
        OWN.write_text(json.dumps(asyncio.run(measure()), indent=1) + "\n")
    write(make_table(json.loads(RESULTS.read_text()), json.loads(OWN.read_text())))


if __name__ == "__main__":
    main()
