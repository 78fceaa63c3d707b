"""Provides a holder of a route table, and a leader that publishes to it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any

from gateway.bus.head_policy import HeadPolicy, accept_unsigned
from gateway.bus.holder import RouteTableHolder
from gateway.bus.repairer import load_table
from gateway.core.bus_state import BusClock
from shared.routes.route import RouteReader
from shared.routes.table import RouteTable
from tests.gateway.bus.following import sid_of
from tests.gateway.bus.leading import KEY, NOW, Leader, verifier

THREE = sid_of(3)
DAY = 86400.0


class Holding:
    """A holder, its clocks, and its notifications.

    Args:
        signs: The holder accepts only data that the controller signed.
    """

    def __init__(self, *, signs: bool = False) -> None:
        self.wall, self.uptime = NOW, 50.0
        self.changes: list[tuple[str, ...] | None] = []
        self.closed = 0
        self.clock = BusClock(bus_grace_seconds=60, controller_grace_seconds=60)
        policy = HeadPolicy(
            verifier(KEY),
            wall=lambda: self.wall,
            monotonic=lambda: self.uptime,
            max_age_seconds=300.0,
        )
        self.holder = RouteTableHolder(
            clock=self.clock,
            monotonic=lambda: self.uptime,
            wall=lambda: self.wall,
            on_change=self._changed,
            on_closed=self._closed,
            policy=policy if signs else accept_unsigned(),
        )
        self.clock.subscribed(self.uptime)

    def _changed(self, sids: Iterable[str] | None) -> None:
        self.changes.append(None if sids is None else tuple(sids))

    def _closed(self) -> None:
        self.closed += 1

    @property
    def table(self) -> RouteTable:
        assert self.holder.table is not None
        return self.holder.table

    def is_behind(self) -> bool:
        return self.holder.is_behind

    def dialling(self) -> bool:
        return self.holder.dialling

    def doubt(self) -> str | None:
        return self.holder.unserved_reason

    async def load(self, leader: Leader) -> RouteTable:
        """Return the current table of *leader*, read and checked."""
        policy = self.holder.policy
        said = policy.verify_head(leader.head, self.holder.table)
        return await load_table(leader.snapshot, policy.reader_for(said, RouteReader()), said)

    async def adopt(self, leader: Leader) -> None:
        """Put that table into use, as if read right now."""
        self.holder.adopt(await self.load(leader), read_at=self.uptime)

    def hear(self, *events: Any) -> None:
        """Deliver *events* to the holder."""
        for event in events:
            self.holder.take(event if isinstance(event, bytes) else event.encode())

    async def requests_poll(self) -> bool:
        """Return whether a head poll is requested, and begin that poll."""
        waits = asyncio.create_task(self.holder.catch_up.look_requested_within(60))
        for _ in range(3):
            await asyncio.sleep(0)
        asked = waits.done()
        waits.cancel()
        self.holder.catch_up.begin_look()
        return asked


async def holding(leader: Leader, *, signs: bool = False) -> Holding:
    """Return a holder with the table of *leader* in use."""
    h = Holding(signs=signs)
    await h.adopt(leader)
    h.changes.clear()
    return h
