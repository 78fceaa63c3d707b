"""Tests the send window: how far the hub sends ahead of what a client acknowledged."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from controller.hub.window import LEAST_BYTES, MOST_BYTES, SendWindow

STEP = 64 * 1024


def shown_at(rate: float, *, seconds: float = 3.0) -> SendWindow:
    """Return the window of a client that acknowledges *rate* bytes a second, in steps."""
    window = SendWindow()
    for number in range(int(rate * seconds / STEP) + 1):
        window.acknowledge(number * STEP, sent=1 << 40, now=number * STEP / rate)
    return window


def test_a_client_without_acknowledgements_has_no_window_limit() -> None:
    assert not SendWindow().is_full(1 << 40)


def test_the_window_is_half_a_second_of_output_within_limits() -> None:
    assert shown_at(10e3, seconds=30).size() == LEAST_BYTES
    assert 500_000 <= shown_at(1e6).size() <= 500_000 + 2 * STEP
    assert shown_at(50e6).size() == MOST_BYTES


def test_a_client_with_a_short_round_trip_gets_the_whole_window_within_a_second() -> None:
    window, shown, now = SendWindow(), 0, 100.0
    window.acknowledge(0, sent=0, now=now)
    while now < 101.0:  # each round trip, the client acknowledges the whole window
        now += 0.1
        shown += window.size()
        window.acknowledge(shown, sent=shown, now=now)
    assert window.size() == MOST_BYTES


def test_the_window_of_a_client_that_becomes_slow_shrinks() -> None:
    window = shown_at(50e6, seconds=1)
    shown = window.acknowledged
    assert shown is not None
    for number in range(1, 20):
        window.acknowledge(shown + number * STEP, sent=1 << 40, now=1.0 + number * 0.3)
    assert window.size() <= 2 * STEP


def test_discarded_output_does_not_enlarge_the_window() -> None:
    window = shown_at(100e3)
    shown = window.acknowledged
    assert shown is not None
    window.leave_out(shown + 8_000_000, 8_000_000)
    window.acknowledge(shown + 8_000_000, sent=1 << 40, now=3.5)
    assert window.size() == LEAST_BYTES


def test_an_acknowledgement_neither_regresses_nor_exceeds_the_sent_offset() -> None:
    window = SendWindow()
    window.acknowledge(50, sent=100, now=0)
    assert window.acknowledged == 50
    window.acknowledge(10, sent=100, now=1)
    assert window.acknowledged == 50
    window.acknowledge(10**15, sent=100, now=2)
    assert window.acknowledged == 100
    window.acknowledge(-5, sent=100, now=3)
    assert window.acknowledged == 100


@given(st.lists(st.tuples(st.integers(-10, 1 << 24), st.floats(0, 0.01)), max_size=300))
def test_frequent_acknowledgements_use_bounded_memory(
    acknowledged: list[tuple[int, float]],
) -> None:
    window, sent, now = SendWindow(), 0, 0.0
    for offset, later in acknowledged:
        now += later
        sent += 1000
        window.leave_out(sent, 10)
        window.acknowledge(offset, sent=sent, now=now)
        assert LEAST_BYTES <= window.size() <= MOST_BYTES
        assert len(window._past) <= 24
