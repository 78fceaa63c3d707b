"""The overload watch: it measures memory, sets the step of load shedding, and closes connections.

It also has free memory returned to the kernel after many connections have ended. The C library
keeps memory between pieces that are in use: twice the memory after a flood of TLS connections.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Protocol

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.core.limits.overload import Overload, Step

MEASURE_SECONDS: Final = 0.25
"""A gigabit a second fills 30 MiB in this time; a measurement takes microseconds."""
TRIM_SECONDS: Final = 10.0
"""The minimum interval between two trims, and between two calls of *tidy*."""
LATE_TRIM_SECONDS: Final = (30.0, 150.0)
"""After many connections have ended: some of their state, such as rate limits, expires later."""
MANY_CONNECTIONS: Final = 64
"""Fewer hold too little memory for a trim."""
FEW_CONNECTIONS: Final = 1000
"""Up to this number a full garbage collection takes some milliseconds; above it only young objects
are collected."""
STALLED_SECONDS: Final = 5.0
"""While load is shed, a peer that reads nothing is given up after this time and not after its usual
deadline."""

log = logging.getLogger(__name__)


class _DataPath(Protocol):
    """What holds the connections, as far as load shedding needs it."""

    @property
    def open(self) -> int: ...
    def shed_idle(self, *, stalled_seconds: float) -> int: ...


@dataclass(kw_only=True, eq=False, repr=False)
class OverloadWatch(Collector):
    """Keeps *overload* up to date from :meth:`run` on."""

    overload: Overload
    data_path: Callable[[], _DataPath | None]
    """Returns the data path; None before it exists."""
    measure: Callable[[], int | None]
    """Returns the memory in use; None if unknown."""
    trim: Callable[[], None]
    """Returns free memory to the kernel; what stays would count as load."""
    tidy: Callable[[], None] = lambda: None
    """Forgets expired state, every :data:`TRIM_SECONDS`."""
    closed: int = 0
    """The number of idle or stalled connections closed."""
    _tidied_at: float = float("-inf")
    _trimmed_at: float = float("-inf")
    _late_trims: tuple[float, ...] = ()
    _most: int = 0
    """The highest number of open connections since the last trim."""

    async def run(self) -> None:
        """Measure until cancelled; without a bound or a measurement no load is shed."""
        bounded = bool(self.overload.bound_bytes)
        if bounded and self.measure() is None:
            log.warning("memory in use cannot be read: no load is shed before it runs out")
            bounded = False
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            if bounded:
                self.measure_once()
            if now - self._tidied_at >= TRIM_SECONDS:
                self._tidied_at = now
                self.tidy()
            if self.claim_trim(now):
                self._collect()
                # In a thread: it takes tens of milliseconds and does not hold the GIL.
                await asyncio.to_thread(self.trim)
            await asyncio.sleep(MEASURE_SECONDS)

    def _collect(self) -> None:
        """Free the cycles of ended connections, with the buffers that they hold.

        The garbage collector counts objects, not bytes, and would run only after thousands of them.
        """
        few = self._most <= FEW_CONNECTIONS
        gc.collect(2 if few else 1)

    def claim_trim(self, now: float) -> bool:
        """Return whether memory must be trimmed now; the caller must then trim.

        That is the case while load is shed, after many connections have ended, and some time later.
        """
        data_path = self.data_path()
        count = data_path.open if data_path is not None else 0
        self._most = max(self._most, count)
        has_ebbed = self._most - count >= max(MANY_CONNECTIONS, self._most // 4)
        is_late = bool(self._late_trims) and now >= self._late_trims[0]
        wanted = has_ebbed or is_late or self.overload.step
        if now - self._trimmed_at < TRIM_SECONDS or not wanted:
            return False
        if has_ebbed:
            self._late_trims = tuple(now + seconds for seconds in LATE_TRIM_SECONDS)
        elif is_late:
            self._late_trims = self._late_trims[1:]
        self._trimmed_at, self._most = now, count
        return True

    def measure_once(self) -> None:
        """Measure once, and act."""
        overload = self.overload
        before = overload.step
        if overload.measured(self.measure()):
            log.log(
                logging.WARNING if overload.step > before else logging.INFO,
                "load is shed at step %s, before %s",
                overload.step.name.lower(),
                before.name.lower(),
                extra={"used_bytes": overload.used_bytes, "bound_bytes": overload.bound_bytes},
            )
        data_path = self.data_path() if overload.step >= Step.IDLE else None
        if data_path is not None:
            self.closed += data_path.shed_idle(stalled_seconds=STALLED_SECONDS)

    def collect(self) -> Iterator[Metric]:
        """Yield memory in use, its bound, and the step of load shedding."""
        overload = self.overload
        yield GaugeMetricFamily(
            "fumarole_gateway_memory_bytes",
            "Resident memory, as last measured.",
            overload.used_bytes,
        )
        yield GaugeMetricFamily(
            "fumarole_gateway_memory_bound_bytes",
            "The memory bound; 0 for none.",
            overload.bound_bytes,
        )
        steps = GaugeMetricFamily(
            "fumarole_gateway_shedding",
            "Workers that shed load at this step.",
            labels=["step"],
        )
        entered = CounterMetricFamily(
            "fumarole_gateway_shedding_entered", "How often the step was entered.", labels=["step"]
        )
        for step in tuple(Step)[1:]:
            steps.add_metric([step.name.lower()], float(overload.step >= step))
            entered.add_metric([step.name.lower()], overload.entered[step])
        yield steps
        yield entered
        yield CounterMetricFamily(
            "fumarole_gateway_shed_connections",
            "Idle or stalled connections closed to shed load.",
            self.closed,
        )


def make_trim() -> Callable[[], None]:
    """Return a function that trims the C library's memory; it does nothing with musl."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return lambda: None
    return lambda: trim(0)
