"""Tests jobs on a dead node: the pods stay, long past their deletion time."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from controller.jobs.reconcile.lifecycle import removal
from controller.jobs.usage import Ledger
from controller.kube.kinds import PODS, VCJOBS
from controller.store.jobs.job_rows import JobRecord
from controller.store.outbox.usage_entries import last_entries
from controller.volcano import observed, parsing
from tests.controller.jobs.reconcile.attempts_world import World, open_world
from tests.controller.running import eventually
from tests.controller.samples import make_defaults

GRACE_SECONDS = 2
LONG_SECONDS = 3.0


@pytest_asyncio.fixture
async def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[World]:
    monkeypatch.setattr(observed, "OVERDUE_SECONDS", LONG_SECONDS)
    async with open_world(tmp_path, instance="dead") as one:
        yield one


async def gone(world: World) -> bool:
    await world.parts.reconciler.reconcile("dead")
    return not world.informer.pods.of_job("dead") and not world.informer.pods.departed_of("dead")


async def test_a_job_reports_a_not_ready_node_until_it_is_ready(world: World) -> None:
    await world.submit("dead")
    await world.until("dead", "RUNNING")
    await world.cluster.kill_program("kubelet")
    (pod,) = await world.pods("dead")
    whole = pod["status"]["conditions"]
    # As the node lifecycle controller does (MarkPodsNotReady): it changes nothing else of a pod.
    at = {"status": "False", "lastTransitionTime": "2026-11-24T03:00:00Z"}
    lost = [{**one, **at} if one["type"] == "Ready" else one for one in whole]

    async def told(conditions: list[dict[str, Any]], reason: str | None) -> JobRecord:
        name, status = pod["metadata"]["name"], {"conditions": conditions}
        await world.admin.merge(PODS, name, {"status": status}, "jobs", subresource="status")
        return await world.parts.drive("dead", lambda one: one.reason == reason)

    record = await told(lost, "node_not_ready")
    node = pod["spec"]["nodeName"]
    text = f"the node {node} of job 0 is not ready since 2026-11-24T03:00:00Z"
    assert (record.state, record.message) == ("RUNNING", text)
    assert record.details is not None
    assert record.details["node"] == node
    record = await told(whole, None)
    assert (record.state, record.message) == ("RUNNING", None)
    # As the taint eviction controller does after five minutes. No kubelet confirms the deletion.
    await told(lost, "node_not_ready")
    await world.admin.delete(PODS, pod["metadata"]["name"], "jobs")
    stays = f"{text}, and its deleted pod stays until the node comes back or is removed"
    record = await world.parts.drive("dead", lambda one: one.message == stays)
    assert (record.state, record.reason) == ("RUNNING", "node_not_ready")


async def test_a_job_on_a_dead_node_ends_and_is_charged_until_its_grace_period_ends(
    world: World,
) -> None:
    await world.submit("dead", stop_grace_seconds=GRACE_SECONDS)
    await world.until("dead", "RUNNING")
    await world.cluster.kill_program("kubelet")
    asked = time.time()
    over = await world.end("dead")
    assert (over.state, over.reason) == ("SUCCESS", "asked")
    # Nothing has confirmed the end: the pod still exists, and nobody has deleted it by force.
    (pod,) = await world.pods("dead")
    assert pod["metadata"]["deletionTimestamp"]
    assert pod["metadata"]["deletionGracePeriodSeconds"] > 0
    due = parsing.read_time(pod["metadata"]["deletionTimestamp"])
    _, (run,) = await world.history("dead")
    assert due is not None
    assert run.ended_at == due
    assert asked - 1 <= due <= time.time() - LONG_SECONDS
    ledger = Ledger(world.parts.store, defaults=make_defaults(), clock=time.time)
    assert await ledger.write_up("dead") is None
    async with world.parts.store.read() as transaction:
        attempts, _ = await world.history("dead")
        (last,) = (await last_entries(transaction, attempts[0].uid)).values()
    assert last.final
    # A deletion by force, days later, changes nothing.
    await world.admin.delete(PODS, pod["metadata"]["name"], "jobs", grace_seconds=0)
    await eventually(lambda: gone(world), what="the pod is remembered")
    _, (after,) = await world.history("dead")
    assert after.ended_at == run.ended_at


async def test_a_job_on_a_dead_node_is_suspended_and_can_be_ended(world: World) -> None:
    await world.submit("dead", stop_grace_seconds=GRACE_SECONDS)
    await world.until("dead", "RUNNING")
    await world.cluster.kill_program("kubelet")
    await world.parts.commands.suspend("dead")
    await world.until("dead", "SUSPENDED")
    # To Volcano, a pod is gone as soon as its deletion is requested.
    assert (await world.volcano_job("dead"))["status"]["state"]["phase"] == "Aborted"
    (pod,) = await world.pods("dead")
    _, (run,) = await world.history("dead")
    assert run.ended_at == parsing.read_time(pod["metadata"]["deletionTimestamp"])
    await world.parts.commands.resume("dead")
    held = await world.parts.drive("dead", lambda one: one.reason == "node_not_ready")
    assert (held.state, held.renewal, held.attempt) == ("IN_QUEUE", "resumed", 1)
    assert "the next attempt waits for its name" in (held.message or "")
    over = await world.end("dead")
    assert (over.state, over.reason) == ("SUCCESS", "asked")


async def test_a_job_whose_volcano_job_another_controller_keeps_can_be_cancelled(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    await world.submit("dead", stop_grace_seconds=GRACE_SECONDS)
    await world.until("dead", "RUNNING")
    kept = {"metadata": {"finalizers": ["audit.example.org/keep"]}}
    await world.admin.merge(VCJOBS, "j-dead", kept, "jobs")
    monkeypatch.setattr(removal, "KEPT_SECONDS", 0.0)
    await world.parts.commands.end("dead")
    text = "its VolcanoJob is deleted, and its finalizers keep it: audit.example.org/keep"
    record = await world.parts.drive("dead", lambda one: one.message == text)
    assert (record.state, record.reason) == ("CANCELING", "asked")
    over = await world.parts.drive_to_the_end("dead")
    assert (over.state, over.reason) == ("SUCCESS", "asked")
    assert not await world.pods("dead")
    assert (await world.volcano_job("dead"))["metadata"]["deletionTimestamp"]
