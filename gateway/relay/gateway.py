"""The data path, assembled."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from gateway.core.access.access_right import DRAINING
from gateway.core.access.decision import Access
from gateway.core.limits.connection_quota import DROPPED
from gateway.relay.background_tasks import BackgroundTasks
from gateway.relay.context import Context, Parts
from gateway.relay.ending.stalls import Sweep
from gateway.relay.http.admission import Admission
from gateway.relay.http.downstream import DownstreamConnection
from gateway.relay.http.page_connection import PageConnection

if TYPE_CHECKING:
    from gateway.live import Member
    from gateway.relay.ending.stalls import Swept

__all__ = ["DataPath", "Parts"]

_ROOM_FOR_ONE: Final = 2
"""Connections that are closed for a new one: so that it is not full for long."""
_SHED_AT_ONCE: Final = 1000
_SWEEPS: Final = 4
"""In the time that a peer has to take something."""


class DataPath(Context):
    """Serves browsers, whose connections a :class:`gateway.relay.listening.Listener` accepts.

    In the assembling order::

        background_tasks, dialler = BackgroundTasks(), Dialler(networks=..., loop=loop)
        live = ConnectionRegistry(table=lambda: follower.table, wall=time.time, loop=loop)
        path = DataPath(Parts(loop=loop, site=Site.from_url(...), world=follower, ...))
        listener = Listener(path, [bind(host, port)])
        ...
        # follower, after every change of the table:
        live.review({sid})      # or live.review() after a new table, or a kid's revocation
        ...
        # draining: listener.close(), then
        await drain(path, ...)
        await path.close()      # ends what is left
    """

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts)
        self.arriving = BackgroundTasks()
        """Connections that were accepted, and whose client or TLS is not known yet."""
        self.admission = Admission(
            self, Access(parts.site, parts.grants, asserting=parts.assertions is not None)
        )
        limits = parts.limits
        self.sweep = Sweep(
            parts.loop,
            seconds=min(limits.write_stall_seconds, limits.app_write_stall_seconds) / _SWEEPS,
            everyone=self._everyone,
        )
        parts.live.watch(self.pool)
        self.meters.open_by_kind(self._open_by_kind)
        self.meters.time_of(self.turns)
        self.meters.counter(
            "stalls",
            "Connections given up because their peer took nothing of what waited for it.",
            lambda: self.ends.stalls.found,
        )
        self.meters.gauge(
            "strangers",
            "Connections open without a credential that was found good.",
            lambda: len(self.connection_quota.unauthenticated),
        )
        self.meters.gauge(
            "open_by_right",
            "Connections open by a grant or a public route.",
            lambda: len(parts.live),
        )
        self.meters.gauge("pooled", "Unused connections to apps.", lambda: len(self.pool))
        self.meters.gauge("tasks", "Asyncio tasks.", _count_tasks)

    def welcome(self, peer: str) -> DownstreamConnection | None:
        """Return the protocol of a new connection from *peer*; None if it is not to be heard."""
        connection = DownstreamConnection(self, self.admission, peer)
        quota = self.connection_quota
        if quota.nearly_full:
            self.evict_idle(_ROOM_FOR_ONE)
        if quota.is_address_full(connection.key):
            self.evict_idle(_ROOM_FOR_ONE, key=connection.key)
        connection.verdict = quota.judge_new(connection.key)
        if connection.verdict is DROPPED:
            self.meters.dropped += 1
            return None
        quota.add(connection)
        return connection

    @property
    def open(self) -> int:
        """How many connections are open, or have not ended yet."""
        live = self.parts.live
        return len(self.connection_quota.unauthenticated) + len(live) + len(live.closing)

    def _open_by_kind(self) -> dict[str, int]:
        # With a right they are registered as well: each counts once.
        return {
            **self.parts.live.kinds,
            "http": len(self.connections),
            "page": len(self.pages),
        }

    def _everyone(self) -> list[Swept]:
        # Those that are admitted are registered as well; they are asked once.
        known: list[Swept] = [*self.tunnels()]
        return [*self.connections, *self.pages, *known]

    def tunnels(self) -> list[Member]:
        """Return what carries frames, and not one request after the other."""
        return [
            member
            for member in self.parts.live.members()
            if not isinstance(member, DownstreamConnection | PageConnection)
        ]

    def drain(self) -> None:
        """Close each connection after one more response: of the request under way or the next.

        A connection that is idle stays open, since a request may be on its way: closed now, it
        would be lost.
        """
        self.draining = True
        for connection in tuple(self.connections):
            connection.close_after_response()

    def close_idle(self) -> None:
        """Close connections on which no request is under way, and those that are arriving."""
        self.arriving.cancel()
        for connection in tuple(self.connections):
            connection.drain()

    def evict_idle(self, most: int, *, key: str = "") -> None:
        """Close up to *most* connections without a credential whose client is waited for too long.

        Args:
            most: How many.
            key: Of the address whose connections make room for another one of it; "" for any.
        """
        for connection in self.connection_quota.find_idle(
            most, now=self.parts.loop.time(), key=key
        ):
            connection.evict()

    def shed_idle(self, *, stalled_seconds: float) -> int:
        """Close connections that wait for a request, unused ones, and those whose peer stalls.

        A thousand of the first at most: closing takes its time, and more of them are next.
        """
        idle = 0
        for connection in tuple(self.connections):
            if connection.is_closing():
                continue
            connection.drain()
            idle += connection.is_closing()
            if idle == _SHED_AT_ONCE:
                break
        pooled = len(self.pool)
        self.pool.close()
        return idle + pooled + self.ends.stalls.give_up(stalled_seconds)

    async def close(self) -> None:
        """Reset what is still open, and end all background tasks."""
        self.draining = True
        self.sweep.close()
        self.arriving.cancel()
        self.parts.live.end_all(DRAINING)
        for connection in tuple(self.connections):
            connection.reset()
        for page in tuple(self.pages):
            page.reset()
        self.pool.close()
        self.ends.shut_down()
        await self.parts.background_tasks.close()
        self.wheel.close()
        self.readiness.close()
        self.pipes.close()
        self.parts.live.close()


def _count_tasks() -> int:
    """Return how many tasks the loop has; 0 where none runs."""
    try:
        return len(asyncio.all_tasks())
    except RuntimeError:
        return 0
