"""What the rest of the relay knows of a bridge: what it is made of, and how it is ended."""

from __future__ import annotations

import asyncio
import logging
import time
from abc import abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeAlias, cast

from gateway.core.access.access_right import AccessRight, Ending
from gateway.core.access.refusals import Errors
from gateway.core.http.http_date import HttpDate
from gateway.core.limits.values import Limits
from gateway.live import Live
from gateway.relay.background_tasks import BackgroundTasks
from gateway.relay.dial import Dialler
from gateway.relay.ending.ends import Ends
from gateway.relay.meters import Meters
from gateway.relay.turns import Turns
from gateway.relay.world import World
from gateway.reports import RecentFailures

# The library logs heads, which hold credentials, when its logger lets it.
quiet_logger = logging.getLogger("gateway.sockets")
quiet_logger.setLevel(logging.WARNING)


@dataclass(frozen=True, slots=True, kw_only=True)
class BridgeParts:
    """What bridges are given beside their request."""

    dialler: Dialler
    world: World
    errors: Errors
    limits: Limits = field(default_factory=Limits)
    meters: Meters = field(default_factory=Meters)
    date: HttpDate = field(default_factory=lambda: HttpDate(time.time))
    failures: RecentFailures | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class UpgradeRequest:
    """An allowed upgrade.

    ``head`` is a canonical, proper WebSocket request head (``Host``, ``Origin``, key, version 13
    and the offered subprotocols; no extensions, no credentials), to be fed to
    ``websockets.server.ServerProtocol.receive_data`` as it is. ``access_right`` holds route and
    grant; its route is exchanged for newer revisions of the same target while the connection lives.
    ``ends`` closes connections and watches for peers that left or stalled; ``turns`` shares the
    loop among connections.
    """

    head: bytes
    protocols: tuple[str, ...]
    access_right: AccessRight
    client_address: str
    live: Live
    background_tasks: BackgroundTasks
    ends: Ends
    turns: Turns


class Bridge(asyncio.Protocol):
    """The downstream protocol of one desktop or terminal.

    In order, it is given ``connection_made`` with the downstream transport (on which it must
    write the answer to the upgrade), perhaps ``data_received`` with bytes that followed the head,
    and then whatever the transport calls. ``pause_writing`` and ``resume_writing`` are its flow
    control; to hold the browser back it calls ``transport.pause_reading()``.

    Tasks (dialling, say) are made with ``request.background_tasks.run``, never bare. Subclasses
    that override ``connection_made`` or ``connection_lost`` must call these here: they keep the
    connection in the registry by which it is ended.
    """

    def __init__(self, request: UpgradeRequest) -> None:
        self.request = request
        self.kind = str(request.access_right.route.kind)
        self.access_right: AccessRight = request.access_right
        """By which right this connection exists."""
        self.transport: asyncio.Transport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Take the transport and enter the registry."""
        # uvloop's transports have the interface but not the base class.
        transport = cast(asyncio.Transport, transport)
        self.transport = transport
        self.request.live.add(self)

    def look_for_stalls(self) -> None:
        """Have the browser watched where the kernel holds something for it."""
        self.request.ends.look_at(self.transport)

    def connection_lost(self, exc: Exception | None) -> None:  # asyncio's
        """Leave the registry."""
        self.transport = None
        self.request.live.discard(self)

    @abstractmethod
    def end(self, ending: Ending) -> None:
        """End the connection with a Close of *ending*'s code and reason; called at most once.

        From this call on no byte passes between browser and job in either direction: what still
        comes from the browser is read and thrown away, the upstream connection is aborted, a
        Close is written, our side is shut down, and the transport is aborted when the browser has
        not closed within 2 s, or when 250 ms after this call the Close is still unwritten.
        """


BridgeFactory: TypeAlias = Callable[[UpgradeRequest], Bridge]
