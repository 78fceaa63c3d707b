"""``python -m benchmarks.attackers``: what one attacker costs others.

The gateway runs alone on one core; Redis, attacker, honest sessions and apps run on the other.
There the attacker has the lowest priority (``SCHED_IDLE``). So honest sessions get the processor as
soon as a response arrives, and the attacker's own computing does not delay them.

Each attacker of the tests runs alone, after a quiet time. Measured are

- the longest turn of the loop that a connection took, in the gateway's own processor time
  (:mod:`benchmarks.timed_gateway`);
- how much of the gateway's core the attacker used;
- the response times of the honest sessions.

Each figure is the median of the rounds. The program prints JSON, which ``make bench`` puts into a
table.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import math
import os
import re
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Final

from benchmarks.programs import cores, off_the_proxies_core
from tests.pressure.attackers import ATTACKERS, Attack, attack_on
from tests.pressure.gateway_under_test import HonestProcess, PressureRig, running_ground
from tests.pressure.honest import HonestResults

ROUNDS: Final = 5
SECONDS: Final = 3.0
QUIET_SECONDS: Final = 1.5
SETTLE_SECONDS: Final = 1.0
"""Pause between attackers, so that the traces of one do not count for the next."""
SESSIONS: Final = 8
PAUSE_SECONDS: Final = 0.02
PROGRAM: Final = "benchmarks.timed_gateway"
DEFAULTS: Final = {
    "HEAD_SECONDS": "10",
    "APP_HEAD_SECONDS": "300",
    "SLOW_BODY_SECONDS": "60",
    "WRITE_STALL_SECONDS": "60",
    "APP_WRITE_STALL_SECONDS": "300",
}
"""The deadlines of the product; those of the tests are shorter."""
_BUCKET: Final = re.compile(r'fumarole_gateway_turn_seconds_bucket\{le="([^"]+)"\}')


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of an attacker for others; times in milliseconds.

    Attributes:
        turn: The least bound of the histogram that no turn exceeded.
        core: How much of its core the gateway used beside the attacker, 0 to 1.
    """

    attacker: str
    turn: float
    core: float
    quiet_p95: float
    p95: float
    slowest: float
    wrong: int


def longest_turn(before: Mapping[str, float], after: Mapping[str, float]) -> float:
    """Return the least bound of the histogram, in ms, that no turn exceeded meanwhile."""
    found, counted = 0.0, 0.0
    for bound, count in sorted(_buckets(after, before).items()):
        if count > counted:
            found, counted = bound, count
    return found * 1000


def _buckets(after: Mapping[str, float], before: Mapping[str, float]) -> dict[float, float]:
    matches = ((_BUCKET.fullmatch(name), name) for name in after)
    return {
        float(match[1]): after[name] - before.get(name, 0.0)
        for match, name in matches
        if match is not None
    }


async def measure(
    ground: PressureRig, others: HonestProcess, name: str, attack: Attack, seconds: float
) -> Cost:
    """Return the cost of one round of *attack*."""
    await asyncio.sleep(SETTLE_SECONDS)
    await others.seen()
    await asyncio.sleep(QUIET_SECONDS)
    quiet, before = await others.seen(), await ground.metrics()
    began, used = time.monotonic(), ground.cpu()
    attacking = asyncio.create_task(attack_on(ground, attack))
    await asyncio.sleep(seconds)
    beside = await others.seen()
    core = (ground.cpu() - used) / (time.monotonic() - began)
    attacking.cancel()
    await asyncio.gather(attacking, return_exceptions=True)
    ground.close()
    after = await ground.metrics()
    return _cost(name, longest_turn(before, after), core, quiet, beside)


def _cost(name: str, turn: float, core: float, quiet: HonestResults, beside: HonestResults) -> Cost:
    return Cost(
        attacker=name,
        turn=turn,
        core=round(core, 3),
        quiet_p95=1000 * quiet.p95,
        p95=1000 * beside.p95,
        slowest=1000 * beside.slowest,
        wrong=len(quiet.wrong) + len(beside.wrong),
    )


def median_of(costs: list[Cost]) -> Cost:
    """Return the median of each figure, and the sum of wrong responses."""
    return Cost(
        attacker=costs[0].attacker,
        turn=median(cost.turn for cost in costs),
        core=median(cost.core for cost in costs),
        quiet_p95=median(cost.quiet_p95 for cost in costs),
        p95=median(cost.p95 for cost in costs),
        slowest=median(cost.slowest for cost in costs),
        wrong=sum(cost.wrong for cost in costs),
    )


def yield_processor() -> None:
    """Give this process the lowest priority for good: raising it again needs a privilege."""
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))


async def measure_all(
    folder: Path,
    *,
    rounds: int,
    seconds: float,
    names: Iterable[str] = tuple(ATTACKERS),
    begun: Callable[[], None] = lambda: None,
) -> list[Cost]:
    """Return the cost of each attacker of *names*; call *begun* once all other programs run."""
    attackers = {name: ATTACKERS[name] for name in names}
    found: dict[str, list[Cost]] = {name: [] for name in attackers}
    with off_the_proxies_core():
        async with (
            running_ground(folder, DEFAULTS, core=cores()[0], program=PROGRAM) as ground,
            ground.honest(SESSIONS, pause=PAUSE_SECONDS) as others,
        ):
            begun()
            for _ in range(rounds):
                for name, attack in attackers.items():
                    found[name].append(await measure(ground, others, name, attack, seconds))
    return [median_of(costs) for costs in found.values()]


def to_json(costs: list[Cost]) -> str:
    """Return *costs* as JSON; a turn beyond the histogram's bounds is null."""
    rows = [asdict(cost) for cost in costs]
    for row in rows:
        row["turn"] = None if math.isinf(row["turn"]) else row["turn"]
    return json.dumps(rows)


def main() -> None:
    """Measure, and print JSON."""
    parser = argparse.ArgumentParser(prog="benchmarks.attackers", description=__doc__)
    parser.add_argument("--rounds", type=int, default=ROUNDS)
    parser.add_argument("--seconds", type=float, default=SECONDS)
    parser.add_argument(
        "--attacker",
        action="append",
        choices=tuple(ATTACKERS),
        metavar="NAME",
        help="only this one; may be given several times",
    )
    chosen = parser.parse_args()
    logging.getLogger("asyncio").setLevel(logging.ERROR)
    with tempfile.TemporaryDirectory(prefix="fumarole-attackers-") as folder:
        measuring = measure_all(
            Path(folder),
            rounds=chosen.rounds,
            seconds=chosen.seconds,
            names=chosen.attacker or tuple(ATTACKERS),
            begun=yield_processor,
        )
        costs = asyncio.run(measuring)
    print(to_json(costs))


if __name__ == "__main__":
    main()
