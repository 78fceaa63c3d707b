"""Reads the cost of a proxy from /proc, and has the arithmetic on it."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

PROC: Final = Path("/proc")
_TICK_SECONDS: Final = 1.0 / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Stat:
    """One process in /proc: its group, and the CPU that it used."""

    pid: int
    group: int
    cpu_seconds: float


def parse_stat(text: str) -> Stat:
    """Parse a ``/proc/<pid>/stat``, in which the program's name may hold any characters."""
    pid = int(text.partition(" ")[0])
    fields = text.rpartition(")")[2].split()
    # Fields 5 and 14 to 17 of proc(5), counted from the third: group, utime, stime, and both times
    # of ended children. Without these the sum would fall when a process of the group ends.
    ticks = sum(int(field) for field in fields[11:15])
    return Stat(pid, int(fields[2]), ticks * _TICK_SECONDS)


def processes_of(group: int) -> list[Stat]:
    """Return the live processes of a process group."""
    found = []
    for entry in PROC.iterdir():
        if entry.name.isdigit():
            try:
                stat = parse_stat((entry / "stat").read_text())
            except OSError:
                continue  # ended meanwhile
            if stat.group == group:
                found.append(stat)
    return found


def cpu_seconds(group: int) -> float:
    """Return the CPU that the processes of *group* have used."""
    return sum(stat.cpu_seconds for stat in processes_of(group))


def private_bytes(group: int) -> int:
    """Return the memory of *group* that no other process shares in full (PSS)."""
    total = 0
    for stat in processes_of(group):
        for line in (PROC / str(stat.pid) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                total += int(line.split()[1]) * 1024
    return total


def descriptors(group: int) -> int:
    """Return how many descriptors the processes of *group* have open."""
    return sum(len(list((PROC / str(s.pid) / "fd").iterdir())) for s in processes_of(group))


def median(values: Iterable[float]) -> float:
    """Return the middle of *values*, or the mean of the two in the middle.

    Raises:
        ValueError: If there is none.
    """
    ordered = sorted(values)
    if not ordered:
        raise ValueError("nothing was measured")
    middle = len(ordered) // 2
    if len(ordered) % 2:
        return ordered[middle]
    return (ordered[middle - 1] + ordered[middle]) / 2


def percentile(values: Sequence[float], part: float) -> float:
    """Return the smallest value that *part* of *values* do not exceed (nearest rank).

    Raises:
        ValueError: If there is none.
    """
    ordered = sorted(values)
    if not ordered:
        raise ValueError("nothing was measured")
    rank = -(-len(ordered) * part // 1)
    return ordered[max(0, min(len(ordered) - 1, int(rank) - 1))]
