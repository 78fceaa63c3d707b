"""A browser's connection as such: its place among the others, its deadlines, and how it closes.

What it says is read in :mod:`gateway.relay.front`.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from typing import TYPE_CHECKING, cast

from gateway.core.addresses import is_within, limit_key
from gateway.core.places import Verdict
from gateway.relay.states import Event, State, step
from gateway.relay.transports import reset, resume_reading, shut

if TYPE_CHECKING:
    from gateway.relay.gateway import DataPath


class Downstream(asyncio.Protocol):
    """A connection from *peer*.

    It has a place among the strangers while ``placed``: until a credential of its is found good,
    or until it is closed.
    """

    __slots__ = (
        "deadline",
        "early",
        "half_closed",
        "key",
        "path",
        "peer",
        "placed",
        "state",
        "tick",
        "transport",
        "verdict",
        "writable",
    )

    def __init__(self, path: DataPath, peer: str) -> None:
        self.path = path
        self.state = State.HEAD
        self.transport: asyncio.Transport | None = None
        self.peer = peer
        self.key = ""
        """By what it is counted; "" for a proxy's, which is many people's."""
        self.placed = False
        self.verdict = Verdict.WELCOME
        self.tick = 0
        self.deadline = 0.0
        self.early = b""
        """What came beyond the request that is being answered."""
        self.half_closed = False
        self.writable = True

    # Its place

    def take_place(self) -> Verdict:
        """Enter among the strangers; whoever is dropped stays outside."""
        trusted = self.path.parts.site.trusted_proxies
        if not (trusted and is_within(self.peer, trusted)):
            self.key = limit_key(self.peer)
        self.verdict = self.path.places.judge(self.key)
        if self.verdict is not Verdict.DROPPED:
            self.become_stranger()
        return self.verdict

    def become_stranger(self) -> None:
        """There is no right by which it is here, or none any more."""
        if not self.placed:
            self.placed = True
            self.path.places.enter(self.key)

    def leave_place(self) -> None:
        """It is no stranger any more, or has gone."""
        if self.placed:
            self.placed = False
            self.path.places.leave(self.key)

    # Its transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport, if there is a place for one more."""
        # uvloop's transports have the interface but not the base class.
        transport = cast(asyncio.Transport, transport)
        self.transport = transport
        path = self.path
        transport.set_write_buffer_limits(high=path.parts.limits.write_high_bytes)
        path.meters.connections += 1
        if self.verdict is Verdict.WELCOME:
            self.wait(path.parts.limits.idle_seconds)
        else:
            self.turn_away(self.verdict)

    @abstractmethod
    def turn_away(self, verdict: Verdict) -> None:
        """Say that there is no place for it."""

    def write(self, data: bytes) -> None:
        """Write to the browser."""
        if self.transport is not None:
            self.path.meters.http.down += len(data)
            self.transport.write(data)

    # Its end

    def wait(self, seconds: float) -> None:
        """Set its deadline."""
        self.deadline = self.path.parts.loop.time() + seconds
        if not self.tick or seconds < 60.0:
            self.path.wheel.arm(self, self.deadline)

    def linger(self) -> None:
        """Shut our side, discard what still comes, and close in two seconds at the latest."""
        self.state = step(self.state, Event.REFUSED)
        self.early = b""
        if self.transport is None:
            return
        if self.half_closed:
            self.path.ends.close(self.transport)
            return
        resume_reading(self.transport)
        shut(self.transport)
        self.wait(self.path.parts.limits.linger_seconds)

    def finish(self, *, whole: bool) -> None:
        """Close after the last answer, in a way that lets the browser read it."""
        transport = self.transport
        if transport is None:
            return
        flushed = not transport.get_write_buffer_size() or not transport.can_write_eof()
        if whole and not self.early and flushed:
            self.path.ends.close(transport)
        else:
            self.linger()

    def abort(self) -> None:
        """Reset the connection."""
        reset(self.transport)

    @abstractmethod
    def due(self, now: float) -> float:
        """Act on a deadline that has passed; called by the wheel."""

    def leave(self) -> None:
        """Forget the connection: it is closed, or somebody else's."""
        self.leave_place()
        self.path.wheel.disarm(self)
