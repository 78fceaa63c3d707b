"""How far a reader follows one request through the source: ``python -m benchmarks.walk``.

One GET, and one WebSocket upgrade, go through the data path of :mod:`benchmarks.hot_path`. Counted
are the files of the product that take part, and how often the walk changes from one to another,
calls and returns alike. ``--files`` prints them in the order in which they are entered.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any, Final

import uvloop

from benchmarks.hot_path import Bench, make_bench

ROOT: Final = Path(__file__).parents[1]
PRODUCT: Final = ("gateway", "shared")


@dataclass
class Walk:
    """Where a request came by."""

    files: dict[str, None] = field(default_factory=dict)
    """In the order in which they were entered first."""
    changes: int = 0
    _at: str = ""

    def note(self, frame: FrameType | None, event: str, _argument: Any) -> None:
        """Note where the interpreter is; for :func:`sys.setprofile`."""
        if event == "return" and frame is not None:
            frame = frame.f_back
        elif event != "call":
            return
        name = frame.f_code.co_filename if frame is not None else ""
        if not name.startswith(_WITHIN) or name == self._at:
            return
        self.changes += self._at != ""
        self._at = name
        self.files[str(Path(name).relative_to(ROOT))] = None


_WITHIN: Final = tuple(f"{ROOT / package}/" for package in PRODUCT)


async def walk_of(work: Callable[[], Awaitable[None]]) -> Walk:
    """Return the walk of *work*."""
    found = Walk()
    sys.setprofile(found.note)
    try:
        await work()
    finally:
        sys.setprofile(None)
    return found


async def walks() -> dict[str, Walk]:
    """Return the walks: on connections of their own, from the first byte to the closed transport.

    What is made once, and what is remembered of names, was made before.
    """
    bench = await make_bench()
    works: dict[str, Callable[[], Awaitable[None]]] = {
        "GET": lambda: get(bench),
        "WebSocket upgrade": lambda: bench.handshake(1),
    }
    found = {}
    for name, work in works.items():
        await work()
        found[name] = await walk_of(work)
    return found


async def get(bench: Bench) -> None:
    """Send one request, which is answered, on a connection of its own, and close it."""
    await bench.get(varied=False, times=0)


def main() -> int:
    """Walk, and print."""
    parser = argparse.ArgumentParser(prog="walk", description=__doc__)
    parser.add_argument("--files", action="store_true", help="print the files, too")
    files = parser.parse_args().files
    for name, walk in uvloop.run(walks()).items():
        print(f"{name}: {len(walk.files)} files, {walk.changes} changes")
        for file in walk.files if files else ():
            print(f"  {file}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
