"""Which hubs are alive, whatever the clocks of their machines and of this one do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from controller.store.instance import ALIVE_SECONDS, Heartbeat, Hub

AWAY_SECONDS: Final = ALIVE_SECONDS / 2
"""A longer time between two looks is an outage of the store, in which no hub could write either."""


class LiveHubs:
    """Observes the heartbeats of hubs, as a Lease is observed: by their change.

    A heartbeat has the wall clock of its hub. If that were compared with this process' clock each
    time, a clock that is set forward by ten seconds would end all terminals. So a heartbeat counts
    from the moment, by this process' monotonic clock, at which it was first seen. Only one that was
    there before the first look is judged by the wall clock. Time in which the store could not be
    read does not count.

    Args:
        monotonic: Monotonic seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._seen: dict[str, tuple[float, float]] = {}
        self._looked_at: float | None = None

    def observe(self, heartbeats: Sequence[Heartbeat], *, now: float) -> dict[str, Hub]:
        """Return the hubs that are alive, by id; *heartbeats* are all that the store has."""
        moment, before = self._monotonic(), self._seen
        passed = 0.0 if self._looked_at is None else moment - self._looked_at
        away = passed if passed >= AWAY_SECONDS else 0.0
        self._seen = {}
        for one in heartbeats:
            at, since = before.get(one.hub.id, (None, moment))
            if at is None and self._looked_at is None:
                since = moment - max(0.0, now - one.seen_at)
            elif at != one.seen_at:
                since = moment
            else:
                since += away
            self._seen[one.hub.id] = (one.seen_at, since)
        self._looked_at = moment
        return {one.hub.id: one.hub for one in heartbeats if self._is_alive(one.hub.id, moment)}

    def _is_alive(self, hub_id: str, moment: float) -> bool:
        return moment - self._seen[hub_id][1] < ALIVE_SECONDS
