"""Changes inputs, and keeps those that behave in a new way."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field

MOST_KEPT = 2000
LONGEST = 4096


@dataclass(frozen=True, kw_only=True)
class Target:
    """A fuzz target.

    ``check`` raises AssertionError, or anything unexpected, when a promise does not hold. Its
    result
    distinguishes inputs that behave differently. ``words`` are inserted unchanged. ``turn`` is the
    number of inputs tried at a time, ``reductions`` the number of attempts to make a crash smaller.
    """

    name: str
    check: Callable[[bytes], Hashable]
    seeds: Sequence[bytes]
    words: Sequence[bytes] = ()
    turn: int = 200
    reductions: int = 100_000


@dataclass(frozen=True)
class Crash:
    """An input for which a promise did not hold."""

    target: str
    data: bytes
    error: str


@dataclass
class Fuzzer:
    """Fuzzes one target."""

    target: Target
    dice: random.Random
    tried: int = 0
    _pool: list[bytes] = field(default_factory=list)
    _seen: set[Hashable] = field(default_factory=set)

    def run(self, count: int) -> Crash | None:
        """Try *count* more inputs; return the first crash, reduced."""
        if not self._pool:
            self._pool = list(self.target.seeds)
            for seed in self.target.seeds:
                if (error := self._try(seed)) is not None:
                    return self._found(seed, error)
        for _ in range(count):
            data = self._mutated()
            if (error := self._try(data)) is not None:
                return self._found(data, error)
        return None

    def _try(self, data: bytes) -> str | None:
        self.tried += 1
        try:
            behaviour = self.target.check(data)
        except Exception as error:
            return f"{type(error).__name__}: {error}"
        if behaviour not in self._seen and len(self._pool) < MOST_KEPT:
            self._seen.add(behaviour)
            self._pool.append(data)
        return None

    def _mutated(self) -> bytes:
        data = self.dice.choice(self._pool)
        for _ in range(self.dice.choice((1, 1, 1, 2, 3, 6))):
            data = self._changed(data)
        return data[:LONGEST]

    def _changed(self, data: bytes) -> bytes:
        dice = self.dice
        at = dice.randrange(len(data) + 1)
        end = at + dice.choice((1, 1, 2, 4, 16, 64))
        match dice.randrange(8):
            case 0:
                return data[:at] + data[end:]
            case 1:
                return data[:end] + data[at:]
            case 2:
                return data[:at] + bytes([dice.randrange(256)]) + data[at + 1 :]
            case 3:
                return data[:at] + dice.randbytes(dice.choice((1, 2, 4))) + data[at:]
            case 4:
                other = dice.choice(self._pool)
                return data[:at] + other[dice.randrange(len(other) + 1) :]
            case 5:
                return _one_bit_off(data, at, dice)
            case _:
                word = dice.choice(self.target.words or (b"\r\n",))
                return data[:at] + word + data[at if dice.random() < 0.5 else at + len(word) :]

    def _found(self, data: bytes, error: str) -> Crash:
        return Crash(self.target.name, self._small(data), error)

    def _small(self, data: bytes) -> bytes:
        """Return *data* reduced until no part can be left out."""
        size, left = max(1, len(data) // 2), self.target.reductions
        while size:
            at = 0
            while at < len(data):
                if left == 0:
                    return data
                left -= 1
                shorter = data[:at] + data[at + size :]
                if self._fails(shorter):
                    data = shorter
                else:
                    at += size
            size //= 2
        return data

    def _fails(self, data: bytes) -> bool:
        try:
            self.target.check(data)
        except Exception:
            return True
        return False


def _one_bit_off(data: bytes, at: int, dice: random.Random) -> bytes:
    if at == len(data):
        return data
    return data[:at] + bytes([data[at] ^ (1 << dice.randrange(8))]) + data[at + 1 :]


def cut(data: bytes) -> list[bytes]:
    """Return *data* in pieces that depend on *data* alone."""
    dice = random.Random(data)
    places = sorted({dice.randrange(len(data) + 1) for _ in range(dice.randrange(12))})
    edges = [0, *places, len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges) if a < b]
