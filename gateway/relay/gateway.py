"""The data path, assembled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.core.access import Access
from gateway.core.answers import Errors, JsonErrors
from gateway.core.app_heads import AnswerReader
from gateway.core.fields import FieldReader
from gateway.core.passage import DRAINING
from gateway.core.places import Places
from gateway.relay.admit import Admission
from gateway.relay.front import Front
from gateway.relay.limits import Limits
from gateway.relay.meters import Meters
from gateway.relay.pool import Pool
from gateway.relay.wheel import Wheel

if TYPE_CHECKING:
    from gateway.core.grants import GrantKeys
    from gateway.core.site import Site
    from gateway.live import Live
    from gateway.relay.bridge import BridgeFactory
    from gateway.relay.dial import Dialler
    from gateway.relay.errands import Errands
    from gateway.relay.handover import Handover
    from gateway.relay.world import BearerGate, World
    from shared.routes import Kind


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
    wall: Callable[[], float] = time.time


class DataPath:
    """Serves browsers; ``await loop.create_server(path.protocol_factory, ...)`` starts it.

    In the assembling order::

        errands, dialler = Errands(), Dialler(networks=..., loop=loop)
        live = Live(table=lambda: follower.table, wall=time.time, loop=loop)
        path = DataPath(Parts(loop=loop, site=Site.from_url(...), world=follower, ...))
        server = await loop.create_server(path.protocol_factory, host, port)
        ...
        # follower, after every change of the table:
        live.review({sid})      # or live.review() after a new table, or a kid's revocation
        ...
        # draining: server.close(), then
        path.drain()            # connections close once idle; tunnels get 1001
        await path.close()      # ends what is left
    """

    def __init__(self, parts: Parts) -> None:
        self.parts = parts
        self.meters = parts.meters
        self.draining = False
        self.wheel = Wheel(parts.loop)
        self.pool = Pool(loop=parts.loop, wheel=self.wheel, limits=parts.limits)
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
        )
        parts.live.watch(self.pool)
        self.meters.gauge(
            "open_by_right",
            "Connections open by a grant or a public route.",
            lambda: len(parts.live),
        )
        self.meters.gauge("pooled", "Unused connections to apps.", lambda: len(self.pool))

    def protocol_factory(self) -> asyncio.Protocol:
        """Return the protocol of a new connection, whose peer is who the transport says."""
        return Front(self)

    def welcome(self, peer: str) -> Front:
        """Return the protocol of a new connection from *peer*."""
        return Front(self, peer)

    def drain(self) -> None:
        """Take no further requests: idle connections close, answers under way are the last.

        Tunnels and bridges get 1001.
        """
        self.draining = True
        for front in tuple(self.fronts):
            front.drain()
        self.parts.live.end_all(DRAINING)

    async def close(self) -> None:
        """Reset what is still open, and end all errands."""
        self.draining = True
        self.parts.live.end_all(DRAINING)
        for front in tuple(self.fronts):
            front.abort()
        for handover in tuple(self.handed):
            handover.abort()
        self.pool.close()
        await self.parts.errands.close()
        self.wheel.close()
        self.parts.live.close()
