"""What all connections of a data path share and are created with."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, TypeAlias

from gateway.bus.holder import RouteTableHolder
from gateway.core.access.access_right import AccessRight
from gateway.core.access.assertions import Assertions
from gateway.core.access.grants import GrantKeys
from gateway.core.access.refusals import RefusalRenderer
from gateway.core.access.site import Site
from gateway.core.http.fields import FieldReader
from gateway.core.http.request_reader import SectionCache
from gateway.core.http.response_heads import HttpDate, ResponseReader
from gateway.core.limits.buffer_shares import BufferOwner
from gateway.core.limits.connection_quota import ConnectionQuota, QuotaMember
from gateway.core.limits.overload import Overload
from gateway.core.limits.rates import RefusalRate
from gateway.core.limits.values import Limits
from gateway.credentials.session_tokens import BearerTokens
from gateway.live import ConnectionRegistry
from gateway.observers.audit_log import AuditLog
from gateway.observers.reporter import RecentFailures
from gateway.relay.background_tasks import BackgroundTasks
from gateway.relay.dial import Dialler
from gateway.relay.ending.closer import Closer
from gateway.relay.ending.stalls import StallChecked
from gateway.relay.epolls import Readiness
from gateway.relay.http.pipes import Pipes
from gateway.relay.http.upstream import Pool
from gateway.relay.meters import Meters
from gateway.relay.turns import Turns
from gateway.wheel import TimerWheel
from shared.routes.route import Kind


class Resettable(StallChecked, BufferOwner, Protocol):
    """A connection that the data path can end."""

    def reset(self) -> None:
        """Reset the connection at once."""


class HttpConnection(Resettable, Protocol):
    """A connection that can carry further requests."""

    def close_after_response(self) -> None:
        """Close after the response to the current or the next request."""

    def drain(self) -> None:
        """Accept no further request, and close if none is in progress."""

    def is_closing(self) -> bool:
        """Return whether it is closed or about to be."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeRequest:
    """An admitted upgrade to a desktop or a terminal.

    ``head`` is a canonical, valid WebSocket request head (``Host``, ``Origin``, key, version 13 and
    the offered subprotocols; no extensions, no credentials). It is meant for
    ``websockets.server.ServerProtocol.receive_data``. ``access_right`` holds route and grant; its
    route is replaced by newer revisions with the same target while the connection lives.
    """

    head: bytes
    protocols: tuple[str, ...]
    access_right: AccessRight
    context: Context


BridgeFactory: TypeAlias = Callable[[UpgradeRequest], asyncio.Protocol]
"""Makes the downstream protocol of one desktop or terminal.

The protocol first gets ``connection_made`` with the downstream transport, on which it must respond
to the upgrade. ``data_received`` may follow with bytes that came after the head. From then on the
transport calls it."""


@dataclass(kw_only=True, eq=False, repr=False)
class Context:
    """Shared by the connections of a data path: its dependencies, and the registers of connections.

    - ``make_page`` returns a fresh aiohttp protocol for one request, such as a ``web.Server``: the
      ``server`` of ``web.AppRunner(app, handle_signals=False, handler_cancellation=True)`` after
      ``setup()``. Without cancellation a page would continue after its browser has left.
    - ``assertions`` let apps verify the user of a request.
    - ``wall`` returns unix seconds.
    - ``end_notice_seconds`` before the end of a web session its users get a notice; 0 for never.
    """

    loop: asyncio.AbstractEventLoop
    site: Site
    holder: RouteTableHolder
    grants: GrantKeys
    bearer: BearerTokens
    live: ConnectionRegistry
    background_tasks: BackgroundTasks
    dialler: Dialler
    audit: AuditLog
    failures: RecentFailures
    make_page: Callable[[], asyncio.Protocol]
    bridges: Mapping[Kind, BridgeFactory] = field(default_factory=dict)
    assertions: Assertions | None = None
    errors: RefusalRenderer = field(default_factory=RefusalRenderer)
    limits: Limits = field(default_factory=Limits)
    meters: Meters = field(default_factory=Meters)
    date: HttpDate = field(default_factory=lambda: HttpDate(time.time))
    refusals: RefusalRate = field(default_factory=lambda: RefusalRate(0, clock=time.monotonic))
    overload: Overload = field(default_factory=Overload)
    wall: Callable[[], float] = time.time
    end_notice_seconds: float = 0.0

    def __post_init__(self) -> None:
        loop, limits, site = self.loop, self.limits, self.site
        self.draining = False
        self.wheel = TimerWheel(loop)
        self.readiness = Readiness(loop)
        self.closer = Closer(loop, limits)
        self.turns = Turns(loop)
        self.pipes = Pipes(size=limits.pipe_bytes, most=limits.pipes)
        self.pool = Pool(
            loop=loop, wheel=self.wheel, closer=self.closer, turns=self.turns, limits=limits
        )
        self.fields = FieldReader(site.cookie_name)
        self.known = SectionCache()
        self.responses = ResponseReader(
            site.frame_ancestors, strict_transport=site.strict_transport
        )
        self.connections: set[HttpConnection] = set()
        """Downstream connections that carry HTTP."""
        self.pages: set[Resettable] = set()
        """Connections that one of the gateway's pages responds to."""
        self.connection_quota: ConnectionQuota[QuotaMember] = ConnectionQuota(
            limit=limits.connections,
            max_unauthenticated=limits.address_connections,
            count_authenticated=self.live.__len__,
            overload=self.overload,
        )
