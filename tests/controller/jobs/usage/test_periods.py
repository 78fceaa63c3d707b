"""Tests the usage ledger's arithmetic."""

from __future__ import annotations

import itertools
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from controller.jobs.usage import UsagePeriod, usage_due, used_seconds
from controller.store.jobs.progress import Attempt, PodRecord
from controller.store.outbox.usage_entries import LastEntry

PERIOD = 100.0


def attempt(ended_at: float | None = None) -> Attempt:
    return Attempt(
        attempt=1, uid="u", submitted_at=0.0, started_at=1.0, ended_at=ended_at, outcome=None,
        reason=None, message=None, retries=0,
    )  # fmt: skip


def run(start: float | None, end: float | None = None, rank: int = 0, **fields: Any) -> PodRecord:
    values: dict[str, Any] = {
        "job_id": "j1", "pod_uid": f"{rank}-{start}", "attempt": 1, "rank": rank, "task": "job",
        "index": rank, "pod": "p", "node": "n", "phase": "", "reason": "", "message": "",
        "exit_code": None, "signal": None, "seen_at": start or 0.0, "started_at": start,
        "ended_at": end,
    }  # fmt: skip
    return PodRecord(**values | fields)


def due(runs: list[PodRecord], now: float, written: dict[int, LastEntry] | None = None,
        ended_at: float | None = None) -> tuple[list[UsagePeriod], float | None]:  # fmt: skip
    return usage_due(attempt(ended_at), runs, written or {}, now=now, period_seconds=PERIOD)


def brief(entries: list[UsagePeriod]) -> list[tuple[int, int, float, bool]]:
    return [(one.rank, one.period, one.seconds, one.final) for one in entries]


def test_a_period_is_recorded_once_after_its_end() -> None:
    assert due([run(10.0)], 109.0) == ([], 110.0)
    entries, following = due([run(10.0)], 110.0)
    assert brief(entries) == [(0, 0, 100.0, False)]
    assert following == 210.0
    assert due([run(10.0)], 111.0, {0: LastEntry(0, False)}) == ([], 210.0)


def test_unobserved_periods_are_recorded_afterwards() -> None:
    entries, following = due([run(10.0)], 345.0)
    assert brief(entries) == [(0, 0, 100.0, False), (0, 1, 200.0, False), (0, 2, 300.0, False)]
    assert [one.until for one in entries] == [110.0, 210.0, 310.0]
    assert following == 410.0


def test_usage_is_recorded_to_the_last_second_and_never_after() -> None:
    entries, following = due([run(10.0, 130.0)], 500.0, ended_at=140.0)
    assert brief(entries) == [(0, 0, 100.0, False), (0, 1, 120.0, True)]
    assert following is None
    assert due([run(10.0, 130.0)], 900.0, {0: LastEntry(1, True)}, ended_at=140.0) == ([], None)


def test_run_time_after_the_decided_end_is_recorded() -> None:
    assert brief(due([run(10.0)], 50.0, ended_at=20.0)[0]) == []
    assert brief(due([run(10.0, 45.0)], 50.0, ended_at=20.0)[0]) == [(0, 0, 35.0, True)]


def test_a_late_observed_end_corrects_recorded_usage() -> None:
    # The full period was entered before the end of the program within it was observed.
    entries, _ = due([run(10.0, 109.0)], 120.0, {0: LastEntry(0, False)}, ended_at=115.0)
    assert brief(entries) == [(0, 1, 99.0, True)]


def test_usage_is_summed_per_rank() -> None:
    runs = [run(10.0, 50.0), run(60.0, 70.0), run(20.0, 25.0, rank=1)]
    assert brief(due(runs, 80.0, ended_at=75.0)[0]) == [(0, 0, 50.0, True), (1, 0, 5.0, True)]


def test_a_pod_that_never_ran_has_no_usage() -> None:
    assert due([run(None, 30.0)], 500.0, ended_at=40.0) == ([], None)
    assert due([run(10.0, 20.0, rank=-1)], 500.0, ended_at=40.0) == ([], None)
    assert used_seconds([run(50.0)], 40.0) == 0.0


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 500), st.integers(0, 700)), max_size=6),
    st.lists(st.integers(0, 3000), max_size=12).map(sorted),
)
def test_no_period_is_missing_or_doubled_at_any_observation_time(
    spans: list[tuple[int, int, int]], looks: list[int]
) -> None:
    """Whenever it is computed, each rank has periods 0, 1, …, one final, with the exact sum."""
    runs = [run(float(s), float(s + d), r, pod_uid=f"{n}") for n, (r, s, d) in enumerate(spans)]
    last_end = max((one.ended_at or 0.0 for one in runs), default=0.0)
    written: dict[int, LastEntry] = {}
    periods: dict[int, list[UsagePeriod]] = {}
    for now in [*map(float, looks), 5000.0]:
        seen = [
            PodRecord(**{n: getattr(one, n) for n in PodRecord.__slots__}
                | {"ended_at": one.ended_at if (one.ended_at or 0.0) <= now else None})
            for one in runs
            if one.started_at is not None and one.started_at <= now
        ]  # fmt: skip
        over = last_end + 1 if now > last_end else None
        for used in due(seen, now, written, ended_at=over)[0]:
            periods.setdefault(used.rank, []).append(used)
            written[used.rank] = LastEntry(used.period, used.final)
    for rank in {one.rank for one in runs}:
        own = periods[rank]
        assert [used.period for used in own] == list(range(len(own)))
        assert [used.final for used in own] == [False] * (len(own) - 1) + [True]
        total = sum((one.ended_at or 0) - (one.started_at or 0) for one in runs if one.rank == rank)
        assert own[-1].seconds == total
        assert all(a.seconds <= b.seconds for a, b in itertools.pairwise(own))
