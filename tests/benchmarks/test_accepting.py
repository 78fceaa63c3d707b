"""Tests that the comparison of ways to share a port still runs."""

from __future__ import annotations

import subprocess
import sys

import pytest

CODE = """
from benchmarks import accepting
accepting.CONNECTIONS = 40
print(accepting.measure({way!r}, pause=0.0))
"""


@pytest.mark.parametrize("way", ["one socket", "SO_REUSEPORT", "shares"])
def test_each_way_accepts_all_connections(way: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CODE.format(way=way)], capture_output=True, text=True, check=True
    )
    assert done.stdout.startswith(f"| {way} | burst |")
    shares = done.stdout.split("|")[3].split()
    assert sum(float(share.rstrip("%")) for share in shares) == pytest.approx(100, abs=2)
