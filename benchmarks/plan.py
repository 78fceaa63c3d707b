"""The amounts of a run: rounds, seconds, counts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from benchmarks.growth import MOST_SOCKETS


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The amounts of a run, and the time after which no further round or point begins."""

    enough_seconds: float
    rounds: int
    seconds: float
    sockets: tuple[int, ...]
    in_flight: tuple[int, ...]
    routes: tuple[int, ...]
    idle: int
    idle_rounds: int
    events: int
    revoked: int
    followers: int
    gateways: int
    """Followers of one Redis."""
    attacks: int
    """Rounds of each attacker."""
    keys: int
    """Keys that are typed on each way to a terminal."""
    tables: bool
    submitted: int
    beside: int
    listed: int
    """Jobs in the larger list; the smaller one has 1,000."""


FULL: Final = Plan(
    enough_seconds=840.0,
    rounds=3,
    seconds=1.3,
    sockets=(1, 10, 100, 1000, MOST_SOCKETS),
    in_flight=(1, 16, 64, 256, 1000, 4000),
    routes=(1, 1000, 10_000, 100_000),
    idle=2000,
    idle_rounds=3,
    events=300,
    revoked=5000,
    followers=80,
    gateways=20,
    attacks=5,
    keys=2000,
    tables=True,
    submitted=100,
    beside=10_000,
    listed=100_000,
)
QUICK: Final = Plan(
    enough_seconds=170.0,
    rounds=1,
    seconds=0.8,
    sockets=(1, 1000),
    in_flight=(1, 1000),
    routes=(1, 10_000),
    idle=1000,
    idle_rounds=1,
    events=50,
    revoked=1000,
    followers=20,
    gateways=5,
    attacks=1,
    keys=400,
    tables=False,
    submitted=0,
    beside=0,
    listed=100_000,
)
