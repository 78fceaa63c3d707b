"""One connection's turn is short, and the others come first."""

from __future__ import annotations

import asyncio

from gateway.relay.turns import FULL_READ, SMALL_READ, TURN_SECONDS, Turns


class Reader:
    """Notes what it is called for."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def receive(self, data: bytes) -> None:
        self.calls.append(f"received {len(data)}")

    def pause_for_others(self) -> None:
        self.calls.append("paused")

    def resume_after_others(self) -> None:
        self.calls.append("resumed")


async def test_a_full_read_is_followed_by_the_others_turns() -> None:
    reader, turns = Reader(), Turns(asyncio.get_running_loop())
    turns.take(reader, b"x" * FULL_READ)
    assert reader.calls == [f"received {FULL_READ}", "paused"]
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert reader.calls[2:] == ["resumed"]


async def test_a_short_read_is_timed_and_goes_on() -> None:
    reader = Reader()
    times = iter([1.0, 1.004, 2.0, 2.5])
    turns = Turns(asyncio.get_running_loop(), clock=lambda: next(times))
    turns.take(reader, b"x" * SMALL_READ)
    assert reader.calls == [f"received {SMALL_READ}"]
    assert turns.counts[TURN_SECONDS.index(0.005)] == 1
    turns.later(lambda: reader.calls.append("later"))
    assert len(reader.calls) == 1
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert reader.calls[1:] == ["later"]
    assert turns.counts[TURN_SECONDS.index(1.0)] == 1
    assert round(turns.seconds, 3) == 0.504
