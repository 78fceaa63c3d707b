"""Tests two gateways behind HAProxy, restarted in turn: clients see no more than a 1001."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from benchmarks.rolling import Seen, haproxy, measure, table_of

ROOT = Path(__file__).parents[2]


@pytest.mark.long
@pytest.mark.timeout(900)
async def test_a_rolling_restart_fails_no_request(tmp_path: Path) -> None:
    try:
        program = haproxy(tmp_path / "programs")
    except OSError as error:
        pytest.skip(f"HAProxy cannot be had here: {error}")
    seen = await measure(ROOT, program, sockets=200, special=20)
    assert seen.failed == Counter()
    assert seen.requests > 100
    # Every socket was on a gateway that was restarted once; a reconnected one may get a second
    # 1001.
    assert set(seen.codes) == {1001}
    assert seen.codes[1001] >= 200
    # The closes are spread over time.
    assert max(seen.left) - min(seen.left) > 1


def test_the_table_shows_the_results() -> None:
    seen = Seen(requests=1234, codes=Counter({1001: 3}), left=[2.0, 3.0, 6.0])
    seen.back["vnc"] = [0.1, 0.2, 0.4]
    table = table_of(seen)
    assert "| requests, failed requests | 1,234, 0 |" in table
    assert "| 3 × 1001 |" in table
    assert "| 1.0 s, 4.0 s |" in table
    assert "| desktops reconnected: median, p99, last | 200 ms, 400 ms, 400 ms |" in table
    assert "terminals" not in table
