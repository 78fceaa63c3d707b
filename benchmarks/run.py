"""One run: measures everything in a plan, in turn, on every available peer."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from asyncio.subprocess import PIPE
from collections.abc import Collection, Iterable, Sequence
from contextlib import AsyncExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from benchmarks import growth, tls
from benchmarks.install import Programs
from benchmarks.native_programs import Backend, running_backend
from benchmarks.peers import Ground, Peer, Proxy, chp, envoy, fumarole, haproxy, nginx, relays
from benchmarks.peers import websockify as desktops
from benchmarks.plan import QUICK, Plan
from benchmarks.programs import Ended, end, off_the_proxies_core
from benchmarks.results import Results, this_machine
from benchmarks.works import ECHO, VARIED, WORKS, Work, run_work

PEERS: Final = (
    fumarole.GATEWAY,
    nginx.BARE,
    nginx.WITH_AUTH,
    haproxy.BARE,
    envoy.BARE,
    envoy.WITH_JWT,
    chp.BARE,
    relays.AIOHTTP,
    relays.PROTOCOL,
    desktops.BARE,
)
_FAILURES: Final = (OSError, RuntimeError, TimeoutError, Ended, ValueError)
OTHERS_SECONDS: Final = 1800.0
KEYSTROKES: Final = "keystrokes"
Running = Sequence[tuple[Peer, Proxy]]


class Run:
    """Measures; ``results`` holds the results so far."""

    def __init__(
        self, plan: Plan, programs: Programs, native: dict[str, Path], folder: Path
    ) -> None:
        self.plan = plan
        self._programs = programs
        self._native = native
        self._folder = folder
        self._backend = Backend(0, 0)
        self._began = time.monotonic()
        self._grounds = 0
        self.results = Results(machine=this_machine(programs.versions, quick=plan is QUICK))

    async def all(self) -> None:
        """Measure everything in the plan; note failures, and continue with the rest."""
        with off_the_proxies_core():
            async with running_backend(self._native["backend"]) as self._backend:
                await self._measure_proxies()
        await self._measure_others()

    async def some(self, names: Collection[str]) -> None:
        """Measure the works called *names*, and keystrokes where they are among them."""
        works = [work for work in WORKS if work.name in names]
        peers = [peer for peer in self._present() if any(_takes(peer, work) for work in works)]
        if peers:
            with off_the_proxies_core():
                async with (
                    running_backend(self._native["backend"]) as self._backend,
                    AsyncExitStack() as stack,
                ):
                    await self._measure_works(await self._start_all(peers, stack), works)
        if KEYSTROKES in names:
            await self._measure_keystrokes()

    async def _measure_proxies(self) -> None:
        peers = self._present()
        # Memory comes first, while the processes have done nothing yet.
        await self._measure_memory(peers)
        await self._measure_bus()
        await self._measure_routes()
        async with AsyncExitStack() as stack:
            running = await self._start_all(peers, stack)
            await self._measure_works(running)
            # Before the curves, which no budget judges: a run may be out of time for its last part.
            await self._measure_tls()
            await self._measure_growth(running)

    def say(self, text: str) -> None:
        """Print the progress."""
        print(f"[{time.monotonic() - self._began:4.0f} s] {text}", flush=True)

    def _is_late(self, what: str, *, part: float = 1.0) -> bool:
        """Return whether there is no time left for *what*: a run ends on any machine."""
        if time.monotonic() - self._began < self.plan.enough_seconds * part:
            return False
        text = f"left out, since the machine is slow or busy: {what}"
        self.results.problems.append(text)
        self.say(text)
        return True

    def _fail(self, what: str, error: Exception) -> None:
        text = f"{what}: {type(error).__name__}: {str(error)[-300:]}"
        self.results.problems.append(text)
        self.say(text)

    def _ground(self, name: str) -> Ground:
        self._grounds += 1
        folder = self._folder / f"{name}-{self._grounds}"
        folder.mkdir()
        return Ground(folder=folder, backend=self._backend, programs=self._programs)

    def _present(self) -> list[Peer]:
        there = [peer for peer in PEERS if peer.program in self._programs.found]
        for peer in PEERS:
            if peer not in there:
                why = self._programs.missing.get(peer.program, "not found")
                self.results.missing[peer.name] = why
                self.say(f"without {peer.name}: {why}")
        return there

    async def _start_all(
        self, peers: Iterable[Peer], stack: AsyncExitStack
    ) -> list[tuple[Peer, Proxy]]:
        running = []
        for peer in peers:
            try:
                proxy = await stack.enter_async_context(peer.start(self._ground(peer.name)))
            except _FAILURES as error:
                self._fail(f"{peer.name} did not start", error)
            else:
                running.append((peer, proxy))
        return running

    # What is measured

    async def _measure_memory(self, peers: Sequence[Peer]) -> None:
        for turn in range(self.plan.idle_rounds):
            for peer in peers:
                if not peer.desktop:
                    self.say(f"memory of {self.plan.idle} idle sockets, {turn + 1}: {peer.name}")
                    await self._measure_idle(peer)

    async def _measure_idle(self, peer: Peer) -> None:
        ground, load = self._ground(peer.name), self._native["load"]
        try:
            size = await growth.idle_bytes(peer, ground, self.plan.idle, load)
        except _FAILURES as error:
            self._fail(f"memory of {peer.name}", error)
        else:
            self.results.add_idle(peer.name, size / 1024)

    async def _measure_bus(self) -> None:
        self.say(f"{self.plan.events} publications")
        try:
            self.results.latencies["routable"] = await growth.publication_latency(
                self._ground("events"), self.plan.events
            )
        except _FAILURES as error:
            self._fail("the bus", error)

    async def _measure_routes(self) -> None:
        for count in self.plan.routes:
            self.say(f"GETs with {count} routes in the table")
            try:
                point = await growth.grow_routes(
                    self._ground("routes"),
                    count,
                    load=self._native["load"],
                    seconds=self.plan.seconds,
                )
            except _FAILURES as error:
                self._fail(f"{count} routes", error)
            else:
                self._keep(point)

    async def _measure_works(self, running: Running, works: Sequence[Work] = WORKS) -> None:
        for turn in range(self.plan.rounds):
            if turn and self._is_late(f"round {turn + 1}", part=0.75):
                return
            for work in works:
                self.say(f"round {turn + 1} of {self.plan.rounds}: {work.title}")
                # So no proxy is always the first, or always after the same one.
                first = turn * len(running) // self.plan.rounds
                for peer, proxy in (*running[first:], *running[:first]):
                    if _takes(peer, work):
                        await self._measure_one(work, proxy)

    async def _measure_tls(self) -> None:
        """Measure the works over TLS on proxies of their own."""
        if "load-tls" not in self._native:
            self.results.problems.append("without TLS: OpenSSL's headers are not installed")
            return
        certificate = tls.make_certificate(self._folder)
        async with AsyncExitStack() as stack:
            running = await self._start_all(
                [peer for peer in tls.peers(certificate) if peer.program in self._programs.found],
                stack,
            )
            for turn in range(self.plan.rounds):
                if turn and self._is_late(f"round {turn + 1} over TLS", part=0.85):
                    return
                for work in tls.WORKS:
                    self.say(f"round {turn + 1} of {self.plan.rounds}: {work.title}")
                    for _, proxy in running:
                        await self._measure_one(work, proxy, load="load-tls")

    async def _measure_one(self, work: Work, proxy: Proxy, *, load: str = "load") -> None:
        try:
            sample = await run_work(
                work,
                proxy,
                load=self._native[load],
                folder=self._folder,
                seconds=self.plan.seconds,
            )
        except _FAILURES as error:
            self._fail(f"{work.name} on {proxy.name}", error)
        else:
            self.results.add(sample)

    async def _measure_growth(self, running: Running) -> None:
        growing = [proxy for peer, proxy in running if peer.grows]
        bound = growth.socket_bound()
        curves = (("sockets", ECHO, self.plan.sockets), ("in flight", VARIED, self.plan.in_flight))
        for curve, work, counts in curves:
            for count in sorted({min(count, bound) for count in counts}):
                if self._is_late(f"{count} {curve}"):
                    continue
                self.say(f"{curve}: {count}")
                for proxy in growing:
                    await self._grow_one(curve, work, proxy, count)

    async def _grow_one(self, curve: str, work: Work, proxy: Proxy, count: int) -> None:
        try:
            point = await growth.grow(
                curve,
                work,
                proxy,
                count,
                load=self._native["load"],
                folder=self._folder,
                seconds=self.plan.seconds,
            )
        except _FAILURES as error:
            self._fail(f"{count} {curve} on {proxy.name}", error)
        else:
            self._keep(point)

    async def _measure_others(self) -> None:
        """Run the benchmarks that are programs of their own."""
        if self.plan.gateways:
            self.say(f"events for {self.plan.gateways} gateways")
            count = str(self.plan.gateways)
            told = await self._output("benchmarks.many_gateways", "--gateways", count)
            if told:
                self.results.latencies["many"] = growth.Latency(**json.loads(told))
        sockets, followers = self.plan.revoked, self.plan.followers
        self.say(
            f"{sockets} sockets of two gateways revoked, a Redis lost by {followers} followers"
        )
        many = ("--sockets", str(sockets), "--followers", str(followers))
        told = await self._output("benchmarks.revocations", *many)
        self.results.revocations = json.loads(told) if told else {}
        if self.plan.attacks:
            self.say("what one attacker costs others")
            told = await self._output("benchmarks.attackers", "--rounds", str(self.plan.attacks))
            self.results.attackers = json.loads(told) if told else []
        if self.plan.keys:
            await self._measure_keystrokes()
        if self.plan.tables and find_spec("benchmarks.routes") is not None:
            self.say("big tables")
            self.results.tables = await self._output("benchmarks.routes")
        if self.plan.submitted:
            self.say(f"{self.plan.submitted} jobs submitted")
            told = await self._output("benchmarks.submission", "--jobs", str(self.plan.submitted))
            self.results.submission = json.loads(told) if told else {}
        if self.plan.beside:
            self.say(f"{self.plan.beside:,} jobs beside")
            told = await self._output("benchmarks.many_jobs", "--jobs", str(self.plan.beside))
            self.results.many_jobs = json.loads(told) if told else {}
            self.say(f"{self.plan.beside:,} jobs with five pods each")
            told = await self._output("benchmarks.large_site", "--jobs", str(self.plan.beside))
            self.results.large_site = json.loads(told) if told else {}
        if self.plan.listed:
            self.say(f"lists of {self.plan.listed:,} jobs")
            counts = ("--jobs", "1000", str(self.plan.listed))
            self.results.lists = await self._output("benchmarks.listing", *counts)

    async def _measure_keystrokes(self) -> None:
        self.say(f"{self.plan.keys} keys typed on each way to a terminal")
        told = await self._output("benchmarks.keystrokes", "--keys", str(self.plan.keys))
        self.results.keystrokes = json.loads(told) if told else []

    async def _output(self, module: str, *arguments: str) -> str:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            module,
            *arguments,
            stdout=PIPE,
            stderr=PIPE,
            start_new_session=True,
        )
        try:
            async with asyncio.timeout(OTHERS_SECONDS):
                told, said = await process.communicate()
            if process.returncode:
                raise Ended(said.decode(errors="replace")[-300:])
        except (TimeoutError, Ended) as error:
            await end(process)
            self._fail(module, error)
            return ""
        return told.decode()

    def _keep(self, point: growth.Point) -> None:
        if point.sample.problem:
            where = f"{point.count} {point.curve} on {point.sample.proxy}"
            self.results.problems.append(f"{where}: {point.sample.problem}")
        else:
            self.results.points.append(point)


def _takes(peer: Peer, work: Work) -> bool:
    """Return whether *peer* does such work; the gateway does both kinds."""
    return peer.desktop == work.desktop or peer is fumarole.GATEWAY
