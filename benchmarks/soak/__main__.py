"""``python -m benchmarks.soak --hours 24 --out FOLDER``: runs a soak. SIGINT or SIGTERM end it.

The results are written into the folder with every sample. With ``--docs`` the page is made at the
end; ``python -m benchmarks.soak.page FOLDER`` makes docs/soak.md from the results at any time.
"""

from __future__ import annotations

import argparse
import asyncio
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import asdict
from pathlib import Path
from typing import Final

import uvloop

from benchmarks.peers.fumarole import running_gateway
from benchmarks.programs import end
from benchmarks.results import this_machine
from benchmarks.soak import page
from benchmarks.soak.changes import Changes
from benchmarks.soak.plan import APPS, SOCKETS, WORKERS, Plan, TooFewDescriptors, raise_descriptors
from benchmarks.soak.record import Record
from benchmarks.soak.requests import Requests
from benchmarks.soak.sampling import OPS_FAILURES, Gateway, cpu_seconds
from benchmarks.soak.sessions import Sessions
from benchmarks.soak.sockets import Crowd

ROOT: Final = Path(__file__).parents[2]
_OPEN_SECONDS: Final = 600.0


class Soak:
    """One soak; :attr:`record` holds its results so far."""

    def __init__(self, plan: Plan, out: Path) -> None:
        self._plan = plan
        self._out = out
        self._stop = asyncio.Event()
        machine = this_machine({}, quick=False)
        self.record = Record(
            machine=asdict(machine),
            hours=plan.seconds / 3600,
            sockets=plan.sockets,
            workers=plan.workers,
            sessions=plan.sessions,
            sample_seconds=plan.sample_every,
        )

    def stop(self) -> None:
        """End the soak soon, with the results so far."""
        self._stop.set()

    async def run(self) -> None:
        """Run the soak to its end.

        Raises:
            OSError, RuntimeError, TimeoutError: If it cannot continue; the results are written.
        """
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, self.stop)
        try:
            await self._run()
            self.record.ended = "interrupted" if self._stop.is_set() else "finished"
        except BaseException as error:
            self.record.ended = f"failed: {error!r}"
            raise
        finally:
            self.record.write(self._out)

    async def _run(self) -> None:
        with tempfile.TemporaryDirectory(prefix="fumarole-soak-") as name:
            folder = Path(name)
            async with _running_apps() as (apps, ports):
                sessions = Sessions(ports, self._plan.sessions)
                routes = sessions.routes()
                running = running_gateway(folder, routes, workers=self._plan.workers)
                async with running as (proxy, orchestrator):
                    sessions.open(orchestrator, routes)
                    gateway = Gateway(proxy.group, folder)
                    crowd = Crowd(self._plan, proxy.port, sessions, self.record)
                    requests = Requests(self._plan, proxy.port, sessions, self.record, crowd)
                    changes = Changes(self._plan, orchestrator, sessions, crowd, requests, gateway)
                    async with asyncio.TaskGroup() as tasks:
                        parts = [tasks.create_task(crowd.run())]
                        if await self._until_open(crowd):
                            crowd.leaves = True
                            parts += [tasks.create_task(part.run()) for part in (requests, changes)]
                            await self._sample(gateway, crowd, apps)
                        for part in parts:
                            part.cancel()

    async def _until_open(self, crowd: Crowd) -> bool:
        """Return once all sockets have been opened; False if the soak was stopped before."""
        deadline = time.monotonic() + _OPEN_SECONDS
        while crowd.open < self._plan.sockets * 0.99:
            if time.monotonic() > deadline:
                raise TimeoutError(f"{crowd.open} of {self._plan.sockets} sockets have opened")
            if await self._stopped_within(0.5):
                return False
        return True

    async def _stopped_within(self, seconds: float) -> bool:
        with suppress(TimeoutError):
            async with asyncio.timeout(max(0.0, seconds)):
                await self._stop.wait()
        return self._stop.is_set()

    async def _sample(self, gateway: Gateway, crowd: Crowd, apps: int) -> None:
        began = time.monotonic()
        due, told = began, 0
        while not await self._stopped_within(due - time.monotonic()):
            now = time.monotonic() - began
            self.record.elapsed_seconds = round(now, 1)
            if now > self._plan.seconds:
                return
            values = {"seconds": now}
            try:
                values |= await gateway.sample()
            except OPS_FAILURES as error:
                self.record.fail("no answer for operators", repr(error))
            values |= {
                "sockets": float(crowd.open),
                "load late ms": crowd.take_longest_tick() * 1e3,
                "load CPU s": time.process_time(),
                "apps CPU s": cpu_seconds(apps),
                "wrong": float(sum(self.record.wrong.values())),
            }
            self.record.sample(values)
            self.record.write(self._out)
            if now >= told:
                told += max(60, int(self._plan.seconds / 100))
                memory = values.get("gateway PSS MiB", 0.0)
                print(
                    f"[{now:6.0f} s] {crowd.open} sockets, {memory:.1f} MiB, "
                    f"wrong: {self.record.wrong or 0}",
                    flush=True,
                )
            due += self._plan.sample_every


@asynccontextmanager
async def _running_apps() -> AsyncIterator[tuple[int, list[int]]]:
    command = [sys.executable, "-m", "benchmarks.soak.apps", str(APPS)]
    process = await asyncio.create_subprocess_exec(
        *command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    try:
        ports = [int(port) for port in (await process.stdout.readline()).split()]
        yield process.pid, ports
    finally:
        await end(process)


def main() -> int:
    """Run a soak; 1 where a response was wrong, 2 where it cannot be run here."""
    parser = argparse.ArgumentParser(prog="benchmarks.soak", description=__doc__)
    parser.add_argument("--hours", type=float, default=24.0, help="may have a fraction")
    parser.add_argument("--sockets", type=int, default=SOCKETS)
    parser.add_argument("--workers", type=int, default=WORKERS, help="2 at least")
    parser.add_argument("--out", type=Path, default=ROOT / ".bench" / "soak")
    parser.add_argument("--docs", type=Path, help="where the page is written at the end")
    told = parser.parse_args()
    if told.workers < 2 or told.hours <= 0 or told.sockets < 1:
        parser.error("there is nothing to be seen so")
    plan = Plan(seconds=told.hours * 3600, sockets=told.sockets, workers=told.workers)
    try:
        raise_descriptors(plan)
    except TooFewDescriptors as error:
        print(error, file=sys.stderr)
        return 2
    print(
        f"{plan.sockets:,} sockets, {plan.workers} workers, {told.hours:g} h; results: {told.out}",
        flush=True,
    )
    record = uvloop.run(_run(plan, told.out))
    print(f"{record.ended} after {record.elapsed_seconds:.0f} s; wrong: {record.wrong or 0}")
    if told.docs is not None and record.columns:
        print(f"written: {page.write(told.out, told.docs)}")
    return 1 if record.wrong else 0


async def _run(plan: Plan, out: Path) -> Record:
    soak = Soak(plan, out)
    await soak.run()
    return soak.record


if __name__ == "__main__":
    sys.exit(main())
