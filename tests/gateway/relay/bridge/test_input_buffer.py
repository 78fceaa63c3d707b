"""Received bytes are parsed in order, a bounded part of them in each turn."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from itertools import count

from gateway.relay.bridge.buffers import WORK_SECONDS, InputBuffer
from gateway.relay.turns import PORTION_BYTES, Turns


@dataclass
class Reader:
    """Parses at most *most* bytes in a step, and records the steps of each turn."""

    most: int
    has_more: bool = False
    parsed: bytes = b""
    given: list[int] = field(default_factory=list)
    syncs: int = 0

    def step(self, data: bytes) -> int:
        self.given.append(len(data))
        taken = data[: self.most]
        self.parsed += taken
        return len(taken)

    def sync_reading(self) -> None:
        self.syncs += 1


def buffer_of(reader: Reader, *, steps_in_a_turn: int) -> InputBuffer:
    """Return a buffer whose clock allows that many steps in one turn."""
    ticks = count(0, WORK_SECONDS / steps_in_a_turn * 1.0001)
    turns = Turns(asyncio.get_running_loop())
    return InputBuffer(reader, turns, clock=lambda: next(ticks))


async def until_parsed(buffer: InputBuffer) -> int:
    """Return how many turns of the loop it took until nothing was pending."""
    turns = 0
    while buffer.has_pending:
        await asyncio.sleep(0)
        turns += 1
        assert turns < 1000
    return turns


async def test_a_step_gets_at_most_a_portion_of_a_large_read() -> None:
    reader = Reader(most=1 << 20)
    sent = bytes(range(256)) * 1000
    buffer = buffer_of(reader, steps_in_a_turn=2)
    buffer.feed(sent)
    assert reader.given == [PORTION_BYTES, PORTION_BYTES]
    assert buffer.has_pending
    await until_parsed(buffer)
    assert reader.parsed == sent
    assert max(reader.given) == PORTION_BYTES


async def test_bytes_received_meanwhile_are_parsed_afterwards() -> None:
    reader = Reader(most=400)
    buffer = buffer_of(reader, steps_in_a_turn=1)
    buffer.feed(b"a" * 1000)
    buffer.feed(b"b" * 10)
    assert await until_parsed(buffer) >= 2
    assert reader.parsed == b"a" * 1000 + b"b" * 10
    assert reader.syncs == 3  # paused after each of two turns, then read again


async def test_few_bytes_are_parsed_at_once() -> None:
    reader = Reader(most=100)
    buffer = buffer_of(reader, steps_in_a_turn=1)
    buffer.feed(b"x" * 300)
    assert (reader.parsed, buffer.has_pending, reader.syncs) == (b"x" * 300, False, 0)
