"""Tests the record quota: each key's first records, then counts, for a bounded number of keys."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from shared.audit import WINDOW_SECONDS, RecordQuota


def test_the_first_twenty_records_of_a_minute_are_single_and_the_rest_counted() -> None:
    quota: RecordQuota[str] = RecordQuota()
    singly = [quota.take("a", "bad", float(second)) for second in range(50)]
    assert singly == [True] * 20 + [False] * 30
    assert quota.due(59.0) == []
    (rest,) = quota.due(60.0)
    assert (rest.key, rest.count, rest.since, rest.until) == ("a", 30, 20.0, 49.0)
    assert rest.reasons == {"bad": 30}
    assert quota.due(200.0) == []
    assert quota.take("a", "bad", 61.0)


def test_an_unreported_count_is_not_lost() -> None:
    quota: RecordQuota[str] = RecordQuota(singly=1)
    assert quota.take("a", "bad", 0.0)
    assert not quota.take("a", "bad", 1.0)
    assert not quota.take("a", "worse", 100.0)
    (rest,) = quota.due(100.0)
    assert rest.reasons == {"bad": 1, "worse": 1}
    assert quota.take("a", "bad", 100.0)


def test_keys_beyond_the_maximum_share_one_count() -> None:
    quota: RecordQuota[int] = RecordQuota(most_keys=3)
    assert [quota.take(key, "bad", 0.0) for key in range(10)] == [True] * 3 + [False] * 7
    assert len(quota) == 3
    (rest,) = quota.flush()
    assert (rest.key, rest.count) == (None, 7)


def test_a_flood_of_all_keys_together_is_counted_by_key() -> None:
    quota: RecordQuota[int] = RecordQuota(of_all=5)
    assert sum(quota.take(key % 4, "bad", 0.0) for key in range(40)) == 5
    assert sum(one.count for one in quota.flush()) == 35


@given(
    events=st.lists(st.tuples(st.integers(0, 5), st.floats(0, 30), st.booleans()), max_size=200),
    most_keys=st.integers(1, 6),
)
@settings(max_examples=200, deadline=None)
def test_every_event_is_recorded_once_in_a_bounded_number_of_lines(
    events: list[tuple[int, float, bool]], most_keys: int
) -> None:
    quota: RecordQuota[int] = RecordQuota(singly=3, most_keys=most_keys, of_all=10)
    now, single, counted, lines = 0.0, 0, 0, 0
    for key, pause, looks in events:
        now += pause
        single += quota.take(key, "bad", now)
        if looks:
            found = quota.due(now)
            lines += len(found)
            counted += sum(one.count for one in found)
        assert len(quota) <= most_keys
    rest = quota.flush()
    assert single + counted + sum(one.count for one in rest) == len(events)
    windows = now // WINDOW_SECONDS + 1
    assert single <= 10 * windows
    assert lines <= (most_keys + 1) * windows
