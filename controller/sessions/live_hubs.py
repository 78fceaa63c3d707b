"""Which hubs are alive, whatever the clocks of their machines and of this one do."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from controller.store.instance import ALIVE_SECONDS, Heartbeat, Hub

MOST_SECONDS: Final = ALIVE_SECONDS / 5
"""The most that the time between two looks counts. A longer time is an outage of the store, in
which no hub could write either; or the store is slow, and each look counts a little."""


class LiveHubs:
    """Observes the heartbeats of hubs, as a Lease is observed: by their change.

    A heartbeat has the wall clock of its hub, which is compared with no other clock: one that is
    set forward or back by ten seconds would end all terminals. A hub is dead once its heartbeat has
    not changed for ten seconds by this process' monotonic clock. At the first look all hubs are
    alive: a leader that begins ends no terminal before it has waited for a heartbeat.

    Args:
        monotonic: Monotonic seconds.
    """

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        self._unchanged: dict[str, tuple[float, float]] = {}
        self._looked_at: float | None = None

    def observe(self, heartbeats: Sequence[Heartbeat]) -> dict[str, Hub]:
        """Return the hubs that are alive, by id; *heartbeats* are all that the store has."""
        moment, before = self._monotonic(), self._unchanged
        passed = 0.0 if self._looked_at is None else moment - self._looked_at
        self._looked_at, self._unchanged = moment, {}
        for one in heartbeats:
            seen_at, seconds = before.get(one.hub.id, (None, 0.0))
            unchanged = seconds + min(passed, MOST_SECONDS) if seen_at == one.seen_at else 0.0
            self._unchanged[one.hub.id] = (one.seen_at, unchanged)
        return {one.hub.id: one.hub for one in heartbeats if self._is_alive(one.hub.id)}

    def _is_alive(self, hub_id: str) -> bool:
        return self._unchanged[hub_id][1] < ALIVE_SECONDS
