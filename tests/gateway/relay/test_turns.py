"""One connection's turn is short, and other connections come first."""

from __future__ import annotations

import asyncio
from functools import partial

from gateway.relay.turns import (
    CROWD,
    FULL_READ,
    LONG_TURN_SECONDS,
    READS_BETWEEN_LOOKS,
    SHARE_SECONDS,
    SMALL_READ,
    TURN_SECONDS,
    Turns,
)


class Reader:
    """Records its calls."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def receive(self, data: bytes) -> None:
        self.calls.append(f"received {len(data)}")

    def yield_turn(self) -> None:
        self.calls.append("paused")

    def resume_turn(self) -> None:
        self.calls.append("resumed")


class OneTurn:
    """A loop within one turn: uvloop's time does not change during it."""

    def __init__(self) -> None:
        self.call_soon = asyncio.get_running_loop().call_soon

    def time(self) -> float:
        return 1.0


async def test_a_connection_that_used_its_share_yields_to_others() -> None:
    reader, clock = Reader(), iter([0.0, 0.0001, 0.0002, 0.0003, 0.0004])
    turns = Turns(OneTurn(), clock=lambda: next(clock))  # type: ignore[arg-type]  # all it needs
    turns.run(reader, b"x" * FULL_READ)
    turns.run(reader, b"x" * FULL_READ)
    assert reader.calls == [f"received {FULL_READ}"] * 2 + ["paused"]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert reader.calls[3:] == ["resumed"]


async def test_many_small_reads_use_up_a_share() -> None:
    now, reader, other = 0.0, Reader(), Reader()
    turns = Turns(OneTurn(), clock=lambda: now)  # type: ignore[arg-type]  # all it needs
    turns.run(other, b"x" * SMALL_READ)
    turns.run(reader, b"x" * SMALL_READ)
    now += 0.008  # what uvloop takes to decipher 256 KiB of such records
    turns.run(reader, b"x" * SMALL_READ)
    assert reader.calls == [f"received {SMALL_READ}"] * 2 + ["paused"]
    assert other.calls == [f"received {SMALL_READ}"]
    await asyncio.sleep(0)
    assert reader.calls[3:] == ["resumed"]


async def test_a_share_belongs_to_one_connection_in_one_turn() -> None:
    loop, readers, now = asyncio.get_running_loop(), [Reader(), Reader()], 0.0
    turns = Turns(loop, clock=lambda: now)
    for _ in range(10):
        for reader in readers:
            turns.run(reader, b"x" * FULL_READ)
            now += 0.9 * SHARE_SECONDS
    for _ in range(10):
        await asyncio.sleep(0.003)
        turns.run(readers[0], b"x" * FULL_READ)
        now += 0.9 * SHARE_SECONDS
    assert not any("paused" in reader.calls for reader in readers)


async def test_a_short_read_is_timed_and_continues() -> None:
    reader = Reader()
    times = iter([1.0, 1.004, 2.0, 2.0, 2.5])
    turns = Turns(asyncio.get_running_loop(), clock=lambda: next(times))
    turns.run(reader, b"x" * SMALL_READ)
    assert reader.calls == [f"received {SMALL_READ}"]
    assert turns.counts[TURN_SECONDS.index(0.005)] == 1
    turns.defer(lambda: reader.calls.append("later"))
    assert len(reader.calls) == 1
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert reader.calls[1:] == ["later"]
    assert turns.counts[TURN_SECONDS.index(1.0)] == 1
    assert round(turns.seconds, 3) == 0.504


def read(turns: Turns, reader: Reader, times: int = 1) -> None:
    """Do what each connection does with each read."""
    for _ in range(times):
        if turns.crowded:
            turns.count_read(reader)


async def test_in_a_long_turn_each_connection_is_read_once() -> None:
    now, readers = 0.0, [Reader() for _ in range(10)]
    turns = Turns(asyncio.get_running_loop(), clock=lambda: now)
    turns.note_descriptor(CROWD)
    read(turns, readers[0], READS_BETWEEN_LOOKS + 1)
    now = LONG_TURN_SECONDS
    read(turns, readers[0], READS_BETWEEN_LOOKS)
    assert not readers[0].calls
    for reader in readers:
        read(turns, reader)
    assert [reader.calls for reader in readers] == [["paused"]] * 10
    await asyncio.sleep(0)
    assert [reader.calls for reader in readers] == [["paused", "resumed"]] * 10
    read(turns, readers[0], READS_BETWEEN_LOOKS)
    assert len(readers[0].calls) == 2


async def test_short_turns_pause_no_connection() -> None:
    now, reader = 0.0, Reader()
    turns = Turns(asyncio.get_running_loop(), clock=lambda: now)
    turns.note_descriptor(CROWD)
    for _ in range(5):
        now += LONG_TURN_SECONDS
        read(turns, reader, 10 * READS_BETWEEN_LOOKS)
        await asyncio.sleep(0)
    assert not reader.calls


async def test_a_loop_is_crowded_from_the_threshold_of_descriptors_on() -> None:
    turns = Turns(asyncio.get_running_loop())
    turns.note_descriptor(CROWD - 1)
    assert not turns.crowded
    turns.note_descriptor(CROWD)
    turns.note_descriptor(CROWD - 1)
    assert turns.crowded


async def test_in_a_long_turn_each_connection_has_one_full_read() -> None:
    now, readers = 0.0, [Reader() for _ in range(200)]

    def clock() -> float:
        nonlocal now
        now += 0.0001  # a read takes as much, and there is as much between two
        return now

    turns = Turns(OneTurn(), clock=clock)  # type: ignore[arg-type]  # all it needs
    for reader in readers:
        while "paused" not in reader.calls:
            turns.run(reader, b"x" * FULL_READ)
    received = [len(reader.calls) - 1 for reader in readers]
    assert received[0] == 2
    assert set(received[170:]) == {1}
    await turned(len(readers) + 1)
    assert all(reader.calls[-1] == "resumed" for reader in readers)


# What was left for later


async def turned(times: int) -> None:
    """Let the loop turn that many times."""
    for _ in range(times):
        await asyncio.sleep(0)


async def test_deferred_work_takes_one_share_of_a_turn() -> None:
    now, done = 0.0, list[int]()
    turns = Turns(asyncio.get_running_loop(), clock=lambda: now)

    def work(number: int, seconds: float) -> None:
        nonlocal now
        done.append(number)
        now += seconds

    for number in range(6):
        turns.defer(partial(work, number, 0.6 * SHARE_SECONDS))
    turns.defer(partial(work, 6, 100 * SHARE_SECONDS))
    turns.defer(partial(work, 7, 0.0))
    in_turns = list[list[int]]()
    while len(done) < 8:
        before = len(done)
        await turned(1)
        in_turns.append(done[before:])
    assert [some for some in in_turns if some] == [[0, 1], [2, 3], [4, 5], [6], [7]]


async def test_a_connection_that_defers_again_goes_to_the_end_of_the_queue() -> None:
    done = list[str]()
    turns = Turns(asyncio.get_running_loop(), clock=lambda: 0.0)

    def greedy() -> None:
        done.append("greedy")
        if len(done) < 10:
            turns.defer(greedy)

    turns.defer(greedy)
    turns.defer(greedy)
    turns.defer(partial(done.append, "modest"))
    await turned(2)
    assert done[:3] == ["greedy", "greedy", "modest"]
    await turned(20)
    assert len(done) == 11, "what is left in a turn is done in the next one"


async def test_one_paused_connection_is_read_per_turn() -> None:
    readers, now = [Reader() for _ in range(3)], 0.0
    turns = Turns(OneTurn(), clock=lambda: now)  # type: ignore[arg-type]  # all it needs
    for reader in readers:
        turns.run(reader, b"x" * FULL_READ)
        now += 2 * SHARE_SECONDS
        turns.run(reader, b"x" * FULL_READ)
        assert reader.calls[-1] == "paused"
    for count in range(1, 4):
        await turned(1)
        assert sum(reader.calls[-1] == "resumed" for reader in readers) == count


async def test_failing_deferred_work_does_not_block_later_work() -> None:
    done, reported = list[str](), list[object]()
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda _, about: reported.append(about["exception"]))
    turns = Turns(loop, clock=lambda: 0.0)
    problem = ValueError("a bug of ours")

    def fail() -> None:
        raise problem

    turns.defer(fail)
    turns.defer(partial(done.append, "other"))
    await turned(4)
    assert (done, reported) == (["other"], [problem])
    turns.defer(partial(done.append, "again"))
    await turned(2)
    assert done == ["other", "again"]
