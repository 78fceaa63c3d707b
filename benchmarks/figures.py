"""Fills numbers into the page's prose, which names each of them.

{cost WORK PROXY}      the median cost, with its unit
{times WORK PROXY}     our cost as a multiple of the proxy's
{kib PROXY}            the memory of an idle WebSocket
{amount NAME}          one of Results.amounts()
{p50 NAME}             the median of a latency, in ms
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from benchmarks import tls
from benchmarks.budgets import OURS
from benchmarks.plot import round_number
from benchmarks.results import Results
from benchmarks.works import WORKS

_NAMED: Final = re.compile(r"\{(cost|times|kib|amount|p50) ([^{}]+)\}")
_UNITS: Final = {work.name: work.unit for work in (*WORKS, *tls.WORKS)}
UNKNOWN: Final = "–"
"""Stands for a number that was not measured in this run."""


def fill(prose: str, results: Results) -> str:
    """Return *prose* with each number in its place.

    Raises:
        KeyError: If *prose* names a work that does not exist.
    """
    costs, amounts = results.costs(), results.amounts()

    def cost(name: str) -> str:
        work, proxy = name.split()
        unit, value = _UNITS[work], costs.get((work, proxy))
        return UNKNOWN if value is None else f"{round_number(value)} {unit}"

    def times(name: str) -> str:
        work, proxy = name.split()
        unit, ours, theirs = _UNITS[work], costs.get((work, OURS)), costs.get((work, proxy))
        return f"{ours / theirs:.2f}" if unit and ours and theirs else UNKNOWN

    def kib(name: str) -> str:
        return _number(results.idle_kib.get(name))

    def amount(name: str) -> str:
        return _number(amounts.get(name))

    def p50(name: str) -> str:
        found = results.latencies.get(name)
        return UNKNOWN if found is None else _number(found.p50)

    kinds: dict[str, Callable[[str], str]] = {
        "cost": cost,
        "times": times,
        "kib": kib,
        "amount": amount,
        "p50": p50,
    }
    return _NAMED.sub(lambda match: kinds[match[1]](match[2]), prose)


def _number(value: float | None) -> str:
    return UNKNOWN if value is None else round_number(value)
