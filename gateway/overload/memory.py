"""The memory that this process uses and the limits of its control groups.

A limit applies to a group and everything within it, so the lowest one counts, from the process' own
group up to the root of the mount. Within a container the root is usually the container's own group.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Final

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
