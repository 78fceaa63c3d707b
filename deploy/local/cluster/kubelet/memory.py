"""Measures the usage of containers, and finds the container that takes too much memory.

On a real node the kernel ends a process that exceeds its container's limit (cgroups). A user who
runs this cluster may not be allowed to make cgroups. So the kubelet checks a few times a second. It
counts the memory of a cgroup that cannot be reclaimed: anonymous and shared memory, without files.
"""

import asyncio
import os
from collections.abc import Callable, Iterator
from typing import Final

from deploy.local.cluster.quantities import quantity

_PAUSE_SECONDS: Final = 0.5
_SHORT_PAUSE_SECONDS: Final = 0.1
"""The pause between checks of a container that has half of its limit."""
_MOST_PROCESSES: Final = 1000
_TICKS: Final = os.sysconf("SC_CLK_TCK")
_COUNTED: Final = (b"RssAnon:", b"RssShmem:")


class Processes:
    """The processes of a Pod, in the ``/proc`` that the Pod's first process has opened."""

    def __init__(self, proc: int) -> None:
        self._proc: int | None = proc

    def close(self) -> None:
        """Close the folder; nothing is measured any more."""
        if self._proc is not None:
            os.close(self._proc)
            self._proc = None

    def memory_of(self, pid: int) -> int:
        """Return the bytes of *pid* and its descendants. A process that ends meanwhile counts 0."""
        return sum(
            int(line.split()[1]) * 1024
            for one in self._with_descendants(pid)
            for line in self._read(f"{one}/status").splitlines()
            if line.startswith(_COUNTED)
        )

    def cpu_seconds_of(self, pid: int) -> float:
        """Return the CPU time of *pid* and its descendants, including those that have ended."""
        ticks = 0
        for one in self._with_descendants(pid):
            # proc_pid_stat(5): the name may contain anything. After it, utime to cstime are fields
            # 14 to 17.
            fields = self._read(f"{one}/stat").rpartition(b")")[2].split()
            ticks += sum(map(int, fields[11:15]))
        return ticks / _TICKS

    def _with_descendants(self, pid: int) -> Iterator[int]:
        left = [pid]
        for _ in range(_MOST_PROCESSES):
            if not left or self._proc is None:
                break
            one = left.pop()
            yield one
            for task in self._list(f"{one}/task"):
                left += map(int, self._read(f"{one}/task/{task}/children").split())

    def _read(self, path: str) -> bytes:
        try:
            with os.fdopen(os.open(path, os.O_RDONLY, dir_fd=self._proc), "rb") as file:
                return file.read()
        except OSError:
            return b""

    def _list(self, path: str) -> list[str]:
        try:
            folder = os.open(path, os.O_RDONLY | os.O_DIRECTORY, dir_fd=self._proc)
        except OSError:
            return []
        try:
            return os.listdir(folder)
        except OSError:
            return []
        finally:
            os.close(folder)


def limit_of(container: dict[str, object]) -> int | None:
    """Return the memory limit of *container* (JSON) in bytes; None without one."""
    resources = container.get("resources")
    limits = resources.get("limits") if isinstance(resources, dict) else None
    amount = limits.get("memory") if isinstance(limits, dict) else None
    return None if amount is None else int(quantity(str(amount)))


async def exceeded(held: Callable[[], int], limit: int) -> None:
    """Return once *held* returns more than *limit*."""
    while (now := held()) <= limit:  # noqa: ASYNC110 - the kernel tells nobody
        await asyncio.sleep(_SHORT_PAUSE_SECONDS if 2 * now > limit else _PAUSE_SECONDS)
