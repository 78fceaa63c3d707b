"""Tests which logs are stored while some nodes return none."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Collection
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from controller.logs import keeper
from controller.logs.keeper import LogKeeper
from controller.logs.live import PodLogs
from controller.logs.storage import FolderStorage
from controller.store.database import Store
from controller.store.instance import raise_term
from controller.store.jobs.job_rows import insert_job
from controller.store.jobs.progress import record_attempt
from controller.store.jobs.stored_logs import StoredLog, find_log
from controller.volcano.observed import ObservedPod
from tests.clock import Clock
from tests.controller.kube.api_server import Answer, Script, says, serving
from tests.controller.running import eventually
from tests.controller.samples import UID, make_pod, make_record

SAID = "2026-11-22T15:38:42.123456789+01:00 said\n"
ENDS = make_record(uid=UID, state="CANCELING", desired="ended", started_at=2.0)


def cluster(pods: Collection[ObservedPod], *, hangs: str) -> Answer:
    """Return the same log for each of *pods*, but hang for pods of the node *hangs*."""
    named = {pod.name: pod for pod in pods}

    async def answer(request: web.Request) -> web.StreamResponse:
        name = request.path.split("/")[-2]
        if not request.path.endswith("/log"):
            name = request.query["fieldSelector"].partition("=")[2]
            metadata = {"name": name, "uid": named[name].uid}
            shown = {"metadata": metadata, "status": {"phase": "Succeeded"}}
            return web.json_response({"items": [shown], "metadata": {}})
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(SAID.encode())
        if named[name].node == hangs:
            await asyncio.sleep(60)
        return response

    return answer


async def keep(
    folder: Path,
    store: Store,
    clock: Clock,
    pods: Collection[ObservedPod],
    wanted: str,
    *first: Answer,
) -> StoredLog:
    """Have the logs of *pods* stored; return that of the pod *wanted* once it is stored.

    The API server's first responses are *first*.
    """
    async with store.write() as transaction:
        await insert_job(transaction, ENDS, labels={})
        term = await raise_term(transaction)
        await record_attempt(transaction, "j1", 1, uid=UID, now=1.0)

    async def whole() -> StoredLog | None:
        async with store.read() as transaction:
            found = await find_log(transaction, "j1", wanted)
        return found if found is not None and found.state == "whole" else None

    failed: list[Exception] = []
    (folder / "logs").mkdir()
    async with serving(Script(*first, cluster(pods, hangs="dead")), folder) as kube:
        logs = LogKeeper(
            store.fenced(term), logs=PodLogs(kube), storage=FolderStorage(folder / "logs"),
            shown=lambda: (), clock=clock, random=os.urandom, done=lambda _job: None,
            failed=failed.append,
        )  # fmt: skip
        running = asyncio.create_task(logs.run())
        await asyncio.sleep(0)
        logs.observe(ENDS, list(pods), (), {pod.uid for pod in pods})
        try:
            return await eventually(whole, what="the log is not kept")
        finally:
            running.cancel()
            await asyncio.wait([running])
            assert failed == []


def pods_of(node: str, numbers: Collection[int], **fields: Any) -> list[ObservedPod]:
    return [make_pod(number, node=node, **fields) for number in numbers]


async def test_an_unresponsive_node_does_not_delay_logs_of_others(
    store: Store, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "MOST_ENDING", 4)
    pods = [*pods_of("dead", range(6), deleting=True), *pods_of("n1", [6], deleting=True)]
    kept = await keep(tmp_path, store, clock, pods, wanted="pod-6")
    assert (kept.lost, [one.lines for one in kept.segments]) == (frozenset(), [1])


async def test_the_log_of_an_ended_pod_is_awaited_briefly(
    store: Store, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "CALL_SECONDS", 0.2)
    monkeypatch.setattr(keeper, "GIVE_UP_SECONDS", 0.0)
    (pod,) = pods_of("dead", [0], deleting=True, lost=True)
    kept = await keep(tmp_path, store, clock, [pod], wanted=pod.uid)
    assert kept.lost == frozenset({"unreadable"})


async def test_a_log_is_read_again_after_the_credentials_were_not_accepted(
    store: Store, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(keeper, "FIRST_PAUSE_SECONDS", 0.01)
    (pod,) = pods_of("n1", [0], deleting=True)
    # The client repeats each call once with new credentials.
    refused = [says({"reason": "Unauthorized"}, 401)] * 4
    kept = await keep(tmp_path, store, clock, [pod], pod.uid, *refused)
    assert (kept.lost, [one.lines for one in kept.segments]) == (frozenset(), [1])
