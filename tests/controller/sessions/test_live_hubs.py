"""Tests which hubs are alive when clocks jump or differ."""

from __future__ import annotations

import pytest

from controller.sessions.live_hubs import LiveHubs
from controller.store.instance import ALIVE_SECONDS, Heartbeat, Hub
from tests.clock import Clock

HUB = Hub(id="h1", host="10.0.0.1", port=8082)


def beat(at: float) -> list[Heartbeat]:
    """Return the store's heartbeats: one, by the hub's clock."""
    return [Heartbeat(hub=HUB, seen_at=at)]


def test_a_hub_without_a_new_heartbeat_for_ten_seconds_is_dead() -> None:
    steady = Clock(50.0)
    live = LiveHubs(steady)
    assert live.observe(beat(1000.0), now=1001.0) == {"h1": HUB}
    for _ in range(4):
        steady.now += 2.0
        assert live.observe(beat(1000.0), now=1009.0)
    steady.now += 0.5
    assert live.observe(beat(1000.0), now=1009.5)
    steady.now += 1.0
    assert not live.observe(beat(1000.0), now=1010.5)
    assert live.observe(beat(1012.0), now=1012.0)
    assert not live.observe([], now=1013.0)


@pytest.mark.parametrize("jump", [600.0, -600.0])
def test_a_clock_that_jumps_kills_no_hub(jump: float) -> None:
    steady = Clock(50.0)
    live = LiveHubs(steady)
    assert live.observe(beat(1000.0), now=1000.0)
    for second in range(2, 30, 2):
        steady.now += 2.0
        assert live.observe(beat(1000.0 + second), now=1000.0 + second + jump)
        assert live.observe(beat(1000.0 + second), now=1000.0 + second + jump)


@pytest.mark.parametrize("ahead", [600.0, -600.0])
def test_a_hub_whose_clock_is_wrong_dies_in_ten_seconds_too(ahead: float) -> None:
    steady = Clock(50.0)
    live = LiveHubs(steady)
    live.observe([], now=1000.0)
    assert live.observe(beat(1000.0 + ahead), now=1000.0)
    for _ in range(5):
        steady.now += ALIVE_SECONDS / 5
        alive = live.observe(beat(1000.0 + ahead), now=1010.0)
    assert not alive


def test_a_heartbeat_from_before_the_first_look_is_judged_by_its_age() -> None:
    assert not LiveHubs(Clock(50.0)).observe(beat(1000.0), now=1000.0 + ALIVE_SECONDS)
    assert LiveHubs(Clock(50.0)).observe(beat(1600.0), now=1000.0)


def test_an_outage_of_the_store_kills_no_hub() -> None:
    steady = Clock(50.0)
    live = LiveHubs(steady)
    assert live.observe(beat(1000.0), now=1000.0)
    steady.now += 60.0
    # The leader reads the store again before the hub has written to it again.
    assert live.observe(beat(1000.0), now=1060.0)
    steady.now += 2.0
    assert live.observe(beat(1062.0), now=1062.0)
    for _ in range(5):
        steady.now += 2.0
        alive = live.observe(beat(1062.0), now=1072.0)
    assert not alive
