"""The supervisor: keeps the workers running, and serves the ops listener for all of them."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import AsyncExitStack, suppress
from typing import Any, Final, get_args

import uvloop
from aiohttp import web
from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.pages.assets import Assets
from gateway.serving import announce
from gateway.settings import Settings
from gateway.workers.fork_server import ForkServer, start_fork_server
from gateway.workers.pool import EndReason, WorkerPool, WorkerSlot
from gateway.workers.run import make_worker_main
from gateway.workers.shares import Shares
from gateway.workers.sums import Sums, families_of, metrics_of
from shared.runtime.listeners import listen, listening
from shared.runtime.ops import make_ops_app
from shared.runtime.process import EXIT_FAILED, raise_descriptor_limit, stop_on_signals

log = logging.getLogger(__name__)


_SUPERVISOR: Final = -1
_FORK_SERVER: Final = -2


class ProcessMetrics(Collector):
    """The standard ``process_*`` metrics, summed over all processes of this gateway.

    Start times and limits are the minimum. Shared memory counts in each process.
    """

    def __init__(self, pool: WorkerPool, fork_server: ForkServer) -> None:
        self._pool = pool
        self._sums = Sums()
        self._held: dict[int, tuple[int, ProcessCollector]] = {}
        self._fixed = {_SUPERVISOR: os.getpid(), _FORK_SERVER: fork_server.pid}

    def collect(self) -> Iterator[Metric]:
        """Yield the sums."""
        found = {slot.number: slot.pid for slot in self._pool.slots if slot.pid is not None}
        for number, pid in (self._fixed | found).items():
            held = self._held.get(number)
            if held is None or held[0] != pid:
                self._sums.retire(number)
                held = self._held[number] = (pid, _collector_of(pid))
            self._sums.update(number, families_of([held[1]]))
        for number in self._held.keys() - self._fixed.keys() - found.keys():
            self._sums.retire(number)
            del self._held[number]
        yield from self._sums.collect()


def _collector_of(pid: int) -> ProcessCollector:
    return ProcessCollector(pid=lambda: pid, registry=None)


class PoolMetrics(Collector):
    """Metrics of the workers, and of table and bus in the worker that is furthest behind."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        yield from metrics_of(self._pool.table)
        slots = self._pool.slots
        accepting = sum(slot.accepting for slot in slots)
        workers = GaugeMetricFamily(
            "fumarole_gateway_workers", "Worker processes by state.", labels=["state"]
        )
        workers.add_metric(["accepting"], accepting)
        workers.add_metric(["starting"], len(slots) - accepting)
        yield workers
        ends = CounterMetricFamily(
            "fumarole_gateway_worker_ends",
            "Workers that exited and were replaced, by reason.",
            labels=["why"],
        )
        for why in get_args(EndReason):
            ends.add_metric([why], self._pool.ends[why])
        yield ends
        lags = [slot.status.lag_seconds for slot in slots if slot.status is not None]
        yield GaugeMetricFamily(
            "fumarole_gateway_worker_lag_seconds",
            "Seconds until the last event was applied, in the slowest worker.",
            value=max(lags, default=0.0),
        )


def make_debug_workers(pool: WorkerPool) -> web.RouteDef:
    """Return ``/debug/routes``: the table of the worker furthest behind, and each status."""

    async def debug(request: web.Request) -> web.Response:
        description = await pool.describe(request.query.get("host"))
        workers = [_describe(slot) for slot in pool.slots]
        return web.json_response({**description, "workers": workers})

    return web.get("/debug/routes", debug)


def _describe(slot: WorkerSlot) -> dict[str, Any]:
    description: dict[str, Any] = {
        "worker": slot.number,
        "pid": slot.pid,
        "restarts": slot.restarts,
    }
    status = slot.status
    if status is None:
        return description | {"accepting": False}
    return description | {
        "accepting": status.accepting,
        "open": status.open,
        "epoch": status.epoch,
        "seq": status.seq,
        "hash": f"{status.hash:016x}",
        "lag_seconds": round(status.lag_seconds, 6),
        "reasons": list(status.reasons),
    }


_GRACE_SECONDS: Final = 2.0
"""The time between the end of the drain and the kill of remaining workers."""


def supervise(settings: Settings, assets: Assets) -> None:
    """Serve with ``settings.workers`` workers until SIGTERM or SIGINT, then drain and return.

    Raises:
        OSError: If an address cannot be bound.
    """
    raise_descriptor_limit()  # which the workers inherit
    shares = Shares(settings.workers)
    fork_server = start_fork_server(make_worker_main(settings, assets, shares))
    try:
        uvloop.run(_supervise(settings, fork_server, shares))
    except* EOFError:
        log.critical("the fork server has exited, no worker can be started: exiting")
        raise SystemExit(EXIT_FAILED) from None
    finally:
        fork_server.close()


async def _supervise(settings: Settings, fork_server: ForkServer, shares: Shares) -> None:
    stop = asyncio.Event()
    stop_on_signals(stop)
    async with AsyncExitStack() as stack:
        # Bound after the fork, so that the fork server does not keep the sockets open.
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
        # This gateway is not ready any more; it serves until load balancers notice.
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
    for collector in (ProcessMetrics(pool, fork_server), PoolMetrics(pool), pool.sums):
        registry.register(collector)

    def reasons() -> list[str]:
        return list(dict.fromkeys([*(["draining"] if stop.is_set() else []), *pool.reasons()]))

    return make_ops_app(
        registry,
        reasons,
        [make_debug_workers(pool)],
        measure=pool.measure,
        degraded=pool.degraded,
    )
