"""Load shedding near the memory bound: it measures memory, sets the step, and closes connections.

:mod:`gateway.core.limits.overload` has the steps. The data path reads the step with every
connection and request. Free memory is also returned to the kernel after many connections have
ended, or routes were removed. The C library keeps memory between pieces that are in use: twice the
memory after a flood of TLS connections, and 2 KiB for each long route that was removed.

A memory limit applies to a control group and everything within it, so the lowest one counts, from
the process' own group up to the root of the mount. Within a container the root is usually the
container's own group.
"""

from __future__ import annotations

import asyncio
import ctypes
import gc
import logging
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from gateway.core.limits.buffer_shares import client_share
from gateway.core.limits.overload import Overload, Step
from gateway.relay.gateway import DataPath

MEASURE_SECONDS: Final = 0.25
"""A gigabit a second fills 30 MiB in this time; a measurement takes microseconds."""
COUNTED_PER_SECOND: Final = 16_000
"""Connections whose buffers are counted while memory does not grow: they take 5 % of a core."""
GROWTH: Final = 128
"""Memory that has grown by this part of its bound is a reason to count at once."""
TRIM_SECONDS: Final = 10.0
"""The minimum interval between two trims, and between two calls of *tidy*."""
SHED_TRIM_SECONDS: Final = 0.5
"""After connections were ended for their buffers, which are free by then: memory that is not
returned would still count, and the next step would close the gateway to visitors."""
LATE_TRIM_SECONDS: Final = (30.0, 150.0)
"""After many connections have ended: some of their state, such as rate limits, expires later."""
MANY_CONNECTIONS: Final = 64
"""Fewer hold too little memory for a trim."""
MANY_ROUTES: Final = 10_000
"""The same for routes of which the table has lost so many."""
FEW_CONNECTIONS: Final = 1000
"""Up to this number a full garbage collection takes some milliseconds; above it only young objects
are collected."""
STALLED_SECONDS: Final = 5.0
"""While load is shed, a peer that reads nothing is given up after this time and not after its usual
deadline."""

log = logging.getLogger(__name__)


@dataclass(kw_only=True, eq=False, repr=False)
class OverloadWatch(Collector):
    """Keeps *overload* up to date from :meth:`run` on."""

    overload: Overload
    data_path: DataPath
    measure: Callable[[], int | None]
    """Returns the memory in use; None if unknown."""
    trim: Callable[[], None]
    """Returns free memory to the kernel; what stays would count as load."""
    tidy: Callable[[], None] = lambda: None
    """Forgets expired state, every :data:`TRIM_SECONDS`."""
    routes: Callable[[], int] = lambda: 0
    """Returns the number of routes."""
    closed: int = 0
    """The number of connections closed: idle, stalled, or of a client that buffers too much."""
    _tidied_at: float = float("-inf")
    _trimmed_at: float = float("-inf")
    _count_at: float = float("-inf")
    """When buffers are counted again if memory does not grow."""
    _counted_bytes: int = 0
    """The least memory in use since they were counted last."""
    _late_trims: tuple[float, ...] = ()
    _shed_trim: float = float("inf")
    """When the buffers of ended connections are free."""
    _most: int = 0
    """The highest number of open connections since the last trim."""
    _most_routes: int = 0

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
                await self.shed_buffers(now)
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

        That is the case while load is shed, after many connections have ended or routes were
        removed, and some time later.
        """
        count, routes = self.data_path.open, self.routes()
        self._most, self._most_routes = max(self._most, count), max(self._most_routes, routes)
        has_ebbed = _ebbed(self._most - count, self._most, MANY_CONNECTIONS)
        has_ebbed |= _ebbed(self._most_routes - routes, self._most_routes, MANY_ROUTES)
        is_shed = now >= self._shed_trim
        is_late = bool(self._late_trims) and now >= self._late_trims[0]
        wanted = has_ebbed or is_late or self.overload.step
        is_soon = now - self._trimmed_at < TRIM_SECONDS
        if not is_shed and (is_soon or not wanted):
            return False
        if has_ebbed:
            self._late_trims = tuple(now + seconds for seconds in LATE_TRIM_SECONDS)
        elif is_late:
            self._late_trims = self._late_trims[1:]
        self._trimmed_at, self._shed_trim = now, float("inf")
        self._most, self._most_routes = count, routes
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
        if overload.step >= Step.IDLE:
            self.closed += self.data_path.shed_idle(stalled_seconds=STALLED_SECONDS)

    async def shed_buffers(self, now: float) -> None:
        """End connections of clients that buffer too much, while that is a step of the load.

        The more connections there are, the more seldom they are counted, unless memory grows.
        """
        overload = self.overload
        self._counted_bytes = min(self._counted_bytes, overload.used_bytes)
        growth = overload.used_bytes - self._counted_bytes
        is_due = now >= self._count_at or growth * GROWTH >= overload.bound_bytes
        if overload.step < Step.BUFFERS or not is_due:
            return
        self._counted_bytes = overload.used_bytes
        self._count_at = now + self.data_path.open / COUNTED_PER_SECOND
        share = client_share(overload.bound_bytes, overload.step)
        ended = await self.data_path.shed_buffers(share)
        self.closed += ended
        if ended:
            self._shed_trim = min(self._shed_trim, now + SHED_TRIM_SECONDS)

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
            "Connections closed to shed load: idle, stalled, or of a client that buffers too much.",
            self.closed,
        )


def _ebbed(gone: int, of: int, many: int) -> bool:
    return gone >= max(many, of // 4)


def make_trim() -> Callable[[], None]:
    """Return a function that trims the C library's memory; it does nothing with musl."""
    try:
        trim = ctypes.CDLL(None).malloc_trim
    except (OSError, AttributeError):
        return lambda: None
    return lambda: trim(0)


# Memory in use, and the limits of the control groups

LIMIT_FILE: Final = {1: "memory.limit_in_bytes", 2: "memory.max"}
_UNLIMITED: Final = 1 << 60
"""Version 1 expresses "no limit" as a number near 2**63."""
_OCTAL: Final = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """The mount of a control-group hierarchy with memory limits."""

    version: int
    root: PurePosixPath
    """The group that the mount shows as its root."""
    point: PurePosixPath


def read_mounts(mountinfo: str) -> list[Mount]:
    """Return the mounts in ``/proc/self/mountinfo`` that may hold memory limits (proc(5))."""
    found = []
    for line in mountinfo.splitlines():
        left, dash, right = line.partition(" - ")
        fields, kind = left.split(), right.split()
        if not dash or len(fields) < 5 or len(kind) < 3:
            continue
        version = {"cgroup": 1, "cgroup2": 2}.get(kind[0])
        if version == 2 or (version == 1 and "memory" in kind[2].split(",")):
            found.append(Mount(version, _path(fields[3]), _path(fields[4])))
    return found


def read_groups(cgroup: str) -> dict[int, PurePosixPath]:
    """Return the process' group of each version, from ``/proc/self/cgroup`` (cgroups(7))."""
    found = {}
    for line in cgroup.splitlines():
        number, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if number == "0" and not controllers:
            found[2] = PurePosixPath(path)
        elif "memory" in controllers.split(","):
            found[1] = PurePosixPath(path)
    return found


def limit_files(mount: Mount, group: PurePosixPath) -> Iterator[PurePosixPath]:
    """Yield the files that limit *group*, from its own up to the root of *mount*.

    A group outside of the mount, as in an older container, counts as the mount's root.
    """
    inside = group.relative_to(mount.root) if group.is_relative_to(mount.root) else None
    here = mount.point if inside is None or ".." in inside.parts else mount.point / inside
    while True:
        yield here / LIMIT_FILE[mount.version]
        if here == mount.point:
            return
        here = here.parent


def read_limit(text: str) -> int | None:
    """Return the limit in a file, in bytes; None for no limit."""
    try:
        limit = int(text)
    except ValueError:  # "max"
        return None
    return limit if 0 < limit < _UNLIMITED else None


def _path(text: str) -> PurePosixPath:
    return PurePosixPath(_OCTAL.sub(lambda match: chr(int(match[1], 8)), text))


_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_ROOT: Final = Path("/")


def memory_limit(root: Path = _ROOT) -> int | None:
    """Return the memory limit of this process' control groups, in bytes.

    None without a readable limit: a system without control groups, a container without ``/proc`` or
    ``/sys``. *root* is the folder that contains them.
    """
    try:
        groups = read_groups((root / "proc/self/cgroup").read_text())
        mounts = read_mounts((root / "proc/self/mountinfo").read_text())
    except (OSError, ValueError):
        return None
    files = [
        file
        for mount in mounts
        if mount.version in groups
        for file in limit_files(mount, groups[mount.version])
    ]
    limits = [_limit_in(root, file) for file in files]
    return min((limit for limit in limits if limit is not None), default=None)


def _limit_in(root: Path, file: PurePosixPath) -> int | None:
    try:
        return read_limit((root / str(file).lstrip("/")).read_text())
    except (OSError, ValueError):
        return None


def worker_bound(setting: int | None, *, workers: int, limit: int | None) -> int:
    """Return how many bytes a worker may use; 0 for unlimited.

    Args:
        setting: The setting for each worker, 0 for unlimited; None for its share of *limit*.
        workers: How many share it. Several workers have a supervisor, which takes one share.
        limit: The limit of all of them together.
    """
    if setting is not None:
        return setting
    return (limit or 0) // (workers if workers == 1 else workers + 1)


class ResidentMemory:
    """Reads the resident memory of this process; the owner closes it."""

    def __init__(self, root: Path = _ROOT) -> None:
        try:
            self._file = os.open(root / "proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = -1

    def read(self) -> int | None:
        """Return it in bytes; None if it cannot be read."""
        if self._file < 0:
            return None
        try:
            return int(os.pread(self._file, 256, 0).split()[1]) * _PAGE_BYTES
        except (OSError, ValueError, IndexError):
            return None

    def close(self) -> None:
        """Close the file."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
