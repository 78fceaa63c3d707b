"""Tests reports: parts are merged, and malformed or foreign parts have little effect."""

from __future__ import annotations

import pytest

from shared.reports import (
    MOST_PART_BYTES,
    MOST_SUBS,
    Activity,
    decode_activity,
    encode_report,
    merge_activities,
    rounded,
)

NOW = 1000.0


def test_reports_of_several_gateways_make_one_activity() -> None:
    parts = {
        "a": Activity(at=990.0, last_input_at=980.0, bytes_in=1, bytes_out=10, subs=("ada", "bob")),
        "b": Activity(at=970.0, last_output_at=960.0, bytes_in=2, bytes_out=20, subs=("ada",)),
    }
    whole = merge_activities(parts, ["a", "b"], NOW)
    assert whole.subs == ("ada", "bob")
    assert (whole.last_input_at, whole.last_output_at) == (980.0, 960.0)
    assert (whole.bytes_in, whole.bytes_out, whole.at) == (3, 30, 990.0)


def test_a_stopped_gateway_counts_no_connected_user() -> None:
    parts = {"gone": Activity(at=0.0, last_input_at=500.0, subs=("eve",))}
    whole = merge_activities(parts, [], NOW)
    assert whole.subs == ()
    assert whole.last_input_at == 500.0


def test_a_time_in_the_future_counts_as_now() -> None:
    parts = {"a": Activity(at=5000.0, last_input_at=5000.0)}
    assert merge_activities(parts, ["a"], NOW).last_input_at == NOW


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"x",
        b"[]",
        b'{"at":-1}',
        b'{"at":NaN}',
        b'{"at":1,"bytes_in":-1}',
        b'{"at":1,"bytes_in":99999999999999999999}',
        b'{"at":1,"subs":[""]}',
        b'{"at":1,"subs":"ada"}',
        b'{"at":1,"subs":["' + b"x" * 256 + b'"]}',
        b'{"at":1,"last_input_at":"now"}',
        b'{"at":1,"x":"' + b"x" * MOST_PART_BYTES + b'"}',
    ],
)
def test_a_malformed_activity_is_ignored(raw: bytes) -> None:
    assert decode_activity(raw) is None


def test_the_longest_written_activity_is_readable() -> None:
    subs = tuple(f"{n:0>255}" for n in range(MOST_SUBS))
    activity = Activity(at=NOW, bytes_in=1 << 62, subs=subs)
    assert decode_activity(encode_report(activity)) == activity


def test_times_are_reported_in_steps_of_ten_seconds() -> None:
    assert [rounded(time) for time in (0.0, 9.99, 10.0, 1234.5)] == [0.0, 0.0, 10.0, 1230.0]
