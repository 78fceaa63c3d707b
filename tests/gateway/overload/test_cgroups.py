from __future__ import annotations

from pathlib import PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.overload import Mount, limit_files, read_groups, read_limit, read_mounts

V2 = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw,nsdelegate\n"
V1 = (
    "31 23 0:27 /docker/c1 /sys/fs/cgroup/cpu ro - cgroup cgroup rw,cpu,cpuacct\n"
    "32 23 0:28 /docker/c1 /sys/fs/cgroup/memory ro master:9 - cgroup cgroup rw,memory\n"
)


def path(text: str) -> PurePosixPath:
    return PurePosixPath(text)


def test_mounts_that_hold_memory_limits_are_found() -> None:
    other = "22 1 8:1 / / rw - ext4 /dev/sda1 rw\nnot a mount\n\n"
    assert read_mounts(other + V2 + V1) == [
        Mount(2, path("/"), path("/sys/fs/cgroup")),
        Mount(1, path("/docker/c1"), path("/sys/fs/cgroup/memory")),
    ]
    spaced = "30 23 0:26 / /sys/fs/my\\040groups rw - cgroup2 none rw\n"
    assert read_mounts(spaced)[0].point == path("/sys/fs/my groups")


def test_the_groups_of_both_versions_are_found() -> None:
    assert read_groups("0::/kubepods/pod1/c1\n") == {2: path("/kubepods/pod1/c1")}
    both = "12:memory:/docker/c1\n11:cpu,cpuacct:/docker/c1\n1:name=systemd:/x\n0::/system.slice\n"
    assert read_groups(both) == {1: path("/docker/c1"), 2: path("/system.slice")}
    assert read_groups("") == {}


@pytest.mark.parametrize(
    ("mount", "group", "files"),
    [
        (Mount(2, path("/"), path("/c")), "/", ["/c/memory.max"]),
        (
            Mount(2, path("/"), path("/c")),
            "/a/b",
            ["/c/a/b/memory.max", "/c/a/memory.max", "/c/memory.max"],
        ),
        (Mount(1, path("/docker/c1"), path("/m")), "/docker/c1", ["/m/memory.limit_in_bytes"]),
        (
            Mount(2, path("/docker/c1"), path("/m")),
            "/docker/c1/x",
            ["/m/x/memory.max", "/m/memory.max"],
        ),
        (Mount(2, path("/docker/c1"), path("/m")), "/elsewhere", ["/m/memory.max"]),
        (Mount(2, path("/"), path("/c")), "/../outside", ["/c/memory.max"]),
    ],
)  # fmt: skip
def test_every_group_up_to_the_root_of_the_mount_limits(
    mount: Mount, group: str, files: list[str]
) -> None:
    assert [str(file) for file in limit_files(mount, path(group))] == files


@pytest.mark.parametrize(
    ("text", "limit"),
    [
        ("max\n", None), ("536870912\n", 536870912), ("9223372036854771712\n", None), ("", None),
        ("0\n", None), ("-1\n", None), ("soon", None),
    ],
)  # fmt: skip
def test_limits(text: str, limit: int | None) -> None:
    assert read_limit(text) == limit


@given(st.text(), st.text())
def test_any_kernel_text_is_parsed_without_error(mountinfo: str, cgroup: str) -> None:
    groups = read_groups(cgroup)
    for mount in read_mounts(mountinfo):
        for group in groups.values():
            assert list(limit_files(mount, group))
    read_limit(cgroup)
