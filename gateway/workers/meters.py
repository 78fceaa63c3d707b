"""What operators see of the processes: metrics, and their part of ``/debug/routes``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, get_args

from aiohttp import web
from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from gateway.workers.pool import Why
from gateway.workers.sums import Sums, families_of, metrics_of

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from gateway.workers.fork_server import ForkServer
    from gateway.workers.pool import WorkerPool, WorkerSlot

_SUPERVISOR: Final = -1
_FORK_SERVER: Final = -2


class ProcessMeters(Collector):
    """The usual ``process_*`` metrics, as those of one process: sums over all of this gateway.

    Of start times and limits the smallest is told. Memory that processes share counts in each.
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
                self._sums.leave(number)
                held = self._held[number] = (pid, _collector_of(pid))
            self._sums.tell(number, families_of([held[1]]))
        for number in self._held.keys() - self._fixed.keys() - found.keys():
            self._sums.leave(number)
            del self._held[number]
        yield from self._sums.collect()


def _collector_of(pid: int) -> ProcessCollector:
    return ProcessCollector(pid=lambda: pid, registry=None)


class PoolMeters(Collector):
    """How many workers there are, and how they ended."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool

    def collect(self) -> Iterator[Metric]:
        """Yield them."""
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
            "Workers that ended and were started anew, by how they ended.",
            labels=["why"],
        )
        for why in get_args(Why):
            ends.add_metric([why], self._pool.ends[why])
        yield ends
        lags = [slot.standing.lag_seconds for slot in slots if slot.standing is not None]
        yield GaugeMetricFamily(
            "fumarole_gateway_worker_lag_seconds",
            "Of the last event, at the worker that was last to apply it.",
            value=max(lags, default=0.0),
        )


class TableOfWorkers(Collector):
    """How table and bus stand: as the worker sees them that is furthest behind."""

    def __init__(self, pool: WorkerPool) -> None:
        self._pool = pool

    def collect(self) -> Iterator[Metric]:
        """Yield what that worker told last."""
        yield from metrics_of(self._pool.table)


def make_debug_workers(pool: WorkerPool) -> web.RouteDef:
    """Return ``/debug/routes``: what the worker furthest behind tells, and how each stands."""

    async def debug(request: web.Request) -> web.Response:
        told = await pool.describe(request.query.get("host"))
        workers = [_describe(slot) for slot in pool.slots]
        return web.json_response({**told, "workers": workers})

    return web.get("/debug/routes", debug)


def _describe(slot: WorkerSlot) -> dict[str, Any]:
    told: dict[str, Any] = {"worker": slot.number, "pid": slot.pid, "restarts": slot.restarts}
    standing = slot.standing
    if standing is None:
        return told | {"accepting": False}
    return told | {
        "accepting": standing.accepting,
        "open": standing.open,
        "epoch": standing.epoch,
        "seq": standing.seq,
        "hash": f"{standing.hash:016x}",
        "lag_seconds": round(standing.lag_seconds, 6),
        "reasons": list(standing.reasons),
    }
