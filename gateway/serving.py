"""Starts, serves and drains a gateway: for a single process, and for each worker of several.

A draining gateway accepts no connection, finishes requests, and ends tunnels at random times.
Browsers reconnect at once to another gateway. The ends of the tunnels are spread over the first
half of the drain time, so that they do not all reconnect in the same moment.

A request may be under way on an idle keep-alive connection. For one second such a request gets its
response, with ``Connection: close``; then idle connections are closed. nginx's
``keepalive_min_timeout`` and HAProxy's ``idle-close-on-response`` serve the same purpose.
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

from aiohttp import web
from prometheus_client.registry import Collector

from gateway.app import Gateway
from gateway.bus.holder import RouteTableHolder
from gateway.bus.metrics import FollowerMetrics, TableMetrics
from gateway.core.access.access_right import DRAINING
from gateway.live import Member
from gateway.pages.assets import Assets
from gateway.relay.gateway import DataPath
from gateway.relay.listening import Listener
from gateway.settings import ListenAddress, Settings
from shared.runtime.listeners import listen, listening
from shared.runtime.ops import make_ops_app, make_registry
from shared.runtime.process import join_address, write_address_file

log = logging.getLogger(__name__)


FIRST_TABLE_SECONDS: Final = 10.0
"""For this time new connections wait for the first table, while Redis responds."""
_LOOK_AGAIN_SECONDS: Final = 0.02


async def serve(settings: Settings, assets: Assets, *, stop: asyncio.Event) -> None:
    """Serve in this process until *stop* is set, then drain and return.

    Raises:
        OSError: If an address cannot be bound.
    """
    async with AsyncExitStack() as stack:
        # Bind first: without its addresses the process need not follow the bus.
        sockets = listen(*settings.listen)
        for sock in sockets:
            stack.callback(sock.close)
        gateway = await stack.enter_async_context(Gateway(settings, assets))
        registry = make_registry()
        for collector in (*collectors(gateway), TableMetrics(gateway.follower)):
            registry.register(collector)

        async def debug(request: web.Request) -> web.Response:
            return web.json_response(gateway.describe(request.query.get("host")))

        ops = make_ops_app(
            registry,
            gateway.reasons,
            [web.get("/debug/routes", debug)],
            degraded=gateway.degraded,
        )
        ops_address = await stack.enter_async_context(listening(ops, settings.ops_listen))
        listener = Listener(gateway.path, sockets, tls=gateway.tls, held=True)
        stack.callback(listener.close)
        announce(settings, sockets, ops_address)

        async def accept() -> None:
            await first_table(gateway.follower)
            listener.begin()

        delay = settings.drain_delay_seconds
        await run_until_stopped(
            gateway, close=listener.close, stop=stop, delay=delay, beside=accept
        )


# Used by each worker of several, too


async def first_table(
    holder: RouteTableHolder, *, may_refuse: Callable[[], bool] = lambda: True
) -> None:
    """Return once there is a table, or connections have to be refused because there is none.

    Connections wait in the kernel until then. Shortly after a gateway was killed, pages send
    requests that they do not repeat after a 503: an EventSource that gets one fails for good (HTML,
    section 9.2.3), while a slow response does no harm. Envoy likewise starts its listeners after
    its first configuration, or 15 s.

    Args:
        holder: Runs already, or is about to.
        may_refuse: Returns whether this process may refuse connections.
    """
    loop = asyncio.get_running_loop()
    latest = loop.time() + FIRST_TABLE_SECONDS
    while holder.table is None:
        if (holder.last_error is not None or loop.time() >= latest) and may_refuse():
            return
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)


def collectors(gateway: Gateway) -> list[Collector]:
    """Return the metrics collectors of a process that serves browsers."""
    return [
        gateway.meters,
        gateway.shedding,
        *gateway.reloaded_files,
        FollowerMetrics(gateway.follower),
    ]


async def run_until_stopped(
    gateway: Gateway,
    *,
    close: Callable[[], None],
    stop: asyncio.Event,
    beside: Callable[[], Coroutine[Any, Any, None]],
    delay: float = 0.0,
) -> None:
    """Run the gateway's background tasks until *stop* is set, then drain and return.

    Args:
        gateway: The gateway; it is not ready from the moment *stop* is set.
        close: Stops accepting connections.
        stop: Begins the shutdown.
        delay: Seconds to serve as before after *stop*, until load balancers notice the readiness.
        beside: One more task to run meanwhile.
    """
    async with asyncio.TaskGroup() as tasks:
        coroutines = [
            gateway.follower.run(),
            gateway.keys.keep_fresh(),
            gateway.shedding.run(),
            gateway.audit.run(),
            gateway.reporter.run(),
            gateway.sign_outs.run(),
            gateway.live.watch_clock(),
            *(files.keep_fresh() for files in gateway.reloaded_files),
            beside(),
        ]
        background = [tasks.create_task(one) for one in coroutines]
        await stop.wait()
        gateway.draining = True
        await asyncio.sleep(delay)
        close()
        await drain(gateway.path, seconds=gateway.settings.drain_seconds, random=random.random)
        await gateway.sign_outs.pass_on()
        for task in background:
            task.cancel()


def announce(settings: Settings, sockets: Sequence[socket.socket], ops: ListenAddress) -> None:
    """Log the public and the ops address, and write them to the address file."""
    host, port = sockets[0].getsockname()[:2]
    addresses = {"public": join_address(host, port), "ops": join_address(*ops)}
    log.info("listening", extra=addresses)
    write_address_file(settings.address_file, addresses)


# Draining

STEP_SECONDS: Final = 0.05
IDLE_SECONDS: Final = 1.0
"""How long an idle connection may still be used; a quarter of the drain time if that is less."""
LAST_SECONDS: Final = 0.5
"""The part of the drain time, or a tenth of it if less, that is left to close what remains open."""


async def drain(path: DataPath, *, seconds: float, random: Callable[[], float]) -> None:
    """Return once no connection is open, after *seconds* at the latest.

    Each HTTP connection closes after its next response, an idle one after :data:`IDLE_SECONDS`.
    Tunnels, desktops and terminals get a Close with code 1001 in the first half of the time.

    Args:
        path: The data path, whose listeners are closed already.
        seconds: The drain time.
        random: Returns a number from 0 to below 1.
    """
    loop = path.loop
    began = loop.time()
    path.drain()
    log.info("draining", extra={"open": path.open})
    until = began + seconds / 2
    end_times: dict[Member, float] = {}
    enough = began + seconds - min(LAST_SECONDS, seconds / 10)
    idle_until = began + min(IDLE_SECONDS, seconds / 4)
    while (path.open or path.arriving) and loop.time() < enough:
        if loop.time() >= idle_until:
            idle_until = enough
            path.close_idle()
        now, tunnels = loop.time(), path.tunnels()
        for tunnel in tunnels:
            if tunnel not in end_times:  # a later one gets less time
                end_times[tunnel] = now + random() * max(until - now, 0.0)
        path.live.end([one for one in tunnels if end_times[one] <= now], DRAINING)
        await asyncio.sleep(min(STEP_SECONDS, seconds))
    if path.open:
        log.warning("the drain time is over", extra={"open": path.open})
