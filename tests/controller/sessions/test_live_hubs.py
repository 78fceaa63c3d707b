"""Tests which hubs are alive when clocks jump or differ."""

from __future__ import annotations

import pytest

from controller.sessions.snapshot import LiveHubs
from controller.store.instance import ALIVE_SECONDS, Heartbeat, Hub
from tests.clock import Clock

HUB = Hub(id="h1", host="10.0.0.1", port=8082)


def beat(at: float) -> list[Heartbeat]:
    """Return the store's heartbeats: one, by the hub's clock."""
    return [Heartbeat(hub=HUB, seen_at=at)]


@pytest.fixture
def steady() -> Clock:
    return Clock(50.0)


@pytest.fixture
def live(steady: Clock) -> LiveHubs:
    return LiveHubs(steady)


def test_a_hub_without_a_new_heartbeat_for_ten_seconds_is_dead(
    live: LiveHubs, steady: Clock
) -> None:
    assert live.observe(beat(1000.0)) == {"h1": HUB}
    for _ in range(4):
        steady.now += 2.0
        assert live.observe(beat(1000.0))
    steady.now += 1.5
    assert live.observe(beat(1000.0))
    steady.now += 0.5
    assert not live.observe(beat(1000.0))
    assert live.observe(beat(1012.0))
    assert not live.observe([])


@pytest.mark.parametrize("jump", [600.0, -600.0])
def test_a_hubs_clock_that_jumps_kills_no_hub(live: LiveHubs, steady: Clock, jump: float) -> None:
    assert live.observe(beat(1000.0))
    for second in range(2, 30, 2):
        steady.now += 2.0
        assert live.observe(beat(1000.0 + second + jump))
        assert live.observe(beat(1000.0 + second + jump))


def test_a_leader_that_begins_waits_ten_seconds_for_a_heartbeat(
    live: LiveHubs, steady: Clock
) -> None:
    """The heartbeat may be old only because the hub's clock is behind."""
    assert live.observe(beat(0.0))
    for _ in range(4):
        steady.now += 2.0
        assert live.observe(beat(0.0))
    steady.now += 1.9
    assert live.observe(beat(2.0))
    for _ in range(5):
        steady.now += 2.0
        alive = live.observe(beat(2.0))
    assert not alive


def test_an_outage_of_the_store_kills_no_hub(live: LiveHubs, steady: Clock) -> None:
    assert live.observe(beat(1000.0))
    steady.now += 2.0
    assert live.observe(beat(1000.0))
    steady.now += 60.0
    # The leader reads the store again before the hub has written to it again.
    assert live.observe(beat(1000.0))
    steady.now += 4.0
    assert live.observe(beat(1066.0))


@pytest.mark.parametrize("pace", [ALIVE_SECONDS / 2, ALIVE_SECONDS, 60.0])
def test_a_dead_hub_is_noticed_however_slow_the_store_is(
    live: LiveHubs, steady: Clock, pace: float
) -> None:
    for _ in range(5):
        assert live.observe(beat(1000.0))
        steady.now += pace
    assert not live.observe(beat(1000.0))
