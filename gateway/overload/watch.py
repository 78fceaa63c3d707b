"""Measures memory, sets the step at which load is shed, and closes what that step gives up.

It also has free memory given back to the kernel once many connections have ended: the C library
keeps what lies between pieces that are in use, twice the memory after a flood of TLS connections.
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

LOOK_SECONDS: Final = 0.25
"""A gigabit a second fills 30 MiB meanwhile; a look costs some microseconds."""
TRIM_SECONDS: Final = 10.0
"""Between two requests to the allocator to give back what is free; tidying is as rare."""
LATE_TRIM_SECONDS: Final = (30.0, 150.0)
"""After an ebb: much of what a connection leaves ends later, such as what limits know of it."""
MANY_CONNECTIONS: Final = 64
"""Fewer hold too little: they may end without a trim."""
FEW_CONNECTIONS: Final = 1000
"""With no more, all cycles are collected within some milliseconds; else those of late alone."""
STALLED_SECONDS: Final = 5.0
"""A peer that has taken nothing for so long is given up, instead of after its usual deadline."""

log = logging.getLogger(__name__)


class _Sheds(Protocol):
    """What holds the connections: the data path, as far as it is shed."""

    @property
    def open(self) -> int: ...
    def shed_idle(self, *, stalled_seconds: float) -> int: ...


@dataclass(kw_only=True, eq=False, repr=False)
class OverloadWatch(Collector):
    """Keeps *overload* true from :meth:`run` on."""

    overload: Overload
    sheds: Callable[[], _Sheds | None]
    """Returns what closes idle and stalled connections; None before there is something."""
    measure: Callable[[], int | None]
    """Returns the memory in use, None where it cannot be known."""
    trim: Callable[[], None]
    """Has free memory given back to the kernel; what stays would be taken for load."""
    tidy: Callable[[], None] = lambda: None
    """Forgets what has become of no use, every :data:`TRIM_SECONDS`."""
    closed: int = 0
    """Connections that were closed since they were idle or stalled."""
    _tidied_at: float = float("-inf")
    _trimmed_at: float = float("-inf")
    _late_trims: tuple[float, ...] = ()
    _most: int = 0
    """The most connections that were open since the last trim."""

    async def run(self) -> None:
        """Look until cancelled; without a bound, or a measure, no load is shed."""
        bounded = bool(self.overload.bound_bytes)
        if bounded and self.measure() is None:
            log.warning("memory in use cannot be read: no load is shed before it runs out")
            bounded = False
        loop = asyncio.get_running_loop()
        while True:
            now = loop.time()
            if bounded:
                self.look()
            if now - self._tidied_at >= TRIM_SECONDS:
                self._tidied_at = now
                self.tidy()
            if self.claim_trim(now):
                self._collect()
                # In a thread: it takes tens of milliseconds, and holds no lock of Python's.
                await asyncio.to_thread(self.trim)
            await asyncio.sleep(LOOK_SECONDS)

    def _collect(self) -> None:
        """Free what connections that ended have left in cycles, with the buffers that it holds.

        The collector counts objects, not their bytes, and would come by after thousands of them.
        """
        few = self._most <= FEW_CONNECTIONS
        gc.collect(2 if few else 1)

    def claim_trim(self, now: float) -> bool:
        """Say whether free memory is to be given back now; the next time is counted from here.

        That is while load is shed, once many connections have ended, and some time after that.
        """
        sheds = self.sheds()
        count = sheds.open if sheds is not None else 0
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

    def look(self) -> None:
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
        sheds = self.sheds() if overload.step >= Step.IDLE else None
        if sheds is not None:
            self.closed += sheds.shed_idle(stalled_seconds=STALLED_SECONDS)

    def collect(self) -> Iterator[Metric]:
        """Yield memory, its bound, and how far load is shed: what operators see."""
        overload = self.overload
        yield GaugeMetricFamily(
            "fumarole_gateway_memory_bytes", "Resident, as last measured.", overload.used_bytes
        )
        yield GaugeMetricFamily(
            "fumarole_gateway_memory_bound_bytes",
            "What may be used; 0 for without bound.",
            overload.bound_bytes,
        )
        steps = GaugeMetricFamily(
            "fumarole_gateway_shedding", "Workers that shed load at this step.", labels=["step"]
        )
        entered = CounterMetricFamily(
            "fumarole_gateway_shedding_entered", "Times it was entered.", labels=["step"]
        )
        for step in tuple(Step)[1:]:
            steps.add_metric([step.name.lower()], float(overload.step >= step))
            entered.add_metric([step.name.lower()], overload.entered[step])
        yield steps
        yield entered
        yield CounterMetricFamily(
            "fumarole_gateway_shed_connections",
            "Connections closed to shed load, since they were idle or stalled.",
            self.closed,
        )


def make_trim() -> Callable[[], None]:
    """Return what has the C library give free memory back; nothing where it cannot (musl)."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return lambda: None
    return lambda: trim(0)
