"""Tests a day in a minute: all job outcomes, two controllers, killed leaders, API faults.

Afterwards:

- Each job's history matches the cluster's own record.
- Updates are in order and without gaps from any update on. This holds also for a webhook receiver
  that refuses some.
- The ledger matches an independent computation over the pods.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Coroutine, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType
from typing import Any

import aiohttp
import pytest

from deploy.local.cluster import EmbeddedCluster
from tests.controller.leader.busy_site import (
    FINAL,
    Orchestrator,
    Pod,
    StateRecorder,
    kind_of,
    make_job,
    request,
    stream,
)
from tests.controller.leader.faulty_receiver import SelectiveReceiver
from tests.controller.postgres import Postgres
from tests.controller.running import Controller, eventually, running
from tests.programs import RedisServer

pytestmark = [pytest.mark.needs("postgres"), pytest.mark.timeout(3000)]

FAULTS = {"429": 0.05, "cut": 0.05}
INSTANCE = "day"
CURSORS = 40


@pytest.mark.parametrize(
    ("jobs", "seconds", "kills", "between"),
    [
        pytest.param(20, 8, 2, (2, 3), id="short"),
        pytest.param(1000, 300, 12, (5, 20), id="long", marks=pytest.mark.long),
    ],
)
async def test_under_changing_leaders_history_updates_and_ledger_match_the_cluster(
    redis_server: RedisServer,
    postgres: Postgres,
    tmp_path: Path,
    jobs: int,
    seconds: int,
    kills: int,
    between: tuple[int, int],
) -> None:
    chance = random.Random(jobs)
    url = postgres.new_database()
    async with AsyncExitStack() as stack:
        receiver = SelectiveReceiver(random.Random(seconds))
        await stack.enter_async_context(receiver.listening())
        cluster = await stack.enter_async_context(EmbeddedCluster())
        controllers = [
            Controller(
                tmp_path, kubeconfig=cluster.kubeconfig("controller"), redis_url=redis_server.url,
                instance=INSTANCE, name=f"c{number}", FUMAROLE_CONTROLLER_STORE_URL=url,
                FUMAROLE_CONTROLLER_USAGE_PERIOD_SECONDS="1",
                FUMAROLE_CONTROLLER_WEBHOOKS_FILE=str(receiver.settings(tmp_path)),
            )
            for number in range(2)
        ]  # fmt: skip
        for one in controllers:
            await stack.enter_async_context(running(one))
        witness = StateRecorder(cluster.kubeconfig("admin"), INSTANCE, lambda job: day.moved(job))
        day = Orchestrator(controllers, witness.drain)
        async with beside(witness.watch(), day.follow(), day.act()):
            cluster.set_faults(FAULTS)
            killing = asyncio.create_task(kill_leaders(controllers, chance, between, kills))
            await submit(day, jobs, seconds, chance)
            await killing
            cluster.set_faults({})

            async def all_ended() -> bool:
                return len(day.ended()) == jobs

            await eventually(all_ended, seconds=300 + jobs, what="not every job ended")
            with suppress(AssertionError):  # the checks below report what is missing
                await eventually(lambda: is_paid(day, witness), seconds=60)
        check_updates(day, jobs)
        await check_webhooks(day, receiver)
        await check_cursors(day, controllers, chance)
        unseen: dict[str, float | None] = {}
        for job in day.ended():
            unseen |= await check_history(day, witness, job)
        await check_ledger(day, witness, unseen)
    pods = len(list(witness.pods()))
    print(f"{len(day.updates)} updates, {pods} pods; {len(unseen)} ends were not seen")
    # Only an expired watch can hide a pod that came and went meanwhile.
    expired = any("last seen is forgotten" in one.log.read_text() for one in controllers)
    assert len(unseen) <= (pods / 4 if expired else 0), unseen


@asynccontextmanager
async def beside(*work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    """Run *work* in the background; its failure fails the block."""
    tasks = [asyncio.create_task(one) for one in work]
    try:
        yield
        for task in tasks:
            assert not task.done(), task
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)


async def submit(day: Orchestrator, jobs: int, seconds: int, chance: random.Random) -> None:
    """Submit the jobs over the time; a call without a response is repeated."""
    for number in range(jobs):
        job = make_job(number, chance.uniform(0.2, 3))
        response = await day.call("POST", "/v1/jobs", {"items": [job]})
        assert response["items"][0]["result"] in ("created", "unchanged"), response
        await asyncio.sleep(seconds / jobs)


async def kill_leaders(
    controllers: list[Controller], chance: random.Random, between: tuple[int, int], times: int
) -> None:
    """Kill the leader *times* times and restart it; a standby always exists."""
    for _ in range(times):
        leader = await eventually(lambda: leading(controllers), seconds=120, what="nobody leads")
        await asyncio.sleep(chance.uniform(*between))
        await leader.kill()
        await asyncio.sleep(chance.uniform(0, 2))
        await leader.start()


async def leading(controllers: list[Controller]) -> Controller | None:
    for one in controllers:
        with suppress(aiohttp.ClientError, OSError):
            if await one.leads():
                return one
    return None


def check_updates(day: Orchestrator, jobs: int) -> None:
    """Check that numbers are consecutive, and that each job ended once with no later update."""
    assert [one["id"] for one in day.updates] == list(range(1, len(day.updates) + 1))
    assert set(day.ended().values()) == {1}
    last = {one["job"]: one for one in day.updates}
    assert len(last) == jobs
    assert all(one["state"] in FINAL for one in last.values())
    for job in last:
        own = [one for one in day.updates if one["job"] == job]
        assert all(a["attempt"] <= b["attempt"] for a, b in pairwise(own))


async def check_webhooks(day: Orchestrator, receiver: SelectiveReceiver) -> None:
    """Check that the receiver got every update that followers got, in order for each job."""
    wanted = {one["id"]: one for one in day.updates}

    async def all_there() -> bool:
        return {one["id"] for one in receiver.taken} == wanted.keys()

    await eventually(all_there, seconds=120, what="not every update came as a webhook")
    by_job: dict[str, list[int]] = defaultdict(list)
    for one in receiver.requests:
        assert one.json == wanted[one.json["id"]]
        by_job[one.json["job"]].append(one.json["id"])
    assert all(list(dict.fromkeys(got)) == sorted(set(got)) for got in by_job.values())


async def check_cursors(
    day: Orchestrator, controllers: list[Controller], chance: random.Random
) -> None:
    """Check that both controllers return the same updates after any id, in pages and streams."""
    for number in range(CURSORS):
        one, after = controllers[number % 2], chance.randrange(len(day.updates))
        limit = chance.randint(1, 500)
        status, page = await request(one, "GET", f"/v1/updates?after={after}&limit={limit}")
        assert (status, page["items"]) == (200, day.updates[after : after + limit])
        if number < len(controllers):
            events = stream(one, after)
            rest = [await anext(events) for _ in day.updates[after:]]
            await events.aclose()
            assert rest == day.updates[after:]


async def check_history(
    day: Orchestrator, witness: StateRecorder, job_id: str
) -> dict[str, float | None]:
    """Check the job's history against the cluster's record.

    Returns:
        The reported running time of each pod whose end the controller could not see; None for pods
        that it never saw.
    """
    job = await day.call("GET", f"/v1/jobs/{job_id}")
    history = await day.call("GET", f"/v1/jobs/{job_id}/history")
    kind, attempts = kind_of(job_id), history["attempts"]
    assert (job["state"], job["reason"]) == kind.ends, job
    assert history["updates"] == [one for one in day.updates if one["job"] == job_id]
    pods = {pod.uid: pod for pod in witness.pods() if pod.job == job_id}
    runs = {run["uid"]: (one, run) for one in attempts for run in one["runs"]}
    assert {one["uid"] for one in attempts} - {None} == witness.volcano_jobs.get(job_id, set())
    assert [one["attempt"] for one in attempts] == list(range(1, len(attempts) + 1))
    if kind.attempts is not None:
        assert len(attempts) == kind.attempts, attempts
    assert runs.keys() <= pods.keys(), (job_id, runs, pods)
    # A pod may be created after its job was given up, and vanish before it starts.
    missing = [pod for uid, pod in pods.items() if uid not in runs]
    lost = [pod for pod in missing if kind.pods is not None or pod.started_at is not None]
    unseen: dict[str, float | None] = {pod.uid: None for pod in lost}
    began = [pod.started_at for pod in pods.values() if pod.started_at is not None]
    assert kind.pods in (None, len(began)), (job_id, pods)
    assert (job["started_at"] is not None) == bool(began) or lost, (job, pods)
    assert job["finished_at"] is not None
    for one in attempts:
        assert one["ended_at"] is not None
        assert one["outcome"], one
    for uid, (attempt, run) in runs.items():
        pod = pods[uid]
        assert (attempt["uid"], run["pod"], run["rank"]) == (pod.owner, pod.name, pod.rank)
        assert run["ended_at"] is not None, run
        if pod.started_at is None or (run["exit_code"] is not None and pod.ended_at is not None):
            check_run(run, pod, kind.exits)
        else:
            began_at = run["started_at"]
            unseen[uid] = None if began_at is None else run["ended_at"] - began_at
    return unseen


def check_run(run: dict[str, Any], pod: Pod, exits: tuple[int, ...]) -> None:
    """Check a pod's record against the cluster's."""
    assert (run["node"], run["started_at"]) == (pod.node, pod.started_at), (run, pod)
    if pod.started_at is not None:
        assert (run["exit_code"], run["ended_at"]) == (pod.exit_code, pod.ended_at), (run, pod)
        assert pod.exit_code in exits, pod
        assert pod.exit_code == 0 or run["reason"], run


def seconds_of(
    witness: StateRecorder, unseen: Mapping[str, float | None] = MappingProxyType({})
) -> dict[tuple[str, int], float]:
    """Return the usage of each rank of each VolcanoJob, from the cluster's record of its pods."""
    used: dict[tuple[str, int], float] = defaultdict(float)
    for pod in witness.pods():
        seconds = unseen.get(pod.uid, pod.seconds)
        if pod.started_at is not None and seconds is not None:
            used[pod.owner, pod.rank] += seconds
    return dict(used)


async def is_paid(day: Orchestrator, witness: StateRecorder) -> bool:
    """Return whether the final entries exist; they may follow shortly after the job's end."""
    entries = await day.pages("/v1/usage")
    return len([one for one in entries if one["final"]]) >= len(seconds_of(witness))


async def check_ledger(
    day: Orchestrator, witness: StateRecorder, unseen: Mapping[str, float | None]
) -> None:
    """Check one final entry for each rank that ran, with its pods' time, and no missing period."""
    entries = await day.pages("/v1/usage")
    finals = {(one["uid"], one["rank"]): one["seconds"] for one in entries if one["final"]}
    assert len([one for one in entries if one["final"]]) == len(finals)
    used = seconds_of(witness, unseen)
    odd = {uid for uid, _ in finals.keys() ^ used.keys()}
    jobs = [job for job, uids in witness.volcano_jobs.items() if uids & odd]
    odd_entries = [one for one in entries if one["uid"] in odd]
    pods = [pod for pod in witness.pods() if pod.job in jobs]
    runs = [(await day.call("GET", f"/v1/jobs/{job}/history"))["attempts"] for job in jobs]
    assert finals.keys() == used.keys(), f"{odd}\n{odd_entries}\n{pods}\n{runs}"
    assert finals == pytest.approx(used, abs=1e-3)
    periods: dict[tuple[str, int], list[int]] = defaultdict(list)
    for one in entries:
        periods[one["uid"], one["rank"]].append(one["period"])
    assert all(found == list(range(len(found))) for found in periods.values())
    assert all(count == 1 for count in Counter(one["id"] for one in entries).values())
