"""``python -m benchmarks.pairs COMMIT``: compares this tree's gateway with another commit's.

Both run at the same time on the proxies' core, and get the same work one after the other. The
result is the median of the ratios of all pairs. Other work of the machine affects both of a pair
alike, so a difference of a few per cent shows, while two whole runs differ by ten.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Final

from benchmarks import growth
from benchmarks.install import Programs
from benchmarks.native_programs import Backend, build, running_backend
from benchmarks.peers import Ground, Peer, Proxy, fumarole
from benchmarks.programs import off_the_proxies_core
from benchmarks.works import WORKS, Work, run_work

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / ".bench"
PAIRS: Final = 9
SECONDS: Final = 1.5
IDLE: Final = 2000


def tree_of(commit: str, folder: Path) -> Path:
    """Return a folder with the files of *commit*, and with this tree's built pages."""
    tree = folder / "tree"
    tree.mkdir()
    packed = subprocess.run(
        ["git", "archive", commit], cwd=ROOT, check=True, capture_output=True
    ).stdout
    subprocess.run(["tar", "-x"], cwd=tree, input=packed, check=True)
    built = Path("gateway", "web", "build")
    shutil.copytree(ROOT / built, tree / built, dirs_exist_ok=True)
    return tree


class Pairs:
    """Measures two gateways; ``rows`` are the medians and the spread of the ratios."""

    def __init__(self, peers: Sequence[Peer], folder: Path, count: int) -> None:
        self._peers = peers
        self._folder = folder
        self._count = count
        self._native = build(FOLDER)
        self.rows: list[str] = []

    async def all(self, works: Sequence[Work], *, memory: bool) -> None:
        """Measure each work, then the memory of an idle WebSocket."""
        with off_the_proxies_core():
            async with running_backend(self._native["backend"]) as backend:
                async with AsyncExitStack() as stack:
                    proxies = [
                        await stack.enter_async_context(
                            peer.start(self._ground(peer.name, backend))
                        )
                        for peer in self._peers
                    ]
                    for work in works:
                        each = [partial(self._cost, work, proxy) for proxy in proxies]
                        costs = [await _pair(number, each) for number in range(self._count)]
                        self._tell(work.title, work.unit, costs)
                if memory:
                    each = [partial(self._idle, peer, backend) for peer in self._peers]
                    sizes = [await _pair(number, each) for number in range(self._count // 3 or 1)]
                    self._tell(f"an idle WebSocket, {IDLE} of them", "KiB", sizes)

    async def _cost(self, work: Work, proxy: Proxy) -> float:
        sample = await run_work(
            work, proxy, load=self._native["load"], folder=self._folder, seconds=SECONDS
        )
        if sample.problem:
            raise RuntimeError(f"{work.name} on {proxy.name}: {sample.problem}")
        return sample.cost

    async def _idle(self, peer: Peer, backend: Backend) -> float:
        ground = self._ground(f"idle-{peer.name}", backend)
        return await growth.idle_bytes(peer, ground, IDLE, self._native["load"]) / 1024

    def _ground(self, name: str, backend: Backend) -> Ground:
        folder = Path(tempfile.mkdtemp(prefix=f"{name}-", dir=self._folder))
        return Ground(folder=folder, backend=backend, programs=Programs())

    def _tell(self, title: str, unit: str, costs: Sequence[tuple[float, float]]) -> None:
        ratios = sorted(here / other for here, other in costs)
        here, other = (statistics.median(one) for one in zip(*costs, strict=True))
        row = f"| {title} | {other:.2f} {unit} | {here:.2f} {unit} "
        row += f"| **{statistics.median(ratios):.3f}** | {ratios[0]:.2f}-{ratios[-1]:.2f} |"
        self.rows.append(row)
        print(row, flush=True)


async def _pair(number: int, each: Sequence[Callable[[], Awaitable[float]]]) -> tuple[float, float]:
    """Return the costs of both; which one is first changes from pair to pair."""
    found = {index: await each[index]() for index in ((0, 1) if number % 2 else (1, 0))}
    return found[0], found[1]


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="benchmarks.pairs", description=__doc__)
    parser.add_argument("commit", help="the commit that this tree is compared with")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--works", default=",".join(work.name for work in WORKS))
    parser.add_argument("--without-memory", action="store_true")
    told = parser.parse_args()
    works = [work for work in WORKS if work.name in told.works.split(",")]
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="fumarole-pairs-") as name:
        folder = Path(name)
        other = fumarole.peer_of(tree_of(told.commit, folder))
        peers = (
            replace(fumarole.GATEWAY, name="this tree"),
            replace(other, name=told.commit),
        )
        print(f"| work | {told.commit} | this tree | median of the ratios | from-to |")
        print("|---|--:|--:|--:|--:|", flush=True)
        pairs = Pairs(peers, folder, told.pairs)
        asyncio.run(pairs.all(works, memory=not told.without_memory))
    return 0


if __name__ == "__main__":
    sys.exit(main())
