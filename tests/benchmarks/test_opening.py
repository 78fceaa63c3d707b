"""Tests the benchmark that opens and closes WebSockets."""

from __future__ import annotations

import pytest

from benchmarks.opening import AT_ONCE, make_bench, microseconds


@pytest.mark.parametrize("bare", [False, True])
async def test_every_websocket_is_opened_and_closed(bare: bool) -> None:
    bench = await make_bench(bare=bare)
    assert await microseconds(bench, times=AT_ONCE * 2, rounds=1) > 0
    await bench.close()
    assert bench.visitors.returncode == 0
    if bench.path is not None:
        assert bench.path.meters.tunnels == AT_ONCE * 2
