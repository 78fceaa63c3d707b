"""How many of everything a soak has, how often things change, and what it needs."""

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
"""After a change: from then on every response must be what the change made it.

A worker that stood still for 4 s looks at the bus before it decides, so that this holds for
workers that wait for a processor, too.
"""
UNANSWERED_SECONDS: Final = 60.0
SPARE_DESCRIPTORS: Final = 600


class TooFewDescriptors(Exception):
    """The system gives a process too few descriptors for so many sockets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """How much a soak does. Times are in seconds, rates are those of a second."""

    seconds: float
    sockets: int = SOCKETS
    workers: int = WORKERS
    opens: float = 100.0
    """At most: for those who come back after a worker was killed, too."""
    churn: float = 5.0
    requests: float = 20.0
    message_every: float = 60.0
    """What passes between two messages of one socket."""

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
        """Seconds between the deaths of two workers."""
        return min(600.0, self.seconds / 4)

    @property
    def sample_every(self) -> float:
        """Seconds between two samples."""
        return min(60.0, max(1.0, self.seconds / 720))

    @property
    def descriptors(self) -> int:
        """What a process must be given: the load's one for each socket, a worker's two.

        While others are started anew a worker may have twice its share.
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
