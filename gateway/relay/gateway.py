"""The data path: it assembles the parts, evicts and sheds connections, drains and closes."""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from gateway.core.access.access_right import DRAINING
from gateway.core.access.decision import Access
from gateway.core.limits.buffer_shares import BufferOwner, BufferShares
from gateway.core.limits.connection_quota import DROPPED
from gateway.live import Member
from gateway.relay.background_tasks import BackgroundTasks
from gateway.relay.context import Context, Resettable
from gateway.relay.ending.stalls import StallSweep
from gateway.relay.http.admission import Admission
from gateway.relay.http.downstream import DownstreamConnection
from gateway.relay.http.page_connection import PageConnection

log = logging.getLogger(__name__)

_EVICTED_FOR_ONE: Final = 2
"""Idle connections evicted for a new one: more than one, so that the quota is not full for long."""
_SHED_AT_ONCE: Final = 1000
_COUNTED_AT_ONCE: Final = 500
_ENDED_AT_ONCE: Final = 32
"""In one turn of the loop: about a millisecond each."""
_LOG_SECONDS: Final = 10.0
"""Between two lines on clients that buffer too much: one that reconnects is ended again."""
_SWEEPS: Final = 4
"""Sweeps within the write-stall deadline."""


class DataPath(Context):
    """Serves the connections that a :class:`gateway.relay.listening.Listener` accepts."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.arriving = BackgroundTasks()
        """The accepts in progress: reading a PROXY header, or the TLS handshake."""
        access = Access(self.site, self.grants, asserting=self.assertions is not None)
        self.admit = Admission(self, access).admit
        limits = self.limits
        self._logged_at = float("-inf")
        self.sweep = StallSweep(
            self.loop,
            seconds=min(limits.write_stall_seconds, limits.app_write_stall_seconds) / _SWEEPS,
            connections=self._all_connections,
        )
        self.live.review_pool = self.pool.review
        self.meters.open_by_kind, self.meters.turns = self._open_by_kind, self.turns
        self.meters.counter(
            "stalls",
            "Connections closed because their peer stalled.",
            lambda: self.closer.stalls.found,
        )
        self.meters.gauge(
            "strangers",
            "Open unauthenticated connections.",
            lambda: len(self.connection_quota.unauthenticated),
        )
        self.meters.gauge(
            "open_by_right",
            "Open connections with a grant or a public route.",
            lambda: len(self.live),
        )
        self.meters.gauge("pooled", "Idle upstream connections.", lambda: len(self.pool))
        self.meters.gauge("tasks", "Asyncio tasks.", lambda: len(asyncio.all_tasks(self.loop)))

    def accept(self, peer: str) -> DownstreamConnection | None:
        """Return the protocol of a new connection from *peer*; None to close it silently."""
        connection = DownstreamConnection(self, self.admit, peer)
        quota = self.connection_quota
        if quota.nearly_full:
            self.evict_idle(_EVICTED_FOR_ONE)
        if quota.is_address_full(connection.key):
            self.evict_idle(_EVICTED_FOR_ONE, key=connection.key)
        connection.verdict = quota.judge_new(connection.key)
        if connection.verdict is DROPPED:
            self.meters.dropped += 1
            return None
        quota.add(connection)
        return connection

    @property
    def open(self) -> int:
        """How many connections are open or being ended."""
        live = self.live
        return len(self.connection_quota.unauthenticated) + len(live) + len(live.closing)

    def _open_by_kind(self) -> dict[str, int]:
        # Admitted connections are registered too; each must count once.
        return {
            **self.live.kinds,
            "http": len(self.connections),
            "page": len(self.pages),
        }

    def _all_connections(self) -> list[Resettable | Member]:
        # Admitted connections are registered too; each must be checked once.
        known: list[Resettable | Member] = [*self.tunnels()]
        return [*self.connections, *self.pages, *known]

    def tunnels(self) -> list[Member]:
        """Return the connections that carry WebSocket frames and not requests."""
        return [
            member
            for member in self.live.members()
            if not isinstance(member, DownstreamConnection | PageConnection)
        ]

    def drain(self) -> None:
        """Close each connection after the response to its current or next request.

        An idle connection stays open, since a request may be in transit and would be lost.
        """
        self.draining = True
        for connection in tuple(self.connections):
            connection.close_after_response()

    def close_idle(self) -> None:
        """Close connections without a request in progress, and cancel accepts in progress."""
        self.arriving.cancel()
        for connection in tuple(self.connections):
            connection.drain()

    def evict_idle(self, most: int, *, key: str = "") -> None:
        """Close up to *most* unauthenticated connections that are idle.

        Args:
            most: How many.
            key: The limit key of the address whose connections are evicted; "" for any address.
        """
        for connection in self.connection_quota.find_idle(most, now=self.loop.time(), key=key):
            connection.evict()

    def shed_idle(self, *, stalled_seconds: float) -> int:
        """Close idle connections, pooled connections, and those whose peer has stalled.

        At most a thousand idle ones: closing takes time, and the next call closes more.
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
        return idle + pooled + self.closer.stalls.abort_stalled(stalled_seconds)

    async def shed_buffers(self, share_bytes: int) -> int:
        """End connections of clients whose buffers exceed *share_bytes*; return how many."""
        shares: BufferShares[BufferOwner] = BufferShares(share_bytes)
        for number, connection in enumerate(self._all_connections(), 1):
            shares.count(connection)
            if not number % _COUNTED_AT_ONCE:
                await asyncio.sleep(0)
        ended = 0
        for client, heaviest in shares.find_excess().items():
            self._log_shed(client, len(heaviest))
            for one in heaviest:
                one.shed()
                ended += 1
                if not ended % _ENDED_AT_ONCE:
                    await asyncio.sleep(0)
        return ended

    def _log_shed(self, client: str, count: int) -> None:
        """Log that connections of *client* are ended, at most once in a while."""
        now = self.loop.time()
        if now - self._logged_at >= _LOG_SECONDS:
            self._logged_at = now
            log.warning(
                "memory is short: connections of a client that buffers too much are ended",
                extra={"client": client.lstrip("\0"), "connections": count},
            )

    async def close(self) -> None:
        """Reset open connections and end all background tasks."""
        self.draining = True
        self.sweep.close()
        self.arriving.cancel()
        self.live.end_all(DRAINING)
        for connection in tuple(self.connections):
            connection.reset()
        for page in tuple(self.pages):
            page.reset()
        self.pool.close()
        self.closer.close_all()
        await self.arriving.close()
        await self.background_tasks.close()
        self.wheel.close()
        self.readiness.close()
        self.pipes.close()
        self.live.close()
