"""Leaders are killed at random under many short jobs, while the API server misbehaves.

Every job ends once, what is told of it is complete and in order, also to a receiver of webhooks
that refuses some, and the ledger says what the cluster's own record says. The short form is part
of every run; the long one is five minutes.
"""

from __future__ import annotations

import asyncio
import base64
import json
import random
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from controller.kube.client import Kube
from controller.kube.kinds import PODS, VCJOBS
from controller.volcano.observed import read_pod
from deploy.local.cluster import EmbeddedCluster
from tests.controller.postgres import Postgres
from tests.controller.running import SIGNER, Controller, eventually, running
from tests.controller.webhooks.receiving import SECRET, Request, Server, response
from tests.programs import RedisServer
from tests.shared.samples import make_claims

pytestmark = [pytest.mark.needs("postgres"), pytest.mark.timeout(1500)]

FINAL = ("SUCCESS", "FAILURE", "EXPIRED")
FAULTS = {"429": 0.05, "cut": 0.05}
INSTANCE = "killed"


@pytest.fixture
async def cluster() -> AsyncIterator[EmbeddedCluster]:
    async with EmbeddedCluster() as running_cluster:
        yield running_cluster


class Orchestrator:
    """Submits jobs, and follows updates by whichever controller answers."""

    def __init__(self, controllers: list[Controller]) -> None:
        self._controllers = controllers
        self.updates: list[dict[str, Any]] = []

    async def call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        """Return the answer of the first who gives one; asking again is safe."""
        deadline = time.monotonic() + 120
        while True:
            for one in self._controllers:
                with suppress(aiohttp.ClientError, OSError, AssertionError, KeyError):
                    return await one.call(method, path, body)
            assert time.monotonic() < deadline, f"nobody answers {path}"
            await asyncio.sleep(0.2)

    async def follow(self) -> None:
        """Read updates for ever, going on behind the last one whenever a stream breaks off."""
        while True:
            for one in self._controllers:
                with suppress(aiohttp.ClientError, OSError, TimeoutError, KeyError):
                    await self._read(one)
            await asyncio.sleep(0.1)

    async def _read(self, one: Controller) -> None:
        token = SIGNER.sign(make_claims(time.time(), aud="fumarole-controller"))
        headers = {"Authorization": f"Bearer {token}"}
        if self.updates:
            headers["Last-Event-ID"] = str(self.updates[-1]["id"])
        url = f"http://{one.addresses['api']}/v1/updates?after=0"
        timeout = aiohttp.ClientTimeout(total=None, sock_connect=2, sock_read=30)
        async with (
            aiohttp.ClientSession(timeout=timeout) as http,
            http.get(url, headers=headers) as answer,
        ):
            async for line in answer.content:
                if line.startswith(b"data: "):
                    self.updates.append(json.loads(line[6:]))

    def ended(self) -> Counter[str]:
        """Return how often each job was told to have ended."""
        return Counter(one["job"] for one in self.updates if one["state"] in FINAL)


@pytest.mark.parametrize(
    ("jobs", "seconds", "between"),
    [
        pytest.param(10, 10, (3, 5), id="short"),
        pytest.param(500, 300, (5, 20), id="long", marks=pytest.mark.long),
    ],
)
async def test_whoever_leads_every_job_ends_once_and_is_paid_for_exactly(
    cluster: EmbeddedCluster,
    redis_server: RedisServer,
    postgres: Postgres,
    tmp_path: Path,
    jobs: int,
    seconds: int,
    between: tuple[int, int],
) -> None:
    chance = random.Random(jobs)
    url = postgres.new_database()
    receiver = Choosy(random.Random(seconds))
    async with receiver.listening():
        await run_and_check(
            cluster, redis_server, url, tmp_path, jobs=jobs, seconds=seconds, between=between,
            chance=chance, receiver=receiver,
        )  # fmt: skip


async def run_and_check(
    cluster: EmbeddedCluster,
    redis_server: RedisServer,
    url: str,
    tmp_path: Path,
    *,
    jobs: int,
    seconds: int,
    between: tuple[int, int],
    chance: random.Random,
    receiver: Choosy,
) -> None:
    controllers = [
        Controller(
            tmp_path, kubeconfig=cluster.kubeconfig("controller"), redis_url=redis_server.url,
            instance=INSTANCE, name=f"c{number}", FUMAROLE_CONTROLLER_STORE_URL=url,
            FUMAROLE_CONTROLLER_USAGE_PERIOD_SECONDS="1",
            FUMAROLE_CONTROLLER_RETENTION_SECONDS="100000",
            FUMAROLE_CONTROLLER_WEBHOOKS_FILE=str(webhooks_file(tmp_path, receiver)),
        )
        for number in range(2)
    ]  # fmt: skip
    orchestrator = Orchestrator(controllers)
    async with AsyncExitStack() as stack:
        admin = await stack.enter_async_context(Kube.connect(cluster.kubeconfig("admin")))
        for one in controllers:
            await stack.enter_async_context(running(one))
        cluster.set_faults(FAULTS)
        following = asyncio.create_task(orchestrator.follow())
        killing = asyncio.create_task(kill_leaders(controllers, chance, between, seconds))
        await submit(orchestrator, jobs, seconds, chance)
        await killing
        cluster.set_faults({})
        await eventually(
            lambda: all_ended(orchestrator, jobs), seconds=300, what="not every job ended"
        )
        following.cancel()
        await asyncio.wait([following])
        check_updates(orchestrator, jobs)
        await check_webhooks(orchestrator, receiver)
        await check_cluster(orchestrator, admin, jobs)


async def submit(
    orchestrator: Orchestrator, jobs: int, seconds: int, chance: random.Random
) -> None:
    """Submit the jobs over the time; the answer of one that was lost is asked for again."""
    began = time.monotonic()
    for number in range(jobs):
        job = {
            "id": f"k{number}", "owner": {"user": "ada"}, "image": "busybox",
            "resources": {"cpu": 0.01, "memory": "16Mi"},
            "invocation": {"command": ["sh", "-c", f"sleep {chance.uniform(0.5, 3):.1f}"]},
        }  # fmt: skip
        answer = await orchestrator.call("POST", "/v1/jobs", {"items": [job]})
        assert answer["items"][0]["result"] in ("created", "unchanged"), answer
        left = began + seconds * (number + 1) / jobs - time.monotonic()
        await asyncio.sleep(max(0.0, left))


async def kill_leaders(
    controllers: list[Controller], chance: random.Random, between: tuple[int, int], seconds: int
) -> int:
    """Kill whoever leads, again and again, and start it anew; return how often."""
    until, killed = time.monotonic() + seconds, 0
    while time.monotonic() < until:
        await asyncio.sleep(chance.uniform(*between))
        for one in controllers:
            leads = False
            with suppress(aiohttp.ClientError, OSError):
                leads = await one.leads()
            if leads:
                await one.kill()
                killed += 1
                await asyncio.sleep(chance.uniform(0, 2))
                await one.start(ready=False)
                break
    assert killed > 0
    return killed


async def all_ended(orchestrator: Orchestrator, jobs: int) -> bool:
    return len(orchestrator.ended()) == jobs


def check_updates(orchestrator: Orchestrator, jobs: int) -> None:
    """Each number once and in order, none left out; each job ended once, and nothing after it."""
    numbers = [one["id"] for one in orchestrator.updates]
    assert numbers == list(range(1, len(numbers) + 1))
    assert set(orchestrator.ended().values()) == {1}
    last = {one["job"]: one["state"] for one in orchestrator.updates}
    assert len(last) == jobs
    assert set(last.values()) == {"SUCCESS"}


class Choosy(Server):
    """Refuses some messages, and closes the connection of others once it has taken them."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__(self.choose)
        self._chance = chance
        self.taken: list[dict[str, Any]] = []

    async def choose(self, request: Request, _writer: asyncio.StreamWriter) -> bytes | None:
        luck = self._chance.random()
        if luck < 0.1:
            return response(500)
        self.taken.append(request.json)
        return response(200) if luck < 0.95 else None


def webhooks_file(folder: Path, receiver: Choosy) -> Path:
    (folder / "webhooks.secret").write_text(base64.b64encode(SECRET).decode())
    row = {
        "name": "orchestrator", "url": receiver.url, "secret_file": "webhooks.secret",
        "http": True, "networks": ["127.0.0.0/8"],
    }  # fmt: skip
    path = folder / "webhooks.json"
    path.write_text(json.dumps({"receivers": [row]}))
    return path


async def check_webhooks(orchestrator: Orchestrator, receiver: Choosy) -> None:
    """The receiver got every update that followers got, those of a job in their order."""
    wanted = {one["id"]: one for one in orchestrator.updates}

    async def all_there() -> bool:
        return {one["id"] for one in receiver.taken} == wanted.keys()

    await eventually(all_there, seconds=120, what="not every update came as a webhook")
    by_job: dict[str, list[int]] = {}
    for one in receiver.requests:
        assert one.json == wanted[one.json["id"]]
        by_job.setdefault(one.json["job"], []).append(one.json["id"])
    assert all(list(dict.fromkeys(got)) == sorted(set(got)) for got in by_job.values())


async def check_cluster(orchestrator: Orchestrator, admin: Kube, jobs: int) -> None:
    """One VolcanoJob for each job, and a ledger that says what their pods say."""
    made = await admin.list(VCJOBS, labels=f"fumarole.dev/instance={INSTANCE}")
    assert len(made) == jobs
    ran: dict[str, float] = {}
    for given in await admin.list(PODS, labels=f"fumarole.dev/instance={INSTANCE}"):
        pod = read_pod(given)
        assert pod.ended is not None
        assert pod.started_at is not None
        assert pod.ended.finished_at is not None
        ran[pod.job_id] = ran.get(pod.job_id, 0.0) + pod.ended.finished_at - pod.started_at
    assert len(ran) == jobs
    entries = await ledger(orchestrator)
    finals = {one["job"]: one["seconds"] for one in entries if one["final"]}
    assert len([one for one in entries if one["final"]]) == jobs
    assert finals == ran
    periods: dict[str, list[int]] = {}
    for one in entries:
        periods.setdefault(one["job"], []).append(one["period"])
    assert all(found == list(range(len(found))) for found in periods.values())


async def ledger(orchestrator: Orchestrator) -> list[dict[str, Any]]:
    entries: list[dict[str, Any]] = []
    after = 0
    while True:
        page = await orchestrator.call("GET", f"/v1/usage?after={after}&limit=1000")
        if not page["items"]:
            return entries
        entries += page["items"]
        after = page["next"]
