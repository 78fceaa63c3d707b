"""Runs real processes under every fault: no wrong access, no wrong refusal, agreement afterwards.

The long form writes docs/chaos.md, the table of faults and results.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest
from redis.asyncio import Redis

from shared.bus import BusReader, Keys, connect
from shared.events import decode_event
from tests.controller.postgres import running_postgres
from tests.controller.running import Controller, eventually
from tests.protocol.lossy import LossyProxy
from tests.protocol.site import JOBS, Findings, Site, VisitedSession, site
from tests.redis_nodes import Node, free_ports, running, sentinel_site

TABLE = Path(__file__).parents[2] / "docs" / "chaos.md"
EQUAL_SECONDS = 2.0
SLEEP_SECONDS = 20.0
LOOKING_SECONDS = 1.0


@dataclass
class Run:
    """The result of one fault."""

    fault: str
    equal_seconds: float
    late_seconds: float
    answers: int
    wrong: int
    refused: int
    twice: int


@dataclass
class Scene:
    """A site, its Redis, the proxies between them, and the results so far."""

    site: Site
    redis: Redis
    node: Node
    proxy: LossyProxy | None
    runs: list[Run]
    master: Node | None = None
    proxies: Sequence[LossyProxy] = ()
    """Each controller's, where there are several."""
    changes: int = 6
    """How many sessions are opened while messages are lost; two of three are withdrawn again."""

    async def leader(self) -> Controller | None:
        """Return the current leader."""
        for one in self.site.controllers:
            if await one.leads():
                return one
        return None

    async def churn(self, changes: int) -> list[VisitedSession]:
        """Open, end and revoke sessions; return the sessions that were withdrawn."""
        withdrawn = []
        for number in range(changes):
            visit = await self.site.enter(JOBS[number % len(JOBS)])
            if number % 3:
                await (self.site.leave if number % 3 == 1 else self.site.shut_out)(visit)
                withdrawn.append(visit)
        return withdrawn

    async def suffer(
        self, name: str, fault: Callable[[Scene], Awaitable[float]], *, within: float
    ) -> None:
        """Cause *fault*, which returns when the cause has ended, and record the result."""
        before = self.site.token(self.site.visits[0].sid, self.site.visits[0].job)
        sid = self.site.visits[0].sid
        await self.site._post(self.site.gateways[0], sid, *before)
        self.site.findings.answers = 0
        healed_at = await fault(self)
        late = asyncio.ensure_future(lateness())
        reader = BusReader(self.redis, Keys(self.site.controller.instance))
        took = await self.site.until_equal(healed_at, reader)
        late.cancel()
        held_up = await late
        self.site.stopped.clear()
        await asyncio.sleep(LOOKING_SECONDS)
        await self.site.try_everywhere(sid, *before)
        await self._all_know()
        found = self.site.findings
        counts = found.answers, len(found.wrong), len(found.refused), len(found.twice)
        run = Run(name, took, held_up, *counts)
        self.runs.append(run)
        self.site.findings = Findings(opened=found.opened)
        assert not found.wrong, (name, found.wrong[:3])
        assert not found.refused, (name, found.refused[:3])
        assert not found.twice, (name, found.twice[:3])
        assert took - held_up <= within, (name, took, held_up)

    async def _all_know(self) -> None:
        for visit in self.site.visits:
            for gateway in self.site.gateways:
                status = await self.site.status(gateway, visit)
                assert (status == 200) is visit.good, (visit, status)
        self.site.visits = [visit for visit in self.site.visits if visit.good][:6]


async def lateness() -> float:
    """Return, when cancelled, the total delay of timers: other programs use this machine too."""
    late = 0.0
    try:
        while True:
            began = time.monotonic()
            await asyncio.sleep(0.01)
            late += max(0.0, time.monotonic() - began - 0.015)
    except asyncio.CancelledError:
        return late


# The faults. Each function returns when its fault is over.


async def messages_lost(scene: Scene) -> float:
    """30 % of messages are lost, 30 % doubled, 30 % delayed."""
    assert scene.proxy is not None
    scene.proxy.loss = 0.3
    await scene.churn(scene.changes)
    scene.proxy.loss = 0.0
    return time.monotonic()


async def flushed(scene: Scene) -> float:
    await scene.redis.flushall()
    return time.monotonic()


async def killed_and_back_empty(scene: Scene) -> float:
    scene.node.kill()
    shutil.rmtree(scene.node.folder / "appendonlydir")
    await asyncio.sleep(3)
    return await _start(scene.node)


async def append_only_file_lost(scene: Scene) -> float:
    """The append-only file loses some writes: the disk had not kept them."""
    folder, copy = scene.node.folder / "appendonlydir", scene.node.folder / "copy"
    shutil.copytree(folder, copy)
    await scene.churn(4)
    scene.node.kill()
    shutil.rmtree(folder)
    copy.rename(folder)
    return await _start(scene.node)


async def _start(node: Node) -> float:
    node.start()
    await node.until("True", "PING")
    return time.monotonic()


async def gateway_stopped(scene: Scene) -> float:
    """A stopped gateway never serves what ended meanwhile, and refuses nothing that is valid."""
    gateway = scene.site.gateways[1]
    gone = [await scene.site.enter(job) for job in JOBS]
    scene.site.stop_gateway(gateway)
    await scene.site.leave(gone[0])
    await scene.site.shut_out(gone[1])
    await asyncio.sleep(SLEEP_SECONDS)
    asking = [asyncio.ensure_future(scene.site.status(gateway, visit)) for visit in gone]
    await asyncio.sleep(0.2)
    scene.site.go_on(gateway)
    healed_at = time.monotonic()
    assert [await one for one in asking] == [410, 401, 200]
    return healed_at


async def controller_killed(scene: Scene) -> float:
    changing = asyncio.ensure_future(scene.churn(20))
    await asyncio.sleep(0.7)
    await scene.site.controller.kill()
    await asyncio.gather(changing, return_exceptions=True)
    # Requests that were on their way may or may not have taken effect.
    scene.site.visits = [v for v in scene.site.visits if v.good]
    await scene.site.controller.start()
    return time.monotonic()


async def failed_over(scene: Scene) -> float:
    """The replica misses the last writes, and becomes the master."""
    replica: Node = scene.node
    os.kill(replica.pid, signal.SIGSTOP)
    await scene.churn(4)
    await asyncio.sleep(0.2)
    assert scene.master is not None
    scene.master.kill()
    os.kill(replica.pid, signal.SIGCONT)
    await replica.until("'master'", "INFO", "replication")
    return time.monotonic()


async def old_leader_goes_on(scene: Scene) -> float:
    """A paused leader's requests arrive when another one leads; then the old leader resumes."""
    old = await eventually(scene.leader, what="nobody leads")
    (new,) = (one for one in scene.site.controllers if one is not old)
    proxy = scene.proxies[scene.site.controllers.index(old)]
    scene.site.controller = new
    changing = asyncio.ensure_future(scene.churn(6))
    await asyncio.sleep(0.7)
    proxy.hold()
    await proxy.until_kept(b"EVALSHA")
    os.kill(old.pid, signal.SIGSTOP)
    try:
        await eventually(new.leads, seconds=60, what="nobody took over")
        await changing
        proxy.forward_held()
        await asyncio.sleep(0.1)
    finally:
        os.kill(old.pid, signal.SIGCONT)
    return time.monotonic()


@asynccontextmanager
async def epochs_heard(scene: Scene) -> AsyncIterator[list[str]]:
    """Collect the epochs of all messages published meanwhile, each change once."""
    heard: list[str] = []

    async def listen() -> None:
        reader = BusReader(scene.redis, Keys(scene.site.controller.instance))
        async with reader.subscribe() as messages:
            async for message in messages:
                epoch = decode_event(message).epoch
                if heard[-1:] != [epoch]:
                    heard.append(epoch)

    listening = asyncio.ensure_future(listen())
    try:
        yield heard
    finally:
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)


@asynccontextmanager
async def two_controllers(folder: Path, store_url: str) -> AsyncIterator[Scene]:
    """Run two controllers; each reaches Redis by a proxy of its own."""
    node = Node(folder / "redis", free_ports(1)[0])
    proxies = [LossyProxy(node.port, Random(number)) for number in range(2)]
    async with running([node]), proxies[0].running(), proxies[1].running():
        url = f"redis://127.0.0.1:{node.port}"
        urls = [proxy.url for proxy in proxies]
        client = connect(url)
        async with (
            site(folder, redis_urls=urls, gateway_url=url, workers=2, store_url=store_url) as one,
            watched(one),
        ):
            yield Scene(one, client, node, None, [], proxies=proxies)
        await client.aclose()


@asynccontextmanager
async def behind_a_proxy(folder: Path, *, workers: int) -> AsyncIterator[Scene]:
    options = ("--appendonly", "yes", "--appendfsync", "always")
    node = Node(folder / "redis", free_ports(1)[0], *options)
    proxy = LossyProxy(node.port, Random(7))
    async with running([node]), proxy.running():
        client = connect(f"redis://127.0.0.1:{node.port}")
        url = f"redis://127.0.0.1:{node.port}"
        async with (
            site(folder, redis_urls=[url], gateway_url=proxy.url, workers=workers) as one,
            watched(one),
        ):
            yield Scene(one, client, node, proxy, [])
        await client.aclose()


@asynccontextmanager
async def watched(one: Site) -> AsyncIterator[None]:
    """Let visitors request all sessions all the time."""
    for job in JOBS:
        await one.enter(job)
    looking = [asyncio.ensure_future(one.look(gateway)) for gateway in one.gateways]
    try:
        yield
    finally:
        for task in looking:
            task.cancel()
        await asyncio.gather(*looking, return_exceptions=True)
    assert not any(task.done() and not task.cancelled() for task in looking)


@pytest.mark.timeout(240)
async def test_a_short_chaos_run_keeps_all_promises(tmp_path: Path) -> None:
    async with behind_a_proxy(tmp_path, workers=1) as scene:
        scene.changes = 3
        # The machine of ordinary test runs is busy; the long form uses the promised bound.
        await scene.suffer("messages", messages_lost, within=5 * EQUAL_SECONDS)
        await scene.suffer("FLUSHALL", flushed, within=5 * EQUAL_SECONDS)


@pytest.mark.long
@pytest.mark.needs("postgres")
@pytest.mark.timeout(1800)
async def test_every_fault_keeps_all_promises(tmp_path: Path) -> None:
    runs: list[Run] = []
    (tmp_path / "a").mkdir()
    async with behind_a_proxy(tmp_path / "a", workers=2) as scene:
        scene.runs = runs
        for name, fault in FAULTS.items():
            for _ in range(3):
                await scene.suffer(name, fault, within=EQUAL_SECONDS)
    for number in range(3):
        folder = tmp_path / f"s{number}"
        folder.mkdir()
        async with (
            sentinel_site(folder) as redis,
            site(folder, redis_urls=[redis.url], gateway_url=redis.url, workers=2) as one,
            watched(one),
        ):
            client = connect(redis.url)
            scene = Scene(one, client, redis.replica, None, runs, redis.master)
            name = "Sentinel failover that forgets writes"
            await scene.suffer(name, failed_over, within=EQUAL_SECONDS)
            await client.aclose()
    (tmp_path / "two").mkdir()
    with running_postgres() as postgres:
        async with two_controllers(tmp_path / "two", postgres.new_database()) as scene:
            scene.runs = runs
            for _ in range(3):
                async with epochs_heard(scene) as heard:
                    await scene.suffer(
                        "the leader stopped until another one leads, then going on",
                        old_leader_goes_on,
                        within=EQUAL_SECONDS,
                    )
                # The old leader's epoch and the new one's, and nothing of the old one's after that.
                assert len(heard) == len(set(heard)) == 2, heard
    TABLE.write_text(table(runs))


FAULTS: dict[str, Callable[[Scene], Awaitable[float]]] = {
    "30 % of messages lost, 30 % doubled, 30 % delayed": messages_lost,
    "Redis killed, back empty after 3 s": killed_and_back_empty,
    "`FLUSHALL`": flushed,
    "append-only file lost its end": append_only_file_lost,
    "a gateway stopped for 20 s": gateway_stopped,
    "controller killed while it publishes": controller_killed,
}

INTRODUCTION = """# Under faults

This page shows how the whole system behaves under faults: real processes, a real Redis, real
failovers. `pytest tests/protocol/test_chaos.py -m long` writes it.

The setup of a run:

- two gateways of two workers each, and one controller;
- a real Redis behind a proxy that can lose messages;
- three jobs on the embedded cluster, whose programs name themselves in every answer;
- for a stopped leader: two controllers on PostgreSQL. The messages that the first leader had sent
  arrive only when the other one leads;
- for the failovers: a master, a replica and a Sentinel.

During a run every session is requested at both gateways, about ten times a second. Sessions are
opened, ended and revoked.

The columns:

- *equal after*: the time from the end of the fault until the controller, both gateways and all
  workers report the same epoch, seq and hash, and Redis holds it. It is that of the slowest run.
- *machine busy*: how much of that time the test's own timers were late, because other programs
  used the processor.
- *answers*: how many answers were checked, over all runs.
- *wrong target*: answers by a program other than the session's.
- *refused*: answers other than the program's for a session that was good, except those of a
  gateway while it was stopped.
- *twice*: tokens that were opened twice. After each fault one token is tried again at both
  gateways.

| fault | runs | equal after (s) | machine busy (s) | answers | wrong target | refused | twice |
|---|---|---|---|---|---|---|---|
"""


def table(runs: list[Run]) -> str:
    """Return the text of docs/chaos.md."""
    rows = []
    for name in dict.fromkeys(run.fault for run in runs):
        same = [run for run in runs if run.fault == name]
        worst = max(same, key=lambda run: run.equal_seconds)
        counted = ("answers", "wrong", "refused", "twice")
        cells = [name, str(len(same)), f"{worst.equal_seconds:.2f}", f"{worst.late_seconds:.2f}"]
        cells += [str(sum(getattr(run, what) for run in same)) for what in counted]
        rows.append(f"| {' | '.join(cells)} |\n")
    return INTRODUCTION + "".join(rows)
