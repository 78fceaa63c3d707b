from __future__ import annotations

import mmap
from pathlib import Path

import pytest

from gateway.overload import ResidentMemory, memory_limit, worker_bound

MIB = 1 << 20
V2 = "30 23 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
V1 = "32 23 0:28 / /sys/fs/cgroup/memory ro - cgroup cgroup rw,memory\n"
TOP = {"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": V2}


def system(root: Path, files: dict[str, str]) -> Path:
    """Create the files that a kernel would show below *root*."""
    for name, text in files.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


@pytest.mark.parametrize(
    ("files", "limit"),
    [
        (TOP | {"sys/fs/cgroup/memory.max": "512\n"}, 512),
        (TOP | {"sys/fs/cgroup/memory.max": "max\n"}, None),
        (
            {
                "proc/self/cgroup": "0::/pod/c1\n", "proc/self/mountinfo": V2,
                "sys/fs/cgroup/pod/c1/memory.max": "max\n", "sys/fs/cgroup/pod/memory.max": "700\n",
            },
            700,
        ),
        (
            {
                "proc/self/cgroup": "0::/pod/c1\n", "proc/self/mountinfo": V2,
                "sys/fs/cgroup/pod/c1/memory.max": "300\n", "sys/fs/cgroup/pod/memory.max": "700\n",
            },
            300,
        ),
        (
            {
                "proc/self/cgroup": "5:memory:/d/c1\n0::/\n", "proc/self/mountinfo": V1 + V2,
                "sys/fs/cgroup/memory/d/c1/memory.limit_in_bytes": "900\n",
                "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712\n",
            },
            900,
        ),
        ({"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": V2}, None),
        ({"proc/self/cgroup": "", "proc/self/mountinfo": V2}, None),
        ({"proc/self/cgroup": "0::/\n"}, None),
        ({}, None),
    ],
)  # fmt: skip
def test_the_least_limit_that_can_be_read_counts(
    tmp_path: Path, files: dict[str, str], limit: int | None
) -> None:
    assert memory_limit(system(tmp_path, files)) == limit


def test_the_memory_of_this_system_can_be_read() -> None:
    limit = memory_limit()
    assert limit is None or limit > 16 * MIB


@pytest.mark.parametrize(
    ("setting", "workers", "limit", "bound"),
    [
        (None, 1, 512 * MIB, 512 * MIB), (None, 3, 512 * MIB, 128 * MIB), (None, 4, None, 0),
        (100 * MIB, 4, 512 * MIB, 100 * MIB), (0, 1, 512 * MIB, 0),
    ],
)  # fmt: skip
def test_a_workers_bound_is_its_share_or_the_setting(
    setting: int | None, workers: int, limit: int | None, bound: int
) -> None:
    assert worker_bound(setting, workers=workers, limit=limit) == bound


def test_resident_memory_grows_with_allocations() -> None:
    memory = ResidentMemory()
    before = memory.read()
    # Mapped anew: what earlier tests have freed may be handed out again without growing.
    with mmap.mmap(-1, 32 * MIB) as held:
        held.write(b"x" * (32 * MIB))
        after = memory.read()
    assert before is not None
    assert after is not None
    assert after - before > 16 * MIB
    memory.close()
    memory.close()
    assert memory.read() is None


@pytest.mark.parametrize("text", [None, "", "x y z", "7"])
def test_unreadable_resident_memory_is_unknown(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        system(tmp_path, {"proc/self/statm": text})
    memory = ResidentMemory(tmp_path)
    assert memory.read() is None
    memory.close()
