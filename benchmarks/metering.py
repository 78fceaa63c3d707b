"""The cost of counters on the hot path: ``python -m benchmarks.metering``."""

from __future__ import annotations

import timeit
from collections.abc import Callable

from gateway.relay.meters import Meters

_TIMES = 500_000
_ROUNDS = 7


class _Tunnel:
    """A tunnel's work for each read, without the read and the write."""

    __slots__ = ("phase", "traffic")

    def __init__(self, meters: Meters) -> None:
        self.phase = 0
        self.traffic = meters.websocket

    def plain(self, _data: bytes) -> None:
        if not self.phase:
            pass

    def counted(self, data: bytes) -> None:
        if not self.phase:
            self.traffic.down += len(data)


def _nanoseconds(run: Callable[[], object]) -> float:
    return min(timeit.repeat(run, number=_TIMES, repeat=_ROUNDS)) / _TIMES * 1e9


def main() -> None:
    """Print what each kind of counter adds."""
    meters = Meters()
    tunnel, data = _Tunnel(meters), b"x" * 1024
    plain = _nanoseconds(lambda: tunnel.plain(data))
    counted = _nanoseconds(lambda: tunnel.counted(data))
    empty = _nanoseconds(lambda: None)
    first = _nanoseconds(lambda: meters.first_byte(0.0123))
    print(f"bytes of a read or write: {counted - plain:.0f} ns")
    print(f"time to the first byte of an answer: {first - empty:.0f} ns")


if __name__ == "__main__":
    main()
