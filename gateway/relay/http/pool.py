"""Unused connections to apps, kept per session and user and never wider.

One user's request can poison a connection for the next: it never reaches another user's.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from gateway.core.access.access_right import judge
from gateway.relay.states import Event, step

if TYPE_CHECKING:
    import asyncio

    from gateway.relay.ending.ends import Ends
    from gateway.relay.http.upstream import UpstreamConnection
    from gateway.relay.limits import Limits
    from gateway.relay.turns import Turns
    from gateway.relay.wheel import Wheel
    from shared.routes import RouteTable, Target


def _is_over(upstream: UpstreamConnection, table: RouteTable, now: float) -> bool:
    access_right = upstream.access_right
    return access_right is None or judge(access_right, table, now) is not None


class Pool:
    """Keeps connections that can take another request."""

    __slots__ = ("_idle", "_loop", "_wheel", "ends", "limits", "turns")

    def __init__(
        self,
        *,
        loop: asyncio.AbstractEventLoop,
        wheel: Wheel,
        ends: Ends,
        turns: Turns,
        limits: Limits,
    ) -> None:
        self._loop = loop
        self._wheel = wheel
        self.ends = ends
        self.turns = turns
        self.limits = limits
        self._idle: dict[str, dict[str, list[UpstreamConnection]]] = {}

    def __len__(self) -> int:
        """Return how many connections are kept."""
        return sum(len(kept) for users in self._idle.values() for kept in users.values())

    def take(self, *, sid: str, user: str, target: Target, safe: bool) -> UpstreamConnection | None:
        """Return the connection last used by *user* of *sid* that leads to *target*.

        Args:
            sid: The session.
            user: Who may share it.
            target: Where it has to lead.
            safe: Whether the request could be sent once more if the connection turns out stale;
                one that could not gets only a connection that was used just now.
        """
        users = self._idle.get(sid)
        kept = users.get(user) if users is not None else None
        if not kept:
            return None
        upstream = kept[-1]
        if upstream.target is not target and upstream.target != target:
            upstream.close()
            return self.take(sid=sid, user=user, target=target, safe=safe)
        if not safe and self._loop.time() - upstream.idle_since > self.limits.unsafe_idle_seconds:
            return None
        # An empty list stays for the connection that comes back, which is what most do.
        kept.pop()
        upstream.state = step(upstream.state, Event.TAKEN)
        return upstream

    def put(self, upstream: UpstreamConnection) -> None:
        """Keep *upstream*, whose last response is complete; for a moment when there are many.

        A program that asks with many at once would dial for most of its requests otherwise.
        """
        upstream.state = step(upstream.state, Event.RETURNED)
        upstream.exchange = None
        users = self._idle.get(upstream.sid)
        if users is None:
            users = self._idle[upstream.sid] = {}
        kept = users.get(upstream.user)
        if kept is None:
            kept = users[upstream.user] = []
        kept.append(upstream)
        upstream.idle_since = self._loop.time()
        limits = self.limits
        is_spare = len(kept) > limits.upstream_idle_per_user
        seconds = limits.upstream_spare_seconds if is_spare else limits.upstream_idle_seconds
        upstream.deadline = upstream.idle_since + seconds
        if is_spare or not upstream.tick:
            self._wheel.arm(upstream, upstream.deadline)

    def forget(self, upstream: UpstreamConnection) -> None:
        """Take out a connection that has closed, and the place where it would have come back to."""
        self._wheel.disarm(upstream)
        kept = self._idle.get(upstream.sid, {}).get(upstream.user)
        if kept is None:
            return
        if upstream in kept:
            kept.remove(upstream)
        if not kept:
            self._drop_empty(upstream.sid, upstream.user)

    def review(self, sids: Iterable[str] | None, table: RouteTable, now: float) -> None:
        """Give up the connections that nobody may use, or that lead elsewhere by now.

        They close after the browsers' that are ended by the same change.
        """
        for sid in tuple(self._idle) if sids is None else sids:
            users = self._idle.get(sid, {})
            route = table.route(sid)
            target = route.target if route is not None else None
            unfit = [
                up
                for kept in users.values()
                for up in kept
                if up.target != target or _is_over(up, table, now)
            ]
            for upstream in unfit:
                upstream.give_up(self.ends.deferred)

    def close(self) -> None:
        """Close all."""
        every = [up for users in self._idle.values() for kept in users.values() for up in kept]
        for upstream in every:
            upstream.close()

    def _drop_empty(self, sid: str, user: str) -> None:
        users = self._idle[sid]
        del users[user]
        if not users:
            del self._idle[sid]
