"""Both ends of a flow: a sender of pieces of any size, and a reader, each with stalls."""

from __future__ import annotations

import asyncio
import hashlib
import random
from dataclasses import dataclass

from tests.pump.framings import Unwrap, Wrap

SIZES = (1, 7, 125, 126, 1000, 4096, 65535, 65536, 100_000, 300_000)
BLOCK_BYTES = 1 << 20
STALLS = 24
LONGEST_STALL_SECONDS = 0.02
QUIET_SECONDS = 60.0


@dataclass(frozen=True)
class Sum:
    """A number of bytes, and their hash."""

    size: int
    digest: str


class Stalls:
    """Occasional pauses, about equally many for every size of flow."""

    def __init__(self, size: int, dice: random.Random) -> None:
        self._dice = dice
        self._every = size / STALLS
        self._next = self._every * dice.random()

    async def after(self, done: int) -> None:
        """Pause if a pause is due."""
        if done >= self._next:
            self._next += self._every * 2 * self._dice.random()
            await asyncio.sleep(LONGEST_STALL_SECONDS * self._dice.random())


async def pour(writer: asyncio.StreamWriter, size: int, wrap: Wrap, dice: random.Random) -> Sum:
    """Send *size* random bytes; return their sum."""
    block = dice.randbytes(BLOCK_BYTES)
    sums = hashlib.blake2b(digest_size=20)
    stalls = Stalls(size, dice)
    sent = 0
    while sent < size:
        at = dice.randrange(BLOCK_BYTES // 2)
        # Small pieces are as likely as large ones, but most of the bytes are in large ones.
        length = min(dice.choice(SIZES), size - sent)
        piece = block[at : at + length]
        sums.update(piece)
        writer.write(wrap(piece))
        sent += length
        async with asyncio.timeout(QUIET_SECONDS):
            await writer.drain()
        await stalls.after(sent)
    return Sum(sent, sums.hexdigest())


async def swallow(
    reader: asyncio.StreamReader, size: int, unwrap: Unwrap, dice: random.Random
) -> Sum:
    """Read *size* bytes of payload, or up to the end; return their sum."""
    sums = hashlib.blake2b(digest_size=20)
    stalls = Stalls(size, dice)
    came = 0
    while came < size:
        async with asyncio.timeout(QUIET_SECONDS):
            data = await reader.read(dice.choice((1, 999, 65536, 1 << 20)) if came else 1)
        if not data:
            break
        payload = unwrap.feed(data)
        sums.update(payload)
        came += len(payload)
        await stalls.after(came)
    while came == size and not unwrap.ended:
        async with asyncio.timeout(QUIET_SECONDS):
            assert not unwrap.feed(await reader.readexactly(1)), "more than was sent"
    return Sum(came, sums.hexdigest())
