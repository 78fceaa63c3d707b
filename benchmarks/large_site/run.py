"""Measures a controller, and the one that takes over from it, with many copies of one job."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import psutil

from benchmarks.large_site.copies import MODEL, Copies
from benchmarks.large_site.front import Front, serving
from benchmarks.large_site.measured import NOTES
from benchmarks.sites import INSTANCE, NAMESPACE, cpu_seconds_of
from controller.kube.client import Kube
from controller.kube.kinds import PODS, VCJOBS
from controller.store.database import Store
from deploy.local.cluster import EmbeddedCluster
from tests.controller.postgres import running_postgres
from tests.controller.running import Controller, eventually, running
from tests.programs import RedisServer, redis_program

SECONDS: Final = 600.0
REST_SECONDS: Final = 10.0
ROUNDS: Final = 40
BURST: Final = 25
PAUSE_SECONDS: Final = 0.5
LIVES: Final = 30
_MEASURED: Final = "benchmarks.large_site.measured"


@dataclass(slots=True)
class Beat:
    """The longest stall of the loop, and the samples of the processor up to then."""

    at: float
    longest_seconds: float
    longest_cpu_seconds: float
    parts: dict[str, int]


@dataclass(slots=True)
class Reading:
    """The record of a measured controller so far."""

    path: Path
    looks: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    beats: list[Beat] = field(default_factory=list)
    _offset: int = 0

    def update(self) -> None:
        """Read the new lines."""
        if not self.path.exists():
            return
        with self.path.open() as file:
            file.seek(self._offset)
            text = file.read()
        whole = text[: text.rfind("\n") + 1]
        self._offset += len(whole.encode())
        for line in whole.splitlines():
            kind, at, rest = line.split(" ", 2)
            if kind == "look":
                self.looks[rest].append(float(at))
            else:
                wall, cpu, parts = rest.split(" ", 2)
                self.beats.append(Beat(float(at), float(wall), float(cpu), json.loads(parts)))

    def first_look_after(self, at: float, job: str) -> float | None:
        """Return when the job was first observed after a time."""
        return next((when for when in self.looks.get(job, ()) if when >= at), None)

    def longest_turn(self, since: float, until: float) -> tuple[float, float]:
        """Return the longest stall of the loop: in wall-clock and in its own processor time."""
        within = [one for one in self.beats if since < one.at <= until]
        return (
            max((one.longest_seconds for one in within), default=0.0),
            max((one.longest_cpu_seconds for one in within), default=0.0),
        )

    def parts(self, since: float, until: float) -> dict[str, int]:
        """Return the samples by part in between."""
        before = [one.parts for one in self.beats if one.at <= since][-1:] or [{}]
        after = [one.parts for one in self.beats if one.at <= until][-1:] or [{}]
        return {name: count - before[0].get(name, 0) for name, count in after[0].items()}


@dataclass(slots=True)
class LargeSite:
    """The parts of the site."""

    front: Front
    copies: Copies
    jobs: int
    pods: int
    make: Any

    @property
    def all_jobs(self) -> set[str]:
        """The ids of all copies."""
        return {
            self.copies.job_of(number) for number in range(0, self.pods, self.pods // self.jobs)
        }


class Measured:
    """A controller whose record is read."""

    def __init__(self, controller: Controller, notes: Path) -> None:
        self.controller = controller
        self.notes = Reading(notes)

    @property
    def process(self) -> psutil.Process:
        """Its process."""
        return psutil.Process(self.controller.pid)

    def peak_mib(self) -> float:
        """Return the peak of resident memory."""
        status = Path(f"/proc/{self.controller.pid}/status").read_text()
        (line,) = (one for one in status.splitlines() if one.startswith("VmHWM"))
        return int(line.split()[1]) / 1024

    async def has_looked_at(self, jobs: set[str]) -> float:
        """Return when the last of these jobs was first observed."""

        async def whole() -> bool:
            self.notes.update()
            return jobs <= self.notes.looks.keys()

        await eventually(whole, seconds=SECONDS, what=f"{self.notes.path}: not all were looked at")
        return max(self.notes.looks[job][0] for job in jobs)


@asynccontextmanager
async def running_site(folder: Path, jobs: int, pods_each: int) -> AsyncIterator[LargeSite]:
    """Run a site whose cluster and store hold *jobs* copies of a running job."""
    async with AsyncExitStack() as stack:
        postgres = stack.enter_context(running_postgres())
        url = postgres.new_database()
        redis = stack.enter_context(RedisServer(redis_program(), folder))
        cluster = await stack.enter_async_context(EmbeddedCluster())
        front, kubeconfig = await stack.enter_async_context(
            serving(cluster.kubeconfig("controller"), folder)
        )
        admin = await stack.enter_async_context(Kube.connect(cluster.kubeconfig("admin")))

        def make(name: str, **settings: str) -> Controller:
            return Controller(
                folder / "controllers",
                kubeconfig=kubeconfig,
                redis_url=redis.url,
                instance=INSTANCE,
                name=name,
                FUMAROLE_CONTROLLER_NAMESPACE=NAMESPACE,
                FUMAROLE_CONTROLLER_STORE_URL=url,
                **settings,
            )

        async with running(make("first")) as first:
            await first.submit(MODEL, replicas=pods_each)
            await first.until(MODEL, "RUNNING", seconds=120)
            await asyncio.sleep(2.0)  # by then the store holds everything about it
        copies = await _copies(admin, jobs)
        store = Store(url)
        await store.open()
        try:
            await copies.write_rows(store)
        finally:
            await store.close()
        front.copies = copies
        yield LargeSite(front, copies, jobs, jobs * pods_each, make)


async def _copies(admin: Kube, jobs: int) -> Copies:
    (job,) = await admin.list(VCJOBS, labels=f"fumarole.dev/job={MODEL}")
    pods = await admin.list(PODS, labels=f"fumarole.dev/job={MODEL}")
    typed = [{"kind": kind.kind, "apiVersion": kind.api} for kind in (VCJOBS, PODS)]
    return Copies(typed[0] | job, [typed[1] | pod for pod in pods], jobs)


async def measure(jobs: int, pods_each: int, folder: Path) -> dict[str, Any]:
    """Return the costs of the site."""
    async with running_site(folder, jobs, pods_each) as site, AsyncExitStack() as stack:
        began = time.monotonic()
        leader = await _start(site, "leader", folder, stack)
        caught_up = await leader.has_looked_at(site.all_jobs)
        found: dict[str, Any] = {
            "jobs": jobs,
            "pods": site.pods,
            "pod_bytes": site.copies.bytes_each,
            "caught_up_s": caught_up - began,
        }
        standby = await _start(site, "standby", folder, stack)
        found |= await _at_rest(leader)
        found |= await _changes(site, leader)
        found |= await _lives(leader)
        found |= _limits(leader, began)
        found["standing_by_mib"] = standby.process.memory_info().rss / 2**20
        found |= await _take_over(site, leader, standby)
        return found


async def _start(site: LargeSite, name: str, folder: Path, stack: AsyncExitStack) -> Measured:
    notes = folder / f"{name}.notes"
    controller = site.make(name, **{NOTES: str(notes)})
    controller.program = (sys.executable, "-m", _MEASURED)
    stack.push_async_callback(controller.kill)
    await controller.start(ready=False)
    return Measured(controller, notes)


def _limits(leader: Measured, began: float) -> dict[str, float]:
    wall, cpu = leader.notes.longest_turn(began, time.monotonic())
    return {
        "peak_mib": leader.peak_mib(),
        "resident_mib": leader.process.memory_info().rss / 2**20,
        "stall_ms": 1e3 * cpu,
        "stall_by_clock_ms": 1e3 * wall,
    }


async def _at_rest(leader: Measured) -> dict[str, float]:
    await asyncio.sleep(REST_SECONDS / 2)
    before, began = cpu_seconds_of(leader.process), time.monotonic()
    await asyncio.sleep(REST_SECONDS)
    used = cpu_seconds_of(leader.process) - before
    return {"at_rest_ms": 1e3 * used / (time.monotonic() - began)}


async def _changes(site: LargeSite, leader: Measured) -> dict[str, float]:
    """Change some pods at once, repeatedly; return the times until their jobs were observed."""
    sent: list[tuple[float, str]] = []
    step = max(1, site.pods // (ROUNDS * BURST))
    for turn in range(ROUNDS):
        numbers = range(turn * BURST * step, (turn + 1) * BURST * step, step)
        pods = [number % site.pods for number in numbers]
        sent += [(time.monotonic(), site.copies.job_of(number)) for number in pods]
        site.front.change_pods(pods)
        await asyncio.sleep(PAUSE_SECONDS)
    took = await _until_looked_at(leader, sent)
    return {"changes": len(took), "p50_s": _quantile(took, 0.5), "p99_s": _quantile(took, 0.99)}


async def _until_looked_at(measured: Measured, sent: Sequence[tuple[float, str]]) -> list[float]:
    async def took() -> list[float] | None:
        measured.notes.update()
        looks = [measured.notes.first_look_after(at, job) for at, job in sent]
        return None if None in looks else [one for one in looks if one is not None]

    looks = await eventually(took, seconds=SECONDS, what="changes were not looked at")
    return [look - at for look, (at, _) in zip(looks, sent, strict=True)]


async def _lives(leader: Measured) -> dict[str, Any]:
    """Run further jobs beside the others; return the cost of each, by part."""
    process, controller = leader.process, leader.controller
    before, began = cpu_seconds_of(process), time.monotonic()
    await asyncio.sleep(REST_SECONDS)
    rest = (cpu_seconds_of(process) - before) / (time.monotonic() - began)
    before, began = cpu_seconds_of(process), time.monotonic()
    names = [f"life-{number}" for number in range(LIVES)]
    for name in names:
        await controller.submit(name, invocation={"command": ["true"]})
    for name in names:
        await controller.until(name, "SUCCESS", "FAILURE", seconds=SECONDS)
    used, ended = cpu_seconds_of(process) - before, time.monotonic()
    await asyncio.sleep(1.0)
    leader.notes.update()
    parts = leader.notes.parts(began, ended)
    total = max(1, sum(parts.values()))
    life = 1e3 * (used - rest * (ended - began)) / LIVES
    shares = {name: count / total for name, count in parts.items() if count}
    ordered = sorted(shares.items(), key=lambda item: -item[1])
    return {"lives": LIVES, "life_ms": life, "parts": dict(ordered)}


async def _take_over(site: LargeSite, leader: Measured, standby: Measured) -> dict[str, float]:
    """Kill the leader; return how long the standby took to do its work."""
    pods = range(0, site.pods, max(1, site.pods // BURST))
    killed = time.monotonic()
    await leader.controller.kill()
    site.front.change_pods(pods)
    sent = [(killed, site.copies.job_of(number)) for number in pods]
    first = max(await _until_looked_at(standby, sent))
    everything = await standby.has_looked_at(site.all_jobs)
    led = min(looks[0] for looks in standby.notes.looks.values())
    wall, cpu = standby.notes.longest_turn(killed, time.monotonic())
    return {
        "leads_s": led - killed,
        "change_while_nobody_led_s": first,
        "all_looked_at_s": everything - killed,
        "standby_peak_mib": standby.peak_mib(),
        "standby_stall_ms": 1e3 * cpu,
        "standby_stall_by_clock_ms": 1e3 * wall,
    }


def _quantile(values: Iterable[float], part: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))]
