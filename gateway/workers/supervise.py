"""The supervisor: keeps the workers running, and answers operators for the gateway as a whole."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence
from contextlib import AsyncExitStack, suppress
from typing import Final

import uvloop
from aiohttp import web
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector

from gateway.pages.assets import Assets
from gateway.serving import announce
from gateway.settings import Settings
from gateway.workers.accepting import Shares
from gateway.workers.fork_server import ForkServer, start_fork_server
from gateway.workers.meters import PoolMeters, ProcessMeters, TableOfWorkers, make_debug_workers
from gateway.workers.pool import WorkerPool
from gateway.workers.run import make_work
from shared.metrics import make_ops_app
from shared.runtime.listening import listen
from shared.runtime.process import EXIT_FAILED, raise_descriptor_limit, stop_on_signals
from shared.runtime.serving import listening

_GRACE_SECONDS: Final = 2.0
"""What workers are given beyond the drain before they are killed."""

log = logging.getLogger(__name__)


def supervise(settings: Settings, assets: Assets) -> None:
    """Serve with ``settings.workers`` workers until SIGTERM or SIGINT, then drain and return.

    Raises:
        OSError: If an address cannot be taken.
    """
    raise_descriptor_limit()  # which the workers inherit
    shares = Shares(settings.workers)
    fork_server = start_fork_server(make_work(settings, assets, shares))
    try:
        uvloop.run(_supervise(settings, fork_server, shares))
    except* EOFError:
        log.critical("the fork server has ended, no worker can be started: giving up")
        raise SystemExit(EXIT_FAILED) from None
    finally:
        fork_server.close()


async def _supervise(settings: Settings, fork_server: ForkServer, shares: Shares) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop)
    async with AsyncExitStack() as stack:
        # Made after the fork: what the fork server does not have, it does not keep open.
        sockets = listen(*settings.listen)
        for sock in sockets:
            stack.callback(sock.close)
        pool = WorkerPool(
            settings.workers, fork_server=fork_server, listening=sockets, shares=shares
        )
        ops = _make_ops(pool, fork_server, stop)
        address = await stack.enter_async_context(listening(ops, settings.ops_listen))
        announce(settings, sockets, address)
        await _run(settings, pool, sockets, stop)


async def _run(
    settings: Settings, pool: WorkerPool, sockets: Sequence[socket.socket], stop: asyncio.Event
) -> None:
    async with asyncio.TaskGroup() as tasks:
        working = tasks.create_task(pool.run())
        await stop.wait()
        # Readiness has fallen; workers serve as before until load balancers have seen it.
        await asyncio.sleep(settings.drain_delay_seconds)
        log.info("draining")
        for sock in sockets:
            sock.close()
        pool.drain()
        with suppress(TimeoutError):
            async with asyncio.timeout(settings.drain_seconds + _GRACE_SECONDS):
                await asyncio.shield(working)
        working.cancel()


def _make_ops(pool: WorkerPool, fork_server: ForkServer, stop: asyncio.Event) -> web.Application:
    registry = CollectorRegistry(auto_describe=True)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    for collector in (
        ProcessMeters(pool, fork_server),
        TableOfWorkers(pool),
        PoolMeters(pool),
        pool.sums,
    ):
        registry.register(collector)

    def reasons() -> list[str]:
        return list(dict.fromkeys([*(["draining"] if stop.is_set() else []), *pool.reasons()]))

    return make_ops_app(registry, reasons, [make_debug_workers(pool)], measure=pool.measure)
