"""The data path, assembled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from gateway.core.access import Access
from gateway.core.answers import Errors, JsonErrors
from gateway.core.app_heads import AnswerReader
from gateway.core.fields import FieldReader
from gateway.core.http_date import HttpDate
from gateway.core.overload import Overload
from gateway.core.passage import DRAINING
from gateway.core.places import Places, Verdict
from gateway.core.refusal_rate import RefusalRate
from gateway.relay.admit import Admission
from gateway.relay.ending.ends import Ends
from gateway.relay.front import Front
from gateway.relay.handover import Handover
from gateway.relay.limits import Limits
from gateway.relay.meters import Meters
from gateway.relay.pipes import Pipes
from gateway.relay.pool import Pool
from gateway.relay.readiness import Readiness
from gateway.relay.turns import Turns
from gateway.relay.wheel import Wheel

if TYPE_CHECKING:
    from gateway.core.grants import GrantKeys
    from gateway.core.site import Site
    from gateway.live import Live, Member
    from gateway.relay.bridge import BridgeFactory
    from gateway.relay.dial import Dialler
    from gateway.relay.errands import Errands
    from gateway.relay.world import BearerGate, World
    from shared.routes import Kind


_SHED_AT_ONCE: Final = 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything that the data path is given.

    ``pages`` makes a fresh aiohttp protocol for one request: a ``web.Server`` (from
    ``web.AppRunner(app, handle_signals=False, handler_cancellation=True)``: after ``setup()``, its
    ``server``) is one; without cancellation a page goes on after its browser has left.
    ``bridges`` are made with the same *dialler*, so that one setting bounds where all may dial.
    ``wall`` returns unix seconds.
    """

    loop: asyncio.AbstractEventLoop
    site: Site
    world: World
    grants: GrantKeys
    bearer: BearerGate
    live: Live
    errands: Errands
    dialler: Dialler
    pages: Callable[[], asyncio.Protocol]
    bridges: Mapping[Kind, BridgeFactory] = field(default_factory=dict)
    errors: Errors = field(default_factory=JsonErrors)
    limits: Limits = field(default_factory=Limits)
    meters: Meters = field(default_factory=Meters)
    date: HttpDate = field(default_factory=lambda: HttpDate(time.time))
    refusals: RefusalRate = field(default_factory=lambda: RefusalRate(0, clock=time.monotonic))
    overload: Overload = field(default_factory=Overload)
    wall: Callable[[], float] = time.time


class DataPath:
    """Serves browsers, whose connections a :class:`gateway.relay.listening.Listener` accepts.

    In the assembling order::

        errands, dialler = Errands(), Dialler(networks=..., loop=loop)
        live = Live(table=lambda: follower.table, wall=time.time, loop=loop)
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
        self.parts = parts
        self.meters = parts.meters
        self.draining = False
        self.wheel = Wheel(parts.loop)
        self.readiness = Readiness(parts.loop)
        self.ends = Ends(parts.loop, parts.limits)
        self.turns = Turns(parts.loop)
        self.pipes = Pipes(size=parts.limits.pipe_bytes, most=parts.limits.pipes)
        self.pool = Pool(
            loop=parts.loop, wheel=self.wheel, deferred=self.ends.deferred, limits=parts.limits
        )
        self.access = Access(parts.site, parts.grants)
        self.admission = Admission(self)
        self.fields = FieldReader(parts.site.cookie_name)
        self.answers = AnswerReader(parts.site.frame_ancestors)
        self.fronts: set[Front] = set()
        self.handed: set[Handover] = set()
        self.places = Places(
            most=parts.limits.connections,
            most_strangers=parts.limits.address_connections,
            known=parts.live.__len__,
            overload=parts.overload,
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
            lambda: self.places.strangers,
        )
        self.meters.gauge(
            "open_by_right",
            "Connections open by a grant or a public route.",
            lambda: len(parts.live),
        )
        self.meters.gauge("pooled", "Unused connections to apps.", lambda: len(self.pool))

    def welcome(self, peer: str) -> Front | None:
        """Return the protocol of a new connection from *peer*; None if it is not to be heard."""
        front = Front(self, peer)
        if front.take_place() is Verdict.DROPPED:
            self.meters.dropped += 1
            return None
        return front

    @property
    def open(self) -> int:
        """How many connections are open, or have not ended yet."""
        live = self.parts.live
        return self.places.strangers + len(live) + len(live.leaving)

    def _open_by_kind(self) -> dict[str, int]:
        # Those with a permit are registered as well; a front counts once.
        return {
            **self.parts.live.kinds,
            "http": len(self.fronts),
            "page": len(self.handed),
        }

    def tunnels(self) -> list[Member]:
        """Return what carries frames, and not one request after the other."""
        return [
            member
            for member in self.parts.live.members()
            if not isinstance(member, Front | Handover)
        ]

    def drain(self) -> None:
        """Take no further requests: idle connections close, answers under way are the last."""
        self.draining = True
        for front in tuple(self.fronts):
            front.drain()

    def shed_idle(self, *, stalled_seconds: float) -> int:
        """Close connections that wait for a request, unused ones, and those whose peer stalls.

        A thousand of the first at most: closing takes its time, and more of them are next.
        """
        idle = 0
        for front in tuple(self.fronts):
            if front.transport is None or front.transport.is_closing():
                continue
            front.drain()
            idle += front.transport is None or front.transport.is_closing()
            if idle == _SHED_AT_ONCE:
                break
        pooled = len(self.pool)
        self.pool.close()
        return idle + pooled + self.ends.stalls.give_up(stalled_seconds)

    async def close(self) -> None:
        """Reset what is still open, and end all errands."""
        self.draining = True
        self.parts.live.end_all(DRAINING)
        for front in tuple(self.fronts):
            front.abort()
        for handover in tuple(self.handed):
            handover.abort()
        self.pool.close()
        self.ends.shut_down()
        await self.parts.errands.close()
        self.wheel.close()
        self.readiness.close()
        self.pipes.close()
        self.parts.live.close()
