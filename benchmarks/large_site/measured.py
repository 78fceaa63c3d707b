"""``python -m benchmarks.large_site.measured``: the controller, which notes what it does.

Into the file that ``FUMAROLE_BENCH_NOTES`` names it writes lines: ``look TIME JOB`` after each
look at a job, and twice a second ``beat TIME LONGEST CPU JSON``: for how long the loop stood still
at most since the last one, by the clock and by the loop's own processor time, and how many samples
of the processor (2 ms each) fell into which part so far.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections import Counter
from pathlib import Path
from types import FrameType
from typing import Any, Final, TextIO

from controller.__main__ import main
from controller.jobs.reconcile.reconciler import Reconciler
from controller.leader.leader import Leader

NOTES: Final = "FUMAROLE_BENCH_NOTES"
SAMPLE_SECONDS: Final = 0.002
TICK_SECONDS: Final = 0.005
NOTE_SECONDS: Final = 0.5
PARTS: Final = {
    "controller.kube": "calls of the API server",
    "controller.jobs.cluster": "informers",
    "controller.jobs.reconcile": "reconciling",
    "controller.jobs.pipeline": "plugins",
    "controller.plugins": "plugins",
    "controller.volcano": "manifests and what is read of objects",
    "controller.store": "store",
    "controller.api": "API",
    "controller.jobs": "other work on jobs",
    "controller.sessions": "routes",
    "shared.bus": "routes",
    "controller": "other",
    "shared": "other",
}


def part_of(frame: FrameType | None) -> str:
    """Return which part of the controller has the processor."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        # Below everything is the program itself.
        if name.startswith(("controller.", "shared.")) and name != "controller.__main__":
            parts = [part for part in PARTS if name == part or name.startswith(f"{part}.")]
            return PARTS[max(parts, key=len)]
        frame = frame.f_back
    return "event loop and libraries"


class Notes:
    """Writes them."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._samples: Counter[str] = Counter()

    def sample(self, _number: int, frame: FrameType | None) -> None:
        """Note where the processor is."""
        self._samples[part_of(frame)] += 1

    def looked_at(self, job_id: str) -> None:
        """Note that a job was looked at."""
        self._file.write(f"look {time.monotonic()} {job_id}\n")

    async def beat(self) -> None:
        """Note for how long the loop stands still, until this is cancelled."""
        wall = cpu = 0.0
        noted, before = time.monotonic(), (time.monotonic(), time.thread_time())
        while True:
            await asyncio.sleep(TICK_SECONDS)
            now = time.monotonic(), time.thread_time()
            wall, cpu = max(wall, now[0] - before[0]), max(cpu, now[1] - before[1])
            if now[0] - noted >= NOTE_SECONDS:
                parts = json.dumps(self._samples)
                self._file.write(f"beat {now[0]} {wall} {cpu} {parts}\n")
                self._file.flush()
                noted, wall, cpu = now[0], 0.0, 0.0
            before = time.monotonic(), time.thread_time()


def watch_controller(notes: Notes) -> None:
    """Have the controller's own work noted."""
    reconcile, run = Reconciler.reconcile, Leader.run

    async def noted_reconcile(self: Reconciler, job_id: str) -> Any:
        try:
            return await reconcile(self, job_id)
        finally:
            notes.looked_at(job_id)

    async def noted_run(self: Leader) -> None:
        beating = asyncio.create_task(notes.beat())
        try:
            await run(self)
        finally:
            beating.cancel()

    patched: Any = Reconciler
    patched.reconcile = noted_reconcile
    patched = Leader
    patched.run = noted_run


if __name__ == "__main__":
    with Path(os.environ.pop(NOTES)).open("a") as written:
        noting = Notes(written)
        watch_controller(noting)
        signal.signal(signal.SIGPROF, noting.sample)
        signal.setitimer(signal.ITIMER_PROF, SAMPLE_SECONDS, SAMPLE_SECONDS)
        main()
