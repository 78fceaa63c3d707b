"""What a process' control groups allow it: texts of the kernel in, paths and numbers out.

A limit holds for a group and for all within it, so the least from the process' own group up to
the root of what is mounted counts. Within a container the root is usually the container's own.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

LIMIT_FILE: Final = {1: "memory.limit_in_bytes", 2: "memory.max"}
_UNLIMITED: Final = 1 << 60
"""Version 1 says that there is no limit by a number near 2**63."""
_OCTAL: Final = re.compile(r"\\([0-7]{3})")


@dataclass(frozen=True, slots=True)
class Mount:
    """Where a hierarchy of groups with memory limits is mounted."""

    version: int
    root: PurePosixPath
    """The group that the mount shows as its root."""
    point: PurePosixPath


def read_mounts(mountinfo: str) -> list[Mount]:
    """Return the mounts that may hold memory limits: of ``/proc/self/mountinfo`` (proc(5))."""
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
    """Return the process' group of each version: of ``/proc/self/cgroup`` (cgroups(7))."""
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

    A group outside of the mount, as an older container sees it, is taken for the mount's root.
    """
    inside = group.relative_to(mount.root) if group.is_relative_to(mount.root) else None
    here = mount.point if inside is None or ".." in inside.parts else mount.point / inside
    while True:
        yield here / LIMIT_FILE[mount.version]
        if here == mount.point:
            return
        here = here.parent


def read_limit(text: str) -> int | None:
    """Return the limit that a file says, in bytes; None for none."""
    try:
        limit = int(text)
    except ValueError:  # "max"
        return None
    return limit if 0 < limit < _UNLIMITED else None


def _path(text: str) -> PurePosixPath:
    return PurePosixPath(_OCTAL.sub(lambda match: chr(int(match[1], 8)), text))
