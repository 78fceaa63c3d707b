"""The budgets, and the verdict of a run on each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

Costs = Mapping[tuple[str, str], float]
"""The median cost by work and proxy."""
Spreads = dict[tuple[str, str], tuple[float, float]]
"""The least and the most cost by work and proxy."""

OURS: Final = "fumarole"


@dataclass(frozen=True, slots=True)
class Verdict:
    """The verdict on a budget; ``value`` is None when a peer was missing.

    ``spread`` are the least and the greatest value that the runs allow. Where the limit lies
    between them, the runs do not say whether the budget was met.
    """

    work: str
    limit: str
    value: float | None
    most: float = float("inf")
    least: float = float("-inf")
    spread: tuple[float, float] | None = None

    @property
    def met(self) -> bool | None:
        """Whether the budget was met; None when that is not known."""
        if self.value is None:
            return None
        low, high = self.spread or (self.value, self.value)
        found = {self.least <= value <= self.most for value in (low, high)}
        return found.pop() if len(found) == 1 else None

    @property
    def missed_by(self) -> float:
        """Return the excess as a part of the limit; 0 when it was met, or is not known."""
        if self.value is None or self.met is not False:
            return 0.0
        if self.value > self.most:
            return self.value / self.most - 1
        return 1 - self.value / self.least


@dataclass(frozen=True, slots=True)
class Ratio:
    """A budget for the gateway's cost: at most ``most`` times a peer's cost."""

    work: str
    title: str
    most: float
    peer: str
    label: str

    def judge(self, costs: Costs, spreads: Spreads) -> Verdict:
        """Return the verdict."""
        limit = f"≤ {self.most:g} × {self.label}"
        our, their = (self.work, OURS), (self.work, self.peer)
        if not costs.get(our) or not costs.get(their):
            return Verdict(self.title, limit, None, self.most)
        value, spread = costs[our] / costs[their], None
        if our in spreads and their in spreads:
            (low, high), (least, most) = spreads[our], spreads[their]
            spread = low / most, high / least
        return Verdict(self.title, limit, value, self.most, spread=spread)


_GETS: Final = (("get", "same fields"), ("get-varied", "new fields"))
RATIOS: Final = (
    *(
        Ratio(work, f"authorised 1 KiB GET, 13 fields, {what}", most, peer, label)
        for work, what in _GETS
        for most, peer, label in (
            (1.6, "nginx", "nginx without auth"),
            (0.8, "envoy-jwt", "Envoy with jwt_authn"),
            (0.25, "chp", "configurable-http-proxy"),
        )
    ),
    Ratio("echo", "64 B WebSocket echo, 64 sockets", 1.25, "nginx", "nginx"),
    Ratio("echo", "64 B WebSocket echo, 64 sockets", 0.95, "envoy", "Envoy"),
    Ratio("handshake", "WebSocket opened and closed", 1.8, "nginx", "nginx"),
    Ratio("handshake", "WebSocket opened and closed", 1.1, "envoy-jwt", "Envoy with jwt_authn"),
    Ratio("frames", "64 KiB WebSocket frames downstream", 1.0, "nginx", "nginx"),
    Ratio("frames", "64 KiB WebSocket frames downstream", 1.2, "envoy", "Envoy"),
    Ratio("down", "HTTP bodies down", 0.9, "nginx", "nginx"),
    Ratio("down", "HTTP bodies down", 1.4, "envoy", "Envoy"),
    Ratio("up", "HTTP bodies up", 0.9, "nginx", "nginx"),
    Ratio("up", "HTTP bodies up", 1.4, "envoy", "Envoy"),
    Ratio("desktop", "VNC bridge, 64 KiB updates", 0.5, "websockify", "websockify"),
)
_AMOUNTS: Final = (
    ("memory per idle proxied WebSocket", "KiB", "idle", 6.0),
    ("event published → routable, p99", "ms", "routable", 50.0),
    ("revocation answered → 5,000 sockets of two gateways closed, p99", "ms", "revoked", 250.0),
    ("the longest turn of one connection, whatever it sends", "ms", "turn", 5.0),
    ("others' p95 beside the worst attacker, to their quiet p95", "×", "beside", 3.0),
    ("100,000 routes: snapshot applied", "s", "snapshot_s", 2.0),
    ("100,000 routes: the loop blocked, at most", "ms", "stall_ms", 20.0),
    ("100,000 signed routes: snapshot verified and applied", "s", "signed_s", 2.0),
    ("100,000 signed routes: the loop blocked, at most", "ms", "signed_stall_ms", 20.0),
    ("100,000 routes: memory a route", "KiB", "route_kib", 1.5),
    # The table is a hundred times as large. Only memory that is further away may cost more.
    ("one event with 100,000 routes, to one with 1,000", "×", "event_growth", 1.5),
    # The cost of a job's life may not depend on the number of other jobs.
    ("controller: a job's life beside 10,000 that wait, to one alone", "×", "life_waiting", 1.25),
    ("controller: a job's life after 10,000 others, to one alone", "×", "life_over", 1.25),
    ("controller with 50,000 pods: memory", "MiB", "site_mib", 1024.0),
    ("controller with 50,000 pods: the loop blocked, at most", "ms", "site_stall_ms", 100.0),
    ("controller with 50,000 pods: a change → reconciled, p99", "s", "site_p99_s", 2.0),
    ("controller with 50,000 pods: killed → a standby has taken over", "s", "site_leads_s", 15.0),
)
_SUBMISSION: Final = "controller: jobs accepted → VolcanoJobs, to a bare client loop"


def judge_all(
    costs: Costs, amounts: Mapping[str, float], spreads: Spreads | None = None
) -> list[Verdict]:
    """Return the verdict on every budget.

    Args:
        costs: Medians by work and proxy.
        amounts: Measured values other than ratios of costs, by name.
        spreads: The least and the greatest cost of several rounds.
    """
    verdicts = [ratio.judge(costs, spreads or {}) for ratio in RATIOS]
    verdicts += [
        Verdict(work, f"≤ {most:g} {unit}", amounts.get(name), most)
        for work, unit, name, most in _AMOUNTS
    ]
    verdicts.append(Verdict(_SUBMISSION, "≥ 0.5 ×", amounts.get("submission"), least=0.5))
    return verdicts
