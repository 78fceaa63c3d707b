"""How a gateway starts, serves and ends: what one process does, and each worker of several.

At its end nobody new comes in, those who ask are answered, and tunnels leave in turns. Browsers
come back at once to whichever gateway is left. If all tunnels ended in one moment they would all
come back in the next, so their ends are spread over the first half of the time there is.

An idle connection may have a request on its way: proxies and browsers keep connections for their
next one. It is answered, with ``Connection: close``, for a second; then idle connections close.
(nginx's ``keepalive_min_timeout`` and HAProxy's ``idle-close-on-response`` are for the same.)
"""

from __future__ import annotations

import asyncio
import logging
import random
import socket
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from aiohttp import web
from prometheus_client.registry import Collector

from gateway.app import Gateway
from gateway.bus.holder import RouteTableHolder
from gateway.bus.measures import FollowedMeters, TableMeters
from gateway.core.access.access_right import DRAINING
from gateway.core.http.heads import MAX_FIELDS, MAX_HEAD_BYTES
from gateway.live import Member
from gateway.pages.assets import Assets
from gateway.relay.gateway import DataPath
from gateway.relay.listening import Listener
from gateway.settings import Address, Settings
from shared.metrics import make_ops_app, make_registry
from shared.runtime.process import join_address, write_address_file
from shared.runtime.serving import listen, listening

log = logging.getLogger(__name__)


FIRST_TABLE_SECONDS: Final = 10.0
"""For so long connections wait for the first table, while Redis answers."""
_LOOK_AGAIN_SECONDS: Final = 0.02
_PAGES_SECONDS: Final = 1.0


async def serve(settings: Settings, assets: Assets, *, stop: asyncio.Event) -> None:
    """Serve in this one process until *stop* is set, then drain and return.

    Raises:
        OSError: If an address cannot be taken.
    """
    async with AsyncExitStack() as stack:
        # The addresses first: who cannot take them has nothing to follow the bus for.
        sockets = listen(*settings.listen)
        for sock in sockets:
            stack.callback(sock.close)
        gateway = Gateway(settings, assets)
        path = await stack.enter_async_context(relaying(gateway))
        registry = make_registry()
        for collector in collectors(gateway, path):
            registry.register(collector)
        registry.register(FollowedMeters(gateway.follower))
        registry.register(TableMeters(gateway.follower))

        async def debug(request: web.Request) -> web.Response:
            return web.json_response(gateway.describe(request.query.get("host")))

        ops = make_ops_app(registry, gateway.reasons, [web.get("/debug/routes", debug)])
        ops_address = await stack.enter_async_context(listening(ops, settings.ops_listen))
        listener = Listener(path, sockets, tls=gateway.tls, held=True)
        stack.callback(listener.close)
        announce(settings, sockets, ops_address)

        async def accept() -> None:
            await first_table(gateway.follower)
            listener.begin()

        delay = settings.drain_delay_seconds
        await run_until_stopped(
            gateway, path, close=listener.close, stop=stop, delay=delay, beside=accept
        )


# What each worker of several does, too


@asynccontextmanager
async def relaying(gateway: Gateway) -> AsyncIterator[DataPath]:
    """Give the gateway's data path, ready for connections; at the end they are reset."""
    # Cancelled with its browser, so that a page does not go on for nobody.
    runner = web.AppRunner(
        gateway.pages,
        handle_signals=False,
        access_log=None,
        handler_cancellation=True,
        shutdown_timeout=_PAGES_SECONDS,
        auto_decompress=False,  # 16 KiB are 16 KiB; a compressed body is no form
        # The head has been judged; aiohttp's own limit is 8 KiB a field, less than cookies take.
        max_line_size=MAX_HEAD_BYTES,
        max_field_size=MAX_HEAD_BYTES,
        max_headers=2 * MAX_FIELDS,
    )
    await runner.setup()
    try:
        if runner.server is None:
            raise RuntimeError("aiohttp made no server")
        path = gateway.make_data_path(runner.server)
        try:
            yield path
        finally:
            await path.close()
            gateway.audit.close()
    finally:
        await runner.cleanup()
        gateway.checks.close()
        gateway.memory.close()
        await gateway.reader.aclose()


async def first_table(
    holder: RouteTableHolder, *, may_refuse: Callable[[], bool] = lambda: True
) -> None:
    """Return once connections can be served, or have to be refused, for want of a table.

    Connections wait in the kernel until then. What a page asks just after a gateway was killed
    may not be asked again after a 503: an EventSource that gets one has ended (HTML, section
    9.2.3), while a slow response is only slow. Envoy starts its listeners in the same way, after
    its first configuration or 15 s.

    Args:
        holder: Is running, or about to.
        may_refuse: Says whether refusing is this process' part.
    """
    loop = asyncio.get_running_loop()
    latest = loop.time() + FIRST_TABLE_SECONDS
    while holder.table is None:
        if (holder.last_error is not None or loop.time() >= latest) and may_refuse():
            return
        await asyncio.sleep(_LOOK_AGAIN_SECONDS)


def collectors(gateway: Gateway, path: DataPath) -> list[Collector]:
    """Return what counts in a process that serves browsers."""
    found: list[Collector] = [path.meters, gateway.shedding]
    if gateway.certificates is not None:
        found.append(gateway.certificates)
    if gateway.assertion_keys is not None:
        found.append(gateway.assertion_keys)
    return found


async def run_until_stopped(
    gateway: Gateway,
    path: DataPath,
    *,
    close: Callable[[], None],
    stop: asyncio.Event,
    delay: float = 0.0,
    beside: Callable[[], Coroutine[Any, Any, None]] | None = None,
) -> None:
    """Keep all that is kept fresh until *stop* is set, then drain and return.

    Args:
        gateway: What is kept fresh.
        path: What is drained.
        close: Has no further connections accepted.
        stop: Begins the end: readiness falls.
        delay: For how long all is served as before then, until load balancers have seen it.
        beside: Runs meanwhile.
    """
    async with asyncio.TaskGroup() as tasks:
        background = [
            tasks.create_task(gateway.follower.run()),
            tasks.create_task(gateway.keys.keep_fresh()),
            tasks.create_task(gateway.shedding.run()),
            tasks.create_task(gateway.audit.run()),
            tasks.create_task(gateway.reporter.run()),
            tasks.create_task(gateway.sign_outs.run()),
        ]
        if gateway.certificates is not None:
            background.append(tasks.create_task(gateway.certificates.keep_fresh()))
        if gateway.assertion_keys is not None:
            background.append(tasks.create_task(gateway.assertion_keys.keep_fresh()))
        if beside is not None:
            background.append(tasks.create_task(beside()))
        await stop.wait()
        gateway.draining = True
        await asyncio.sleep(delay)
        close()
        await drain(path, seconds=gateway.settings.drain_seconds, random=random.random)
        await gateway.sign_outs.pass_on()
        for task in background:
            task.cancel()


def announce(settings: Settings, sockets: Sequence[socket.socket], ops: Address) -> None:
    """Say where browsers and operators are served."""
    host, port = sockets[0].getsockname()[:2]
    addresses = {"public": join_address(host, port), "ops": join_address(*ops)}
    log.info("listening", extra=addresses)
    write_address_file(settings.address_file, addresses)


# Its end

STEP_SECONDS: Final = 0.05
IDLE_SECONDS: Final = 1.0
"""Or a quarter of the time there is: for how long an idle connection may still be used."""
LAST_SECONDS: Final = 0.5
"""Of the time there is, or a tenth of it: for what is left to be closed, and to end by then."""


async def drain(path: DataPath, *, seconds: float, random: Callable[[], float]) -> None:
    """Return once nothing is open any more, after *seconds* at the latest.

    Each connection closes with its next answer, an idle one after a moment. Tunnels, desktops and
    terminals get 1001 in the first half.

    Args:
        path: Its listeners are closed already.
        seconds: How long it may take.
        random: From 0 to 1.
    """
    loop = path.parts.loop
    began = loop.time()
    path.drain()
    log.info("draining", extra={"open": path.open})
    turns = _Turns(until=began + seconds / 2, random=random)
    enough = began + seconds - min(LAST_SECONDS, seconds / 10)
    idle_until = began + min(IDLE_SECONDS, seconds / 4)
    while (path.open or path.arriving) and loop.time() < enough:
        if loop.time() >= idle_until:
            idle_until = enough
            path.close_idle()
        path.parts.live.end(turns.due(path.tunnels(), loop.time()), DRAINING)
        await asyncio.sleep(min(STEP_SECONDS, seconds))
    if path.open:
        log.warning("the time to drain is over", extra={"open": path.open})


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class _Turns:
    """When each tunnel ends; one that comes later has less time."""

    until: float
    random: Callable[[], float]
    _at: dict[Member, float] = field(init=False, default_factory=dict)

    def due(self, members: list[Member], now: float) -> list[Member]:
        """Return those of *members* whose turn it is."""
        for member in members:
            if member not in self._at:
                self._at[member] = now + self.random() * max(self.until - now, 0.0)
        return [member for member in members if self._at[member] <= now]
