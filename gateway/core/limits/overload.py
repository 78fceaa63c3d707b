"""How far a worker sheds load near its memory bound: a table with hysteresis.

A worker that the kernel kills for its memory loses every session. Before that it sheds, in steps,
what costs its users least. Each step includes the steps before it.

========================= ======= ======= ==================================================
step                      entered left    what is shed
========================= ======= ======= ==================================================
``BUFFERS``               70 %    65 %    connections of a client that buffers too much
``UNAUTHENTICATED``       80 %    75 %    new connections whose request has no good credential
``IDLE``                  88 %    83 %    connections that wait for a request, or for a reader
``REQUESTS``              95 %    90 %    every new request; readiness fails
========================= ======= ======= ==================================================

Only the last step makes the worker not ready. If the first one did, gateways would be taken out of
service one after the other, each leaving more load to the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final


class Step(IntEnum):
    """How far load is shed; the names are values of a metric's label."""

    NONE = 0
    BUFFERS = 1
    UNAUTHENTICATED = 2
    IDLE = 3
    REQUESTS = 4


@dataclass(frozen=True, slots=True)
class Threshold:
    """The shares of the bound at which a step is entered from below, and left again."""

    step: Step
    enter: float
    leave: float


THRESHOLDS: Final = (
    Threshold(Step.BUFFERS, 0.70, 0.65),
    Threshold(Step.UNAUTHENTICATED, 0.80, 0.75),
    Threshold(Step.IDLE, 0.88, 0.83),
    Threshold(Step.REQUESTS, 0.95, 0.90),
)
"""In the order of the steps. Each step is left at or above the point where the step before it is
entered."""


def next_step(step: Step, used: float | None) -> Step:
    """Return the step that follows *step* when *used* is the share of the bound in use.

    None stands for an unknown share. Then no load is shed, since shedding would never end.
    """
    if used is None:
        return Step.NONE
    found = Step.NONE
    for threshold in THRESHOLDS:
        if used >= (threshold.enter if step < threshold.step else threshold.leave):
            found = threshold.step
    return found


@dataclass(slots=True, eq=False)
class Overload:
    """How far a worker sheds load; the overload watch writes it, every request reads it."""

    bound_bytes: int = 0
    """The memory bound of the worker; 0 for none."""
    step: Step = Step.NONE
    used_bytes: int = 0
    """The last measurement; 0 if it failed."""
    entered: dict[Step, int] = field(default_factory=lambda: dict.fromkeys(Step, 0))
    """How often each step was entered from below."""

    def measured(self, used_bytes: int | None) -> bool:
        """Record a measurement, None for a failed one; return whether the step has changed."""
        self.used_bytes = used_bytes or 0
        known = used_bytes is not None and self.bound_bytes > 0
        before = self.step
        self.step = next_step(before, self.used_bytes / self.bound_bytes if known else None)
        for step in Step:
            if before < step <= self.step:
                self.entered[step] += 1
        return self.step is not before
