"""What this process uses of memory and what it may use, as the kernel says."""

from __future__ import annotations

import os
from pathlib import Path, PurePosixPath
from typing import Final

from gateway.core.limits.cgroups import limit_files, read_groups, read_limit, read_mounts

_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE")
_ROOT: Final = Path("/")


def memory_limit(root: Path = _ROOT) -> int | None:
    """Return what the control groups of this process allow all of it, in bytes.

    None where there is no limit, or none that can be read: a system without control groups, a
    container without ``/proc`` or ``/sys``. *root* is where these are.
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
    """Return how many bytes a worker may use; 0 for any number.

    Args:
        setting: What was set for each worker, 0 for without bound; None for its share of *limit*.
        workers: How many share it. Several have a supervisor beside them, which takes one share.
        limit: Of all of them together.
    """
    if setting is not None:
        return setting
    return (limit or 0) // (workers if workers == 1 else workers + 1)


class ResidentMemory:
    """Reads the resident memory of this process; close it when it is not asked any more."""

    def __init__(self, root: Path = _ROOT) -> None:
        try:
            self._file = os.open(root / "proc/self/statm", os.O_RDONLY | os.O_CLOEXEC)
        except OSError:
            self._file = -1

    def read(self) -> int | None:
        """Return it in bytes; None where it cannot be read."""
        if self._file < 0:
            return None
        try:
            return int(os.pread(self._file, 256, 0).split()[1]) * _PAGE_BYTES
        except (OSError, ValueError, IndexError):
            return None

    def close(self) -> None:
        """Read no more."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
