"""Tests that the page about workers shows the benchmark's output."""

from __future__ import annotations

import os

from benchmarks.workers import BEGIN, END, PAGE, Result, family_of, memory_mib, table_of

ROWS = [
    Result(
        workers=2,
        memory_mib=301.6,
        redis_connections=6,
        snapshot_s=3.06,
        revoked_p50_ms=2.6,
        revoked_p99_ms=9.3,
    )
]


def test_the_page_holds_the_written_table() -> None:
    _, _, rest = PAGE.read_text().partition(BEGIN)
    written, end, _ = rest.partition(END)
    assert end
    assert table_of([]) in written


def test_a_row_shows_the_measured_values() -> None:
    assert table_of(ROWS).splitlines()[-1] == "| 2 | 302 MiB | 6 | 3.1 s | 3 ms | 9 ms |"


def test_memory_is_summed_over_a_process_tree() -> None:
    pids = list(family_of(os.getpid()))
    assert pids[0] == os.getpid()
    assert memory_mib(pids[:1]) > 10
