"""What operators see of the processes: metrics, and their part of ``/debug/routes``."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final, get_args

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.registry import Collector

from gateway.workers.staff import Why
from gateway.workers.sums import Sums, families_of

if TYPE_CHECKING:
    from prometheus_client.metrics_core import Metric

    from gateway.workers.nursery import Nursery
    from gateway.workers.staff import Desk, Staff

_SUPERVISOR: Final = -1
_NURSERY: Final = -2


class ProcessMeters(Collector):
    """The usual ``process_*`` metrics, as those of one process: sums over all of this gateway.

    Of start times and limits the smallest is told. Memory that processes share counts in each.
    """

    def __init__(self, staff: Staff, nursery: Nursery) -> None:
        self._staff = staff
        self._sums = Sums()
        self._held: dict[int, tuple[int, ProcessCollector]] = {}
        self._fixed = {_SUPERVISOR: os.getpid(), _NURSERY: nursery.pid}

    def collect(self) -> Iterator[Metric]:
        """Yield the sums."""
        found = {desk.number: desk.pid for desk in self._staff.desks if desk.pid is not None}
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


class StaffMeters(Collector):
    """How many workers there are, and how they ended."""

    def __init__(self, staff: Staff) -> None:
        self._staff = staff

    def collect(self) -> Iterator[Metric]:
        """Yield them."""
        desks = self._staff.desks
        accepting = sum(desk.accepting for desk in desks)
        workers = GaugeMetricFamily(
            "fumarole_gateway_workers", "Worker processes by state.", labels=["state"]
        )
        workers.add_metric(["accepting"], accepting)
        workers.add_metric(["starting"], len(desks) - accepting)
        yield workers
        ends = CounterMetricFamily(
            "fumarole_gateway_worker_ends",
            "Workers that ended and were started anew, by how they ended.",
            labels=["why"],
        )
        for why in get_args(Why):
            ends.add_metric([why], self._staff.ends[why])
        yield ends
        lags = [desk.standing.lag_seconds for desk in desks if desk.standing is not None]
        yield GaugeMetricFamily(
            "fumarole_gateway_worker_lag_seconds",
            "Of the last event, at the worker that was last to apply it.",
            value=max(lags, default=0.0),
        )


async def describe_staff(staff: Staff) -> dict[str, Any]:
    """Return what can be told of each worker, as it stands now."""
    await staff.look()
    return {"workers": [_describe(desk) for desk in staff.desks]}


def _describe(desk: Desk) -> dict[str, Any]:
    told: dict[str, Any] = {"worker": desk.number, "pid": desk.pid, "restarts": desk.restarts}
    standing = desk.standing
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
