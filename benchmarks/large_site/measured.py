"""``python -m benchmarks.large_site.measured``: the controller, with a record of its work.

It writes lines into the file that ``FUMAROLE_BENCH_NOTES`` names:

- ``look TIME JOB`` after each observation of a job;
- ``beat TIME LONGEST CPU JSON`` twice a second: the longest stall of the loop since the last one,
  in wall-clock time and in the loop's own processor time, and how many samples of the processor
  (2 ms each) fell into each part so far.
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
    """Return the part of the controller that *frame* runs in."""
    while frame is not None:
        name = str(frame.f_globals.get("__name__", ""))
        # The outermost frames are those of the program itself.
        if name.startswith(("controller.", "shared.")) and name != "controller.__main__":
            parts = [part for part in PARTS if name == part or name.startswith(f"{part}.")]
            return PARTS[max(parts, key=len)]
        frame = frame.f_back
    return "event loop and libraries"


class Notes:
    """Writes the record."""

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._samples: Counter[str] = Counter()

    def sample(self, _number: int, frame: FrameType | None) -> None:
        """Record the part that the processor is in."""
        self._samples[part_of(frame)] += 1

    def looked_at(self, job_id: str) -> None:
        """Record that a job was observed."""
        self._file.write(f"look {time.monotonic()} {job_id}\n")

    async def beat(self) -> None:
        """Record the stalls of the loop until cancelled."""
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
    """Hook the record into the controller."""
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
