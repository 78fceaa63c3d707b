"""How far a worker sheds load as it nears its memory bound: a table, with hysteresis.

A worker that is killed for its memory takes every session with it. Before that it gives up what
costs its users least, in steps; each holds all of what the steps before it do.

========================= ======= ======= ==================================================
step                      entered left    what is shed
========================= ======= ======= ==================================================
``UNAUTHENTICATED``       80 %    75 %    new connections whose request has no good credential
``IDLE``                  88 %    83 %    connections that wait for a request, or for a reader
``REQUESTS``              95 %    90 %    every new request; readiness falls
========================= ======= ======= ==================================================

Only the last step says that the worker is not ready: were it the first, one gateway after the
other would be taken out of service, each leaving more to the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final


class Step(IntEnum):
    """How far load is shed; the names are a metric's label."""

    NONE = 0
    UNAUTHENTICATED = 1
    IDLE = 2
    REQUESTS = 3


@dataclass(frozen=True, slots=True)
class Threshold:
    """Shares of the bound at which a step is entered from below, and left again."""

    step: Step
    enter: float
    leave: float


THRESHOLDS: Final = (
    Threshold(Step.UNAUTHENTICATED, 0.80, 0.75),
    Threshold(Step.IDLE, 0.88, 0.83),
    Threshold(Step.REQUESTS, 0.95, 0.90),
)
"""In the order of the steps; each is left below where the one before it is entered, or above."""


def next_step(step: Step, used: float | None) -> Step:
    """Return the step after *step* where *used* is the share of the bound in use.

    None stands for a share that is not known: then nothing is shed, since what cannot be measured
    would be shed for good.
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
    """How far a worker sheds load at the moment; read with every request, written by a watch."""

    bound_bytes: int = 0
    """What the worker may use; 0 for without bound."""
    step: Step = Step.NONE
    used_bytes: int = 0
    """What was measured last; 0 where nothing could be."""
    entered: dict[Step, int] = field(default_factory=lambda: dict.fromkeys(Step, 0))
    """How often each step was entered, from below."""

    def measured(self, used_bytes: int | None) -> bool:
        """Take a measure, None for one that failed; say whether the step has changed."""
        self.used_bytes = used_bytes or 0
        known = used_bytes is not None and self.bound_bytes > 0
        before = self.step
        self.step = next_step(before, self.used_bytes / self.bound_bytes if known else None)
        for step in Step:
            if before < step <= self.step:
                self.entered[step] += 1
        return self.step is not before
