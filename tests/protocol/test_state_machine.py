"""Tests publisher, channel and followers under every fault, in any order, against the truth."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tests.protocol.world import World

NUMBERS = st.integers(min_value=1, max_value=6)
WHICH = st.integers(min_value=0, max_value=1)


class Protocol(RuleBasedStateMachine):
    """The operations of the controller, and the faults; :class:`World` checks the invariants."""

    world: World

    @initialize(seed=st.integers(min_value=0, max_value=2**32), signed=st.booleans())
    def begin(self, seed: int, signed: bool) -> None:
        self.world = World(seed, signed=signed)

    @rule(number=NUMBERS)
    def upsert(self, number: int) -> None:
        self.world.upsert(number)

    @rule(number=NUMBERS)
    def remove(self, number: int) -> None:
        self.world.remove(number)

    @rule(number=NUMBERS, notice=st.booleans())
    def revoke(self, number: int, notice: bool) -> None:
        self.world.revoke(number, notice=notice)

    @rule(seconds=st.sampled_from([0.001, 0.02, 0.3, 1.1, 5.0, 20.0]))
    def time_passes(self, seconds: float) -> None:
        self.world.pass_time(seconds)

    @rule(share=st.sampled_from([0.0, 0.3, 1.0]))
    def messages_are_lost_doubled_and_delayed(self, share: float) -> None:
        # Not a fault: the head alone has to be enough.
        self.world.server.loss = share

    @rule(share=st.sampled_from([0.0, 0.3]))
    def answers_are_lost(self, share: float) -> None:
        self.world.server.silence = share
        self.world.fault()

    @rule()
    def redis_is_killed(self) -> None:
        self.world.server.kill()
        self.world.fault()

    @precondition(lambda self: not self.world.server.alive)
    @rule()
    def redis_is_back_empty(self) -> None:
        self.world.server.start()
        self.world.fault()

    @rule(forget=st.integers(min_value=0, max_value=100))
    def redis_fails_over_and_forgets(self, forget: int) -> None:
        self.world.server.fail_over(forget)
        self.world.fault()

    @rule(forget=st.integers(min_value=1, max_value=100))
    def redis_is_restored_from_a_backup(self, forget: int) -> None:
        self.world.server.restore(forget)
        self.world.fault()

    @rule()
    def redis_is_flushed(self) -> None:
        self.world.server.flush()
        self.world.fault()

    @rule(which=WHICH, cut=st.booleans())
    def a_gateway_is_cut_off_or_back(self, which: int, cut: bool) -> None:
        self.world.gateways[which].client.cut = cut
        self.world.fault()

    @rule(which=WHICH, seconds=st.sampled_from([1.0, 20.0, 400.0]))
    def a_gateway_was_stopped(self, which: int, seconds: float) -> None:
        self.world.gateways[which].ahead += seconds

    @rule(cut=st.booleans())
    def the_controller_is_cut_off_or_back(self, cut: bool) -> None:
        assert self.world.leader is not None
        self.world.leader.client.cut = cut
        self.world.fault()

    @rule(old_goes_on=st.booleans())
    def another_controller_leads(self, old_goes_on: bool) -> None:
        self.world.change_leader(old_goes_on=old_goes_on)

    @rule()
    def all_is_healed(self) -> None:
        self.world.rest()

    @invariant()
    def holds(self) -> None:
        if hasattr(self, "world"):
            self.world.check()

    def teardown(self) -> None:
        if hasattr(self, "world"):
            try:
                self.world.rest()
            finally:
                self.world.close()


def run(examples: int, steps: int) -> None:
    machine: Any = Protocol
    run_state_machine_as_test(
        machine,
        settings=settings(
            max_examples=examples,
            stateful_step_count=steps,
            deadline=None,
            suppress_health_check=list(HealthCheck),
        ),
    )


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    # The machine loses data all the time, and each loss logs a line.
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def test_all_gateways_converge_to_the_published_state() -> None:
    run(20, 25)


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_all_gateways_converge_to_the_published_state_for_long() -> None:
    run(1500, 60)
