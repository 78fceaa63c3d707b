"""The amounts and intervals of a soak, and the descriptors that it needs."""

from __future__ import annotations

import resource
from dataclasses import dataclass
from typing import Final

SOCKETS: Final = 10_000
WORKERS: Final = 4
SOCKETS_OF_SESSION: Final = 20
SESSIONS_OF_USER: Final = 5
APPS: Final = 3
SETTLE_SECONDS: Final = 5.0
"""After a change: from then on every response must show the change.

A worker that stood still for 4 s reads the head of the bus before it decides. So this also holds
for workers that wait for a processor.
"""
UNANSWERED_SECONDS: Final = 60.0
SPARE_DESCRIPTORS: Final = 600


class TooFewDescriptors(Exception):
    """The system gives a process too few descriptors for so many sockets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The amounts of a soak. Times are in seconds, rates are per second."""

    seconds: float
    sockets: int = SOCKETS
    workers: int = WORKERS
    opens: float = 100.0
    """At most, also for sockets that return after a worker was killed."""
    churn: float = 5.0
    requests: float = 20.0
    message_every: float = 60.0
    """Seconds between two messages of one socket."""

    @property
    def sessions(self) -> int:
        """How many sessions the sockets belong to."""
        return max(2 * SESSIONS_OF_USER, self.sockets // SOCKETS_OF_SESSION)

    @property
    def change_every(self) -> float:
        """Seconds between two revocations, and between two changes of routes."""
        return min(30.0, self.seconds / 20)

    @property
    def kill_every(self) -> float:
        """Seconds between the kills of two workers."""
        return min(600.0, self.seconds / 4)

    @property
    def sample_every(self) -> float:
        """Seconds between two samples."""
        return min(60.0, max(1.0, self.seconds / 720))

    @property
    def descriptors(self) -> int:
        """Descriptors that a process must have: one for each socket in the load, two in a worker.

        While other workers are restarted a worker may have twice its share.
        """
        share = 2 * 2 * self.sockets // self.workers
        return max(self.sockets, share) + SPARE_DESCRIPTORS


def raise_descriptors(plan: Plan) -> None:
    """Raise this process' soft limit of open files to the hard one.

    Raises:
        TooFewDescriptors: If that is too few for *plan*.
    """
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < plan.descriptors:
        raise TooFewDescriptors(
            f"{plan.sockets:,} sockets need {plan.descriptors:,} open files in one process, and "
            f"`ulimit -Hn` is {hard:,}: raise it, or ask for fewer sockets"
        )
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
