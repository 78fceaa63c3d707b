"""Tests the benchmark of the gateway's hot path: its requests, its handshakes, and its times."""

from __future__ import annotations

import pytest

from benchmarks.hot_path import make_bench, microseconds


@pytest.mark.parametrize("varied", [False, True])
async def test_requests_go_through_and_are_counted(varied: bool) -> None:
    bench = await make_bench()
    await bench.get(varied=varied, times=5)
    assert bench.path.meters.answers[2] == 6
    assert bench.path.meters.dials == 1


async def test_every_handshake_ends_as_a_tunnel() -> None:
    bench = await make_bench()
    await bench.handshake(3)
    assert bench.path.meters.tunnels == 3
    assert len(bench.path.live) == 0


async def test_a_measured_cost_is_positive() -> None:
    async def work(times: int) -> None:
        for _ in range(times * 100):
            pass

    assert await microseconds(work, 1000) > 0
