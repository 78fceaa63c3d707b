"""Tests the limit on an owner's concurrent submissions, and their order of arrival."""

from __future__ import annotations

from contextlib import suppress

import pytest

from controller.jobs.reconcile.reconciler import OwnerSlots
from controller.jobs.reconcile.workqueue import RequeueAfter
from controller.jobs.spec.model import OwnerKey

ADA, BOB = OwnerKey("user", "ada"), OwnerKey("user", "bob")


class World:
    """Slots, two for each owner, and the jobs that the slots enqueued."""

    def __init__(self) -> None:
        self.enqueued: list[str] = []
        self.slots = OwnerSlots(2, self.enqueued.append)

    def waits(self, owner: OwnerKey, *job_ids: str) -> bool:
        for job_id in job_ids:
            with pytest.raises(RequeueAfter), self.slots.take(owner, job_id):
                pass
        return not self.enqueued


def test_an_owner_at_its_limit_does_not_block_others() -> None:
    world = World()
    with world.slots.take(ADA, "a1"), world.slots.take(ADA, "a2"):
        assert world.waits(ADA, "a3")
        with world.slots.take(BOB, "b1"), world.slots.take(OwnerKey("project", "ada"), "p1"):
            assert world.waits(ADA, "a4")
    assert set(world.enqueued) == {"a3", "a4"}


def test_a_freed_slot_goes_to_the_longest_waiter() -> None:
    world = World()
    with world.slots.take(ADA, "a1"):
        with world.slots.take(ADA, "a2"):
            assert world.waits(ADA, "a3", "a4", "a3")
        assert world.enqueued == ["a3"]
        # An enqueued job has its turn only when it takes the slot.
        with world.slots.take(ADA, "a5"):
            world.enqueued.clear()
            assert world.waits(ADA, "a3")
        assert world.enqueued == ["a3"]


def test_a_cancelled_waiter_passes_its_turn_on() -> None:
    world = World()
    with world.slots.take(ADA, "a1"):
        with world.slots.take(ADA, "a2"):
            world.waits(ADA, "a3", "a4")
        world.slots.forget("a3")
        assert world.enqueued == ["a3", "a4"]
        world.slots.forget("a3")
        world.slots.forget("b9")
        assert world.enqueued == ["a3", "a4"]


def test_a_failure_releases_its_slot_and_no_state_is_kept() -> None:
    world = World()
    with suppress(ZeroDivisionError), world.slots.take(ADA, "a1"), world.slots.take(ADA, "a2"):
        world.waits(ADA, "a3")
        raise ZeroDivisionError
    assert world.enqueued == ["a3", "a3"]
    with world.slots.take(ADA, "a3"):
        assert len(world.slots) == 0
    assert not world.slots._used
    assert not world.slots._waiting
