"""Mount points that several containers make at the same moment."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from deploy.local.cluster.kubelet import sandbox


@pytest.mark.parametrize("folder", [True, False])
def test_containers_that_start_together_share_mount_points_in_a_volume(
    folder: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def open_up(of: str) -> None:
        raise AssertionError(f"{of} is replaced by a folder of one Pod")

    monkeypatch.setattr(sandbox, "_open_up", open_up)
    containers = 4
    together = threading.Barrier(containers)

    def start(_: int) -> None:
        for number in range(40):
            together.wait(10)
            sandbox._make_room(str(tmp_path), str(tmp_path / f"{number}/point"), folder=folder)

    with ThreadPoolExecutor(containers) as pool:
        list(pool.map(start, range(containers)))
    points = [tmp_path / f"{number}/point" for number in range(40)]
    assert all(point.is_dir() if folder else point.is_file() for point in points)
