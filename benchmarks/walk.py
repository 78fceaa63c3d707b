"""How far a reader follows one request through the source: ``python -m benchmarks.walk``.

One GET, and one WebSocket upgrade, go through the data path of :mod:`benchmarks.hot_path`. The
program counts the files of the product that take part, and how often the walk changes from one file
to another, by calls and returns. ``--files`` prints the files in the order in which they are
entered. ``--pairs`` prints the functions between which the walk changes most. ``--job`` follows a
job's life in the controller instead (see :mod:`benchmarks.job_walk`).
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from types import CodeType, FrameType
from typing import Any, Final

import uvloop

from benchmarks.hot_path import Bench, make_bench

ROOT: Final = Path(__file__).parents[1]
PRODUCT: Final = ("gateway", "shared")
_WALKING: Final[ContextVar[object]] = ContextVar("walking", default=None)


@dataclass
class Walk:
    """The path of a request or a job; only a job has ``calls`` and ``queries``."""

    product: tuple[str, ...] = PRODUCT
    own_tasks: bool = False
    """Count only the walking task and the tasks that it creates."""
    files: dict[str, None] = field(default_factory=dict)
    """The files, in the order in which they were first entered."""
    changes: int = 0
    calls: int = 0
    queries: int = 0
    pairs: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How often the walk changes between two functions, each with its file."""
    _at: CodeType | None = None

    @contextmanager
    def walking(self) -> Iterator[None]:
        """Record the path of the interpreter during the block."""
        token = _WALKING.set(self)
        sys.setprofile(self.note)
        try:
            yield
        finally:
            sys.setprofile(None)
            _WALKING.reset(token)

    def note(self, frame: FrameType | None, event: str, _argument: Any) -> None:
        """Record the current function; for :func:`sys.setprofile`."""
        if event == "return" and frame is not None:
            frame = frame.f_back
        elif event != "call":
            return
        if self.own_tasks and _WALKING.get() is not self:
            return
        if frame is None or not frame.f_code.co_filename.startswith(self._within):
            return
        before, self._at = self._at, frame.f_code
        if before is None or before.co_filename != self._at.co_filename:
            self.files[_file_of(self._at)] = None
            self._note_change(before, self._at)

    def _note_change(self, before: CodeType | None, now: CodeType) -> None:
        if before is not None:
            self.changes += 1
            one, other = sorted(f"{_file_of(code)} {code.co_qualname}" for code in (before, now))
            self.pairs[one, other] += 1

    def __post_init__(self) -> None:
        self._within = tuple(f"{ROOT / package}/" for package in self.product)


def _file_of(code: CodeType) -> str:
    return str(Path(code.co_filename).relative_to(ROOT))


async def walk_of(work: Callable[[], Awaitable[None]]) -> Walk:
    """Return the walk of *work*."""
    found = Walk()
    with found.walking():
        await work()
    return found


async def walks() -> dict[str, Walk]:
    """Return the walks: on connections of their own, from the first byte to the closed transport.

    Caches are filled before.
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
    """Send one request on a connection of its own, answer it, and close the connection."""
    await bench.get(varied=False, times=0)


async def _walks_of_a_job() -> dict[str, Walk]:
    # A walk of a request does not load the modules of a job.
    return await importlib.import_module("benchmarks.job_walk").job_walks()  # type: ignore[no-any-return]


def main() -> int:
    """Walk, and print."""
    parser = argparse.ArgumentParser(prog="walk", description=__doc__)
    parser.add_argument("--files", action="store_true", help="print the files, too")
    parser.add_argument("--pairs", type=int, default=0, metavar="N", help="print the N first pairs")
    parser.add_argument("--job", action="store_true", help="walk along a job's life")
    asked = parser.parse_args()
    for name, walk in uvloop.run(_walks_of_a_job() if asked.job else walks()).items():
        print(f"{name}: {len(walk.files)} files, {walk.changes} changes", end="")
        print(f", {walk.queries} queries" if walk.queries else "", end="")
        print(f" in {walk.calls} calls of reconcile" if walk.calls else "")
        for file in walk.files if asked.files else ():
            print(f"  {file}")
        for (one, other), changes in walk.pairs.most_common(asked.pairs):
            print(f"  {changes:5} {one} <-> {other}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
