"""Tests three controllers on one store with alternating calls, each restarted meanwhile."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from contextlib import AsyncExitStack
from itertools import cycle
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from deploy.local.cluster import EmbeddedCluster
from tests.controller.postgres import Postgres
from tests.controller.running import SIGNER, Controller, eventually, running
from tests.programs import RedisServer
from tests.shared.samples import make_claims

pytestmark = [pytest.mark.needs("postgres"), pytest.mark.timeout(400)]

JOBS = 12
RETRIED = (429, 503)
"""What a client may try again, as it may where nobody answers."""


class Turns:
    """An orchestrator that calls another replica each time, and retries safe calls."""

    def __init__(self, replicas: list[Controller]) -> None:
        self._turns = cycle(replicas)
        self.read: list[tuple[int, Any]] = []
        """Updates as they were followed, by number."""

    async def call(
        self, method: str, path: str, body: Any = None, key: str = "", at: Controller | None = None
    ) -> tuple[int, Any]:
        """Return the status and body of the first response that needs no retry."""
        token = SIGNER.sign(make_claims(time.time(), aud="fumarole-controller"))
        headers = {"Authorization": f"Bearer {token}"}
        headers |= {"Idempotency-Key": key} if key else {}
        async with aiohttp.ClientSession(headers=headers) as http, asyncio.timeout(90):
            while True:
                one = at or next(self._turns)
                url = f"http://{one.addresses.get('api', 'localhost:1')}{path}"
                try:
                    async with http.request(method, url, json=body) as response:
                        if response.status not in RETRIED:
                            return response.status, await response.json()
                except aiohttp.ClientError:
                    pass
                await asyncio.sleep(0.2)


def job(job_id: str, *command: str) -> dict[str, Any]:
    return {
        "id": job_id, "owner": {"user": "ada"}, "image": "busybox",
        "resources": {"cpu": 0.01, "memory": "16Mi"},
        "invocation": {"command": list(command) or ["sh", "-c", "sleep 0.2"]},
    }  # fmt: skip


async def test_three_replicas_share_one_store_and_lease(
    redis_server: RedisServer, postgres: Postgres, tmp_path: Path
) -> None:
    url = postgres.new_database()
    async with EmbeddedCluster() as cluster, AsyncExitStack() as stack:
        replicas = [
            Controller(
                tmp_path, kubeconfig=cluster.kubeconfig("controller"), redis_url=redis_server.url,
                instance="three", name=f"replica{number}", FUMAROLE_CONTROLLER_STORE_URL=url,
            )
            for number in range(3)
        ]  # fmt: skip
        for one in replicas:
            await stack.enter_async_context(running(one))
        turns, (first, second, third) = Turns(replicas), replicas

        # What one replica accepted, the next one knows at once.
        for number in range(4):
            name = f"known-{number}"
            status, _ = await turns.call("POST", "/v1/jobs", {"items": [job(name)]}, at=first)
            assert status == 200, status
            assert (await turns.call("GET", f"/v1/jobs/{name}", at=second))[0] == 200
            assert (await turns.call("DELETE", f"/v1/jobs/{name}", at=third))[0] == 202
        # Concurrent equal calls to two replicas are carried out once.
        for number in range(4):
            name = f"once-{number}"
            both = await asyncio.gather(
                *(
                    turns.call("POST", "/v1/jobs", {"items": [job(name)]}, key=name, at=one)
                    for one in (first, second, third)
                )
            )
            assert [status for status, _ in both] == [200] * 3, both
            made = Counter(body["items"][0]["result"] for _, body in both)
            assert made == {"created": 1, "unchanged": 2}, both
        await open_at_once(turns, replicas)
        await submit_and_restart(turns, replicas)
        names = [f"load-{number}" for number in range(JOBS)]

        async def all_done() -> bool:
            states = [(await turns.call("GET", f"/v1/jobs/{name}"))[1] for name in names]
            assert all(one["state"] != "FAILURE" for one in states), states
            return all(one["state"] == "SUCCESS" for one in states)

        await eventually(all_done, seconds=120, what="jobs do not end")
        for name in names:
            _, history = await turns.call("GET", f"/v1/jobs/{name}/history")
            assert len(history["attempts"]) == 1, history
            assert len(history["attempts"][0]["runs"]) == 1, history
        _, usage = await turns.call("GET", "/v1/usage?after=0")
        finals = Counter(one["job"] for one in usage["items"] if one["final"])
        assert {name: finals[name] for name in names} == dict.fromkeys(names, 1), finals
        # Updates become readable in the order of their numbers, so no reader missed one.
        assert {number for number, _ in turns.read} == await all_updates(turns, turns.read[-1][0])


async def open_at_once(turns: Turns, replicas: list[Controller]) -> None:
    """Open a session with one key at all replicas at once, and check that it is one session."""
    web = job("site", "sleep", "600") | {"interactive": {"site": {"kind": "web", "port": 8000}}}
    assert (await turns.call("POST", "/v1/jobs", {"items": [web]}))[0] == 200
    wanted = {"items": [{"job": "site", "rank": 0, "endpoint": "site"}]}
    opened = await asyncio.gather(
        *(turns.call("POST", "/v1/sessions", wanted, key="opened", at=one) for one in replicas)
    )
    assert sorted(status for status, _ in opened) == [200, 200, 201], opened
    assert len({body["items"][0]["sid"] for _, body in opened}) == 1, opened


async def all_updates(turns: Turns, until: int) -> set[int]:
    found, after = set[int](), 0
    while after < until:
        _, page = await turns.call("GET", f"/v1/updates?follow=false&after={after}")
        found |= {one["id"] for one in page["items"]}
        after = page["next"]
    return {number for number in found if number <= until}


async def submit_and_restart(turns: Turns, replicas: list[Controller]) -> None:
    over = asyncio.Event()
    answers: list[Any] = []

    async def submit() -> None:
        for number in range(JOBS):
            name = f"load-{number}"
            answers.append(
                await turns.call("POST", "/v1/jobs", {"items": [job(name)]}, key=f"load{number}")
            )
            await asyncio.sleep(0.3)
        await over.wait()

    async def follow() -> None:
        after = 0
        while not over.is_set():
            status, page = await turns.call("GET", f"/v1/updates?follow=false&after={after}")
            assert status == 200, page
            assert page["next"] >= after, "a replica reads less than the one before"
            after = page["next"]
            turns.read += [(one["id"], one) for one in page["items"]]
            await asyncio.sleep(0.02)

    async with asyncio.TaskGroup() as tasks:
        tasks.create_task(submit())
        tasks.create_task(follow())
        for one in replicas:
            await one.stop()
            await one.start()
        over.set()
    results = [(status, body["items"][0]["result"]) for status, body in answers]
    assert set(results) <= {(200, "created"), (200, "unchanged")}, Counter(results)
