"""Tests the order and times of webhook deliveries: per job in order, whatever the receiver does."""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from controller.store.outbox.update_rows import UpdateHead, WebhookCursor
from controller.webhooks import deliveries as module
from controller.webhooks.deliveries import AT_ONCE, MOST_JOBS, Deliveries, Send

BEGINNING = WebhookCursor(0, 0, {})


def make(cursor: WebhookCursor = BEGINNING) -> Deliveries:
    return Deliveries(cursor, since=0.0, random=lambda: 1.0)


def heads(*jobs: str, first: int = 1) -> list[UpdateHead]:
    return [
        UpdateHead(number, job, float(number), "RUNNING") for number, job in enumerate(jobs, first)
    ]


def take(one: Deliveries, now: float = 0.0) -> list[Send]:
    return list(iter(lambda: one.next(now), None))


def test_a_failing_update_blocks_only_its_own_job() -> None:
    one = make()
    one.take_up(heads("a", "a", "b"), through=3)
    assert take(one) == [Send("a", 1, 2), Send("b", 3, 3)]
    one.failed(Send("a", 1, 2), now=0.0)
    one.accepted(Send("b", 3, 3), 3)
    one.take_up(heads("a", "b", first=4), through=5)
    assert take(one) == [Send("b", 5, 5)]
    assert one.wait(0.0) == 1.0
    assert take(one, 1.0) == [Send("a", 1, 4)]
    one.accepted(Send("a", 1, 4), 1)
    assert take(one, 1.0) == [Send("a", 2, 4)]
    assert one.cursor == WebhookCursor(5, 0, {"a": 2, "b": 5})


def test_a_failing_job_is_retried_with_backoff_without_limit() -> None:
    one = make()
    one.take_up(heads("a"), through=1)
    now, waits = 0.0, []
    for _ in range(14):
        (send,) = take(one, now)
        one.failed(send, now=now)
        waits.append(one.wait(now))
        now += waits[-1] or 0.0
    assert waits[:5] == [1.0, 2.0, 4.0, 8.0, 16.0]
    assert waits[-1] == module.LONGEST_PAUSE_SECONDS


def test_retry_after_of_a_receiver_is_bounded() -> None:
    one = make()
    one.take_up(heads("a", "b"), through=2)
    first, second = take(one)
    one.failed(first, now=0.0, retry_after=30.0)
    one.accepted(second, 2)
    assert one.wait(0.0) == 30.0
    (send,) = take(one, 30.0)
    one.failed(send, now=30.0, retry_after=1e9, is_busy=True)
    one.take_up(heads("c", first=3), through=3)
    # The pause applied to all messages. A day is too long.
    assert one.wait(30.0) == module.LONGEST_RETRY_AFTER_SECONDS


def test_an_unreachable_receiver_is_tried_with_one_message_at_a_time() -> None:
    one = make()
    one.take_up(heads(*(f"j{number}" for number in range(50))), through=50)
    sends = take(one)
    assert len(sends) == AT_ONCE
    for send in sends:
        one.failed(send, now=0.0, reached=False)
    assert one.wait(0.0) == 1.0  # and not eight times as long
    now, pauses = 1.0, []
    for _ in range(9):
        (send,) = take(one, now)
        one.failed(send, now=now, reached=False)
        pauses.append(one.wait(now))
        now += pauses[-1] or 0.0
    assert pauses[-1] == module.LONGEST_RECEIVER_PAUSE_SECONDS
    (send,) = take(one, now)
    one.accepted(send, send.last)
    assert len(take(one, now)) == AT_ONCE


def test_several_failing_jobs_pause_a_receiver_until_one_succeeds() -> None:
    one = make()
    one.take_up(heads("a", "b", "c", "d"), through=4)
    for send in take(one):
        one.failed(send, now=0.0)
    one.take_up(heads("e", first=5), through=5)
    assert take(one) == []
    (send,) = take(one, 1.0)
    one.accepted(send, send.last)
    assert len(take(one, 1.0)) == 4


def test_two_always_failing_jobs_delay_no_other() -> None:
    one = make()
    one.take_up(heads("a", "b"), through=2)
    for now in range(0, 1000, 10):
        for send in take(one, float(now)):
            one.failed(send, now=float(now))
    one.take_up(heads("c", first=3), through=3)
    assert Send("c", 3, 3) in take(one, 1000.0)


def test_a_dead_receiver_uses_bounded_memory() -> None:
    one = make()
    number = 0
    while one.room:
        one.take_up(heads(f"j{number}", first=number + 1), through=number + 1)
        number += 1
    assert number == MOST_JOBS
    assert len(one.cursor.pending) == MOST_JOBS


def test_deleted_updates_are_announced_before_later_ones() -> None:
    one = make()
    one.take_up(heads("a", "b"), through=2)
    first, second = take(one)
    one.accepted(second, 2)
    one.failed(first, now=0.0)
    one.observe(last=9, forgotten=1, at=5.0)
    assert one.room == 0
    (notice,) = take(one, 0.0)
    assert (notice.is_notice, notice.last) == (True, 1)
    one.failed(notice, now=0.0)
    assert take(one, 0.5) == []
    (notice,) = take(one, 1.0)
    one.accepted(notice, 1)
    assert one.cursor == WebhookCursor(2, 1, {"a": 1})
    (send,) = take(one, 1.0)
    one.found_nothing(send)
    assert one.cursor == WebhookCursor(2, 1, {})
    one.observe(last=9, forgotten=1, at=6.0)
    assert one.room == MOST_JOBS


def test_only_a_receiver_behind_retention_is_notified() -> None:
    behind = make(WebhookCursor(4, 0, {}))
    behind.observe(last=9, forgotten=7, at=1.0)
    assert [send.last for send in take(behind)] == [7]
    current = make(WebhookCursor(9, 0, {"a": 8}))
    current.observe(last=9, forgotten=7, at=1.0)
    assert [send.job_id for send in take(current)] == ["a"]
    assert current.cursor.told == 7


def test_a_receiver_ahead_of_the_store_is_told_of_the_restore() -> None:
    one = make(WebhookCursor(20, 12, {"a": 5, "b": 15}))
    one.observe(last=10, forgotten=2, at=1.0)
    (notice,) = take(one)
    assert (notice.is_notice, notice.last) == (True, 10)
    one.accepted(notice, 10)
    one.observe(last=10, forgotten=2, at=1.0)
    assert one.cursor == WebhookCursor(10, 2, {"a": 5})


def test_a_gone_receiver_is_sent_nothing() -> None:
    one = make()
    one.take_up(heads("a", "b"), through=2)
    one.disabled = True
    assert (one.next(0.0), one.wait(0.0), one.room) == (None, None, 0)
    assert one.oldest is None  # nothing is late that nobody wants


@dataclass
class World:
    """An outbox, a receiver with random errors, and controllers that die."""

    chance: random.Random
    jobs: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    accepted: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    last: int = 0
    now: float = 0.0
    saved: WebhookCursor = BEGINNING

    def __post_init__(self) -> None:
        self.core = make()
        self.under_way: list[tuple[Send, int]] = []

    def write(self) -> None:
        self.last += 1
        self.jobs[f"j{self.chance.randrange(5)}"].append(self.last)

    def take_up(self) -> None:
        self.core.observe(last=self.last, forgotten=0, at=self.now)
        limit = min(self.core.room, self.chance.randrange(1, 5))
        found = [
            UpdateHead(number, job, 0.0, "RUNNING")
            for job, numbers in self.jobs.items()
            for number in numbers
            if number > self.core.position
        ]
        found = sorted(found, key=lambda one: one.id)[:limit]
        if found:
            self.core.take_up(found, through=found[-1].id)

    def send(self) -> None:
        while (send := self.core.next(self.now)) is not None:
            number = next(
                (one for one in self.jobs[send.job_id] if send.first <= one <= send.last), None
            )
            if number is None:
                self.core.found_nothing(send)
                continue
            # A message is sent only after all earlier ones of its job were accepted, by any
            # controller.
            earlier = [one for one in self.jobs[send.job_id] if one < number]
            assert set(earlier) <= set(self.accepted[send.job_id])
            assert all(other.job_id != send.job_id for other, _ in self.under_way)
            self.under_way.append((send, number))
        assert len(self.under_way) <= AT_ONCE

    def respond(self, *, well: bool | None = None) -> None:
        if not self.under_way:
            return
        send, number = self.under_way.pop(self.chance.randrange(len(self.under_way)))
        if self.chance.random() < 0.5 if well is None else well:
            self.accepted[send.job_id].append(number)
            self.core.accepted(send, number)
        else:
            self.core.failed(send, now=self.now, reached=self.chance.random() < 0.7)

    def save(self) -> None:
        self.saved = self.core.cursor

    def die(self) -> None:
        # A message in flight may have been accepted all the same.
        for send, number in self.under_way:
            if self.chance.random() < 0.5:
                self.accepted[send.job_id].append(number)
        self.under_way.clear()
        self.core = make(self.saved)

    def wait(self) -> None:
        self.now += self.chance.choice((0.1, 1.0, 100.0))


@settings(max_examples=60)
@given(seed=st.integers(0, 2**32), steps=st.integers(1, 120))
def test_no_update_is_lost_and_each_job_is_in_order(seed: int, steps: int) -> None:
    world = World(random.Random(seed))
    acts = [world.write, world.take_up, world.send, world.respond, world.save, world.wait]
    for _ in range(steps):
        world.chance.choice([*acts, *acts, world.die])()
    for _ in range(20 * (world.last + 5)):
        world.take_up()
        world.send()
        world.respond(well=True)
        world.now += 1000.0
    world.save()
    assert world.saved == WebhookCursor(world.last, 0, {})
    for job, numbers in world.jobs.items():
        assert list(dict.fromkeys(world.accepted[job])) == numbers


@pytest.mark.parametrize("luck", [0.0, 1.0])
def test_retry_delays_are_jittered(luck: float) -> None:
    one = Deliveries(BEGINNING, since=0.0, random=lambda: luck)
    one.take_up(heads("a"), through=1)
    (send,) = take(one)
    one.failed(send, now=0.0)
    assert one.wait(0.0) == (0.5 + luck / 2)
