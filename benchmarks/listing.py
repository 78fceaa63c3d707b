"""The cost of a page of a list, by the number of jobs: ``python -m benchmarks.listing``.

A store is filled with jobs of a hundred users, most of which have ended. Each list is read several
times from its beginning and from its middle. Prints a table: milliseconds of one page of 100.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Final

from controller.store.database import Store
from controller.store.instance import ensure_position
from controller.store.jobs.job_lists import JobFilter, Order, list_jobs
from controller.store.jobs.job_rows import JobRecord, insert_jobs
from controller.store.paging import Key

PAGE: Final = 100
TIMES: Final = 15
USERS: Final = 100
STATES: Final = ("SUCCESS", "FAILURE", "EXPIRED")
LISTS: Final[dict[str, tuple[Order, JobFilter]]] = {
    "in the order of ids": ("id", JobFilter()),
    "the newest": ("newest", JobFilter()),
    "one user's newest": ("newest", JobFilter(user="user-7")),
    "the newest of three states": ("newest", JobFilter(states=STATES)),
    "one user's failures": ("newest", JobFilter(user="user-7", states=("FAILURE",))),
    "a label of every job, newest": ("newest", JobFilter(labels=(("team", "x"),))),
    "a label of ten jobs, newest": ("newest", JobFilter(labels=(("rare", "x"),))),
    "no match among jobs with a label": (
        "newest",
        JobFilter(kind="lab", labels=(("rare", "never"), ("team", "x"))),
    ),
    "no match among all jobs of a project": ("newest", JobFilter(project="sun", kind="none")),
}


def make_jobs(count: int) -> Iterator[tuple[JobRecord, dict[str, str]]]:
    """Yield *count* jobs with their labels."""
    one = JobRecord(
        id="", owner_user="", owner_project="sun", namespace="jobs", spec={}, sealed=None,
        fingerprint=b"x" * 32, desired="run", state="", reason=None, message=None, attempt=1,
        uid="u", outcome=None, created_at=0.0, started_at=1.0, finished_at=None,
    )  # fmt: skip
    for number in range(count):
        user = f"user-{number % USERS}"
        spec = {"owner": {"user": user}, "image": "i" * 60, "kind": "lab" if number % 2 else "run"}
        labels = {"team": "x"} | ({"rare": "x"} if number % (count // 10) == 0 else {})
        state = STATES[number % 3] if number % 50 else "RUNNING"
        finished = 2.0 if number % 50 else None
        job = replace(
            one, id=f"j{number * 7919 % count:06}", owner_user=user, spec=spec, state=state,
            created_at=float(number), finished_at=finished,
        )  # fmt: skip
        yield job, labels


async def measure(folder: Path, count: int) -> dict[str, float]:
    """Return the median milliseconds of a page of each list among *count* jobs."""
    store = Store(f"sqlite:///{folder}/{count}.db")
    await store.open()
    jobs = list(make_jobs(count))
    async with store.write() as transaction:
        await ensure_position(transaction, new_identity="bench")
        for first in range(0, count, 1000):
            await insert_jobs(transaction, jobs[first : first + 1000])
    middle = Key(count / 2, f"j{count // 2:06}")
    found = {name: await _page(store, *one, middle) for name, one in LISTS.items()}
    await store.close()
    return found


async def _page(store: Store, order: Order, wanted: JobFilter, middle: Key) -> float:
    times: list[float] = []
    for number in range(TIMES):
        began = time.perf_counter()
        async with store.read() as transaction:
            after = middle if number % 2 else None
            await list_jobs(transaction, wanted, after=after, limit=PAGE, order=order)
        times.append(1e3 * (time.perf_counter() - began))
    return median(times)


def main() -> int:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(prog="listing", description=__doc__)
    parser.add_argument("--jobs", type=int, nargs="+", default=[1000, 100_000])
    counts: list[int] = parser.parse_args().jobs
    with tempfile.TemporaryDirectory(prefix="fumarole-bench-") as folder:
        found = {count: asyncio.run(measure(Path(folder), count)) for count in counts}
    print("| ms, a page of 100 of | " + " | ".join(f"{count:,} jobs" for count in counts) + " |")
    print("|---|" + "---:|" * len(counts))
    for name in LISTS:
        print(f"| {name} | " + " | ".join(f"{found[count][name]:.1f}" for count in counts) + " |")
    return 0


if __name__ == "__main__":
    sys.exit(main())
