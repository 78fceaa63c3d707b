"""The state of the bus, derived from its last signs of life."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.bus_state import LOST_SECONDS, Bus, BusClock

MOMENTS = st.floats(0, 1e6, allow_nan=False)


def clock(bus_grace: float = 300, controller_grace: float = 300) -> BusClock:
    return BusClock(bus_grace_seconds=bus_grace, controller_grace_seconds=controller_grace)


def test_without_a_table_the_bus_stays_starting() -> None:
    assert clock().bus(1e9) is Bus.STARTING


def test_a_bus_is_followed_lost_and_closed_in_that_order() -> None:
    known = clock(bus_grace=300)
    known.head_confirmed(100.0)
    seen = [known.bus(at) for at in (100, 105, 105.1, 405, 405.1)]
    assert seen == [Bus.FOLLOWING, Bus.FOLLOWING, Bus.LOST, Bus.LOST, Bus.CLOSED]


def test_without_a_grace_a_lost_bus_is_closed_at_once() -> None:
    known = clock(bus_grace=0)
    known.head_confirmed(100.0)
    assert known.bus(100 + LOST_SECONDS) is Bus.FOLLOWING
    assert known.bus(100.1 + LOST_SECONDS) is Bus.CLOSED


def test_a_good_head_ends_a_closed_bus() -> None:
    known = clock(bus_grace=0)
    known.head_confirmed(100.0)
    assert known.bus(500.0) is Bus.CLOSED
    known.head_confirmed(500.0)
    assert known.bus(500.0) is Bus.FOLLOWING


def test_an_earlier_head_does_not_age_the_bus() -> None:
    known = clock()
    known.head_confirmed(100.0)
    known.head_confirmed(50.0)
    assert known.bus(104.0) is Bus.FOLLOWING


def test_only_a_followed_bus_opens_and_only_a_closed_or_unknown_one_does_not_serve() -> None:
    assert [state for state in Bus if state.opens] == [Bus.FOLLOWING]
    assert [state for state in Bus if state.serves] == [Bus.FOLLOWING, Bus.LOST]


def test_states_have_the_names_that_metrics_and_readiness_show() -> None:
    assert [state.value for state in Bus] == ["starting", "following", "lost", "closed"]


def test_a_bus_serves_until_it_is_closed_and_says_when_that_will_be() -> None:
    known = clock(bus_grace=300)
    assert not known.serves(0.0)
    assert known.closes_at() == float("inf")
    known.head_confirmed(100.0)
    assert known.closes_at() == 405.0
    assert [known.serves(at) for at in (100.0, 405.0, 405.1)] == [True, True, False]
    assert [known.bus(at).serves for at in (100.0, 405.0, 405.1)] == [True, True, False]


def test_a_process_that_missed_its_polls_was_suspended() -> None:
    known = clock()
    assert not known.was_suspended(1e9)
    known.head_polled(100.0)
    assert [known.was_suspended(at) for at in (100.0, 104.0, 104.1)] == [False, False, True]
    known.head_polled(200.0)
    assert not known.was_suspended(204.0)


@given(
    st.lists(st.tuples(st.sampled_from(("head_confirmed", "head_polled")), st.integers(0, 40))),
    st.integers(0, 40),
)
def test_a_table_is_usable_while_the_bus_serves_and_the_process_was_not_suspended(
    events: list[tuple[str, int]], now: int
) -> None:
    known = clock(bus_grace=7)
    for what, at in events:
        getattr(known, what)(float(at))
    assert (now <= known.usable_until) is (known.serves(now) and not known.was_suspended(now))


def test_a_controller_without_heartbeats_during_a_subscription_is_silent() -> None:
    known = clock(controller_grace=10)
    known.subscribed(100.0)
    assert not known.controller_silent(110.0)
    assert known.controller_silent(110.1)
    known.heartbeat_received(111.0)
    assert not known.controller_silent(111.0)


def test_time_without_a_subscription_is_not_the_controllers_silence() -> None:
    known = clock(controller_grace=10)
    known.subscribed(100.0)
    known.heartbeat_received(100.0)
    known.unsubscribed(106.0)
    assert not known.controller_silent(1000.0)
    known.subscribed(1000.0)
    assert not known.controller_silent(1004.0)
    assert known.controller_silent(1004.1)


def test_a_sign_of_life_without_a_subscription_counts_from_then() -> None:
    known = clock(controller_grace=10)
    known.subscribed(100.0)
    known.unsubscribed(106.0)
    known.heartbeat_received(110.0)
    known.subscribed(1000.0)
    assert not known.controller_silent(1010.0)
    assert known.controller_silent(1010.1)


def test_a_subscription_that_is_lost_twice_is_lost_since_the_first_time() -> None:
    known = clock(controller_grace=10)
    known.subscribed(100.0)
    known.unsubscribed(106.0)
    known.unsubscribed(500.0)
    known.subscribed(1000.0)
    assert not known.controller_silent(1004.0)
    assert known.controller_silent(1004.1)


def test_a_signed_heartbeat_dates_the_controllers_silence() -> None:
    known = clock(controller_grace=300)
    known.subscribed(0.0)
    known.head_signed(10.0)
    known.head_signed(5.0)  # an older one, repeated
    assert not known.controller_silent(310.0)
    assert known.controller_silent(310.1)
    # Neither messages nor the want of a subscription make it younger.
    known.heartbeat_received(310.0)
    known.unsubscribed(310.0)
    assert known.controller_silent(310.1)
    known.head_signed(310.1)
    assert not known.controller_silent(320.0)


def test_a_subscription_that_comes_and_goes_does_not_hide_silence() -> None:
    known = clock(controller_grace=10)
    known.subscribed(0.0)
    for at in range(1, 12):
        known.unsubscribed(at)
        known.subscribed(at)
    assert known.controller_silent(11.0)


@given(st.lists(MOMENTS, min_size=1), MOMENTS)
def test_a_bus_never_opens_later_than_five_seconds_after_its_last_good_head(
    goods: list[float], now: float
) -> None:
    known = clock()
    for at in goods:
        known.head_confirmed(at)
    if known.bus(now).opens:
        assert now - max(goods) <= LOST_SECONDS
