"""Tests the measurement of processes, and medians and percentiles."""

from __future__ import annotations

import os
import subprocess
import sys
import time

import pytest

from benchmarks.measure import (
    cpu_seconds,
    descriptors,
    median,
    parse_stat,
    percentile,
    private_bytes,
    processes_of,
)

TICK = 1 / os.sysconf("SC_CLK_TCK")


def test_the_process_statistics_are_read_for_any_program_name() -> None:
    rest = "S 1 77 77 0 -1 4194304 1 0 0 0 250 50 30 20 20 0 1 0 5 0 0"
    stat = parse_stat(f"42 (a) b (c) {rest}")
    assert (stat.pid, stat.group) == (42, 77)
    assert stat.cpu_seconds == pytest.approx(350 * TICK)


def test_cpu_time_of_an_ended_child_still_counts() -> None:
    burn = (
        "import os, time\nif os.fork():\n os.wait()\n time.sleep(60)\n"
        "while time.process_time() < 0.3: pass"
    )
    parent = subprocess.Popen([sys.executable, "-c", burn], start_new_session=True)
    try:
        while len(processes_of(parent.pid)) < 2:
            assert parent.poll() is None
        while len(processes_of(parent.pid)) > 1:
            assert parent.poll() is None
        assert cpu_seconds(parent.pid) >= 0.28
    finally:
        os.killpg(parent.pid, 9)
        parent.wait()


def test_a_group_is_measured_with_its_children() -> None:
    burn = "import os\nif os.fork(): os.wait()\nelse:\n while True: pass"
    child = subprocess.Popen([sys.executable, "-c", burn], start_new_session=True)
    try:
        while cpu_seconds(child.pid) < 0.2:
            assert child.poll() is None
            time.sleep(0.01)
        assert private_bytes(child.pid) > 1 << 20
        assert descriptors(child.pid) >= 6
    finally:
        os.killpg(child.pid, 9)
        child.wait()


@pytest.mark.parametrize(
    ("values", "middle"), [([3.0], 3.0), ([5.0, 1.0, 2.0], 2.0), ([4.0, 1.0, 2.0, 9.0], 3.0)]
)
def test_the_median_is_the_middle_value(values: list[float], middle: float) -> None:
    assert median(values) == middle


@pytest.mark.parametrize(
    ("part", "value"), [(0.0, 1), (0.5, 50), (0.99, 99), (0.991, 100), (1.0, 100)]
)
def test_a_percentile_is_a_measured_value(part: float, value: int) -> None:
    assert percentile([float(n) for n in range(100, 0, -1)], part) == value


def test_a_missing_measurement_is_not_zero() -> None:
    with pytest.raises(ValueError, match="nothing"):
        median([])
    with pytest.raises(ValueError, match="nothing"):
        percentile([], 0.5)
