"""The data path, assembled."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.core.answers import Errors, JsonErrors
from gateway.relay.limits import Limits

if TYPE_CHECKING:
    from gateway.core.grants import GrantKeys
    from gateway.core.site import Site
    from gateway.live import Live
    from gateway.relay.bridge import BridgeFactory
    from gateway.relay.dial import Dialler
    from gateway.relay.errands import Errands
    from gateway.relay.world import BearerGate, World
    from shared.routes import Kind


@dataclass(frozen=True, slots=True, kw_only=True)
class Parts:
    """Everything that the data path is given.

    ``pages`` makes a fresh aiohttp protocol for one request: a ``web.Server`` (from
    ``web.AppRunner(app, handle_signals=False)``: after ``setup()``, its ``server``) is one.
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
