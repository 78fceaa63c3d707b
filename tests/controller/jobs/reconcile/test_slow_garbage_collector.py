"""Tests that the end of a job does not wait for the garbage collector of a busy cluster."""

from __future__ import annotations

from typing import Any

import pytest

from controller.kube.kinds import CONFIG_MAPS, PODS, SERVICES
from tests.controller.jobs.reconcile.attempts_world import World
from tests.controller.running import eventually

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

BACKLOG = 120
LAGS = {"collector": 1.0}
EVICTED = [{"event": "PodEvicted", "action": "RestartJob"}]


async def keep_the_collector_busy(world: World, name: str) -> None:
    """Delete an owner of many objects: the collector deletes these one after the other."""
    body: dict[str, Any] = {"metadata": {"name": name}}
    owner = await world.admin.create(CONFIG_MAPS, body, "jobs")
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": name}
    owned = [reference | {"uid": owner["metadata"]["uid"]}]
    for number in range(BACKLOG):
        metadata = {"name": f"{name}-{number}", "ownerReferences": owned, "labels": {"of": name}}
        await world.admin.create(CONFIG_MAPS, {"metadata": metadata}, "jobs")
    await world.admin.delete(CONFIG_MAPS, name, "jobs")


async def is_busy(world: World, name: str) -> bool:
    left = await world.admin.list(CONFIG_MAPS, "jobs", labels=f"of={name}")
    return len(left) > BACKLOG // 2


async def test_pods_of_a_cancelled_job_end_despite_garbage_collector_lag(
    world: World,
) -> None:
    ids = [f"cancel-{number}" for number in range(3)]
    for job_id in ids:
        await world.submit(job_id, replicas=2, policies=EVICTED, max_retry=3)
    for job_id in ids:
        await world.until(job_id, "RUNNING")
    await keep_the_collector_busy(world, "cancel")
    for job_id in ids:
        record = await world.end(job_id)
        assert (record.state, record.reason) == ("SUCCESS", "asked")
        assert await world.pods(job_id) == []
    assert await is_busy(world, "cancel"), "the collector was not behind"
    for job_id in ids:
        # No pod was taken for evicted and restarted.
        attempts, runs = await world.history(job_id)
        assert [(one.retries, one.outcome) for one in attempts] == [(0, "SUCCESS")]
        assert sorted(run.rank for run in runs) == [0, 1]
        assert all(run.ended_at is not None and run.exit_code == 0 for run in runs)


async def test_the_next_attempt_does_not_wait_for_the_garbage_collector(world: World) -> None:
    await world.submit("renewed")
    await world.until("renewed", "RUNNING")
    await keep_the_collector_busy(world, "renewed")
    await world.evict("renewed")
    record = await world.until("renewed", "RUNNING", attempt=2)
    assert record.evictions == 1
    assert await is_busy(world, "renewed"), "the collector was not behind"
    _, runs = await world.history("renewed")
    # A kubelet reports whole seconds; the end of an unobserved pod may have a fraction.
    assert (runs[0].ended_at or 0.0) < (runs[1].started_at or 0.0) + 1.0
    await world.end("renewed")


async def test_the_next_attempt_uses_no_object_due_for_garbage_collection(world: World) -> None:
    """Volcano reuses an existing Service and ConfigMap with the names that it needs."""
    delayed = [{"event": "PodFailed", "action": "RestartJob", "timeout_seconds": 1}]
    await world.submit("again", replicas=2, policies=delayed, max_retry=1)
    await world.until("again", "RUNNING")
    await keep_the_collector_busy(world, "again")
    await world.evict("again")  # the other pod runs on, and the VolcanoJob with it
    await world.until("again", "RUNNING", attempt=2)
    assert await is_busy(world, "again"), "the collector was not behind"
    uid = (await world.volcano_job("again"))["metadata"]["uid"]
    for kind, name in ((SERVICES, "j-again"), (CONFIG_MAPS, "j-again-svc")):
        made = await world.admin.get(kind, name, "jobs")
        assert [one["uid"] for one in made["metadata"]["ownerReferences"]] == [uid]
    await world.end("again")


async def test_a_pod_created_by_volcano_after_the_end_is_deleted(world: World) -> None:
    await world.submit("late")
    await world.until("late", "RUNNING")
    (pod,) = await world.pods("late")
    await keep_the_collector_busy(world, "late")
    over = await world.end("late")
    made = await make_late(world, pod)

    async def gone() -> bool:
        await world.parts.reconciler.reconcile("late")
        return await world.pods("late") == []

    await eventually(gone, seconds=30, what="a pod of a VolcanoJob that is gone stays")
    assert await is_busy(world, "late"), "the collector was not behind"
    assert made["metadata"]["uid"] != pod["metadata"]["uid"]
    after = await world.parts.record("late")
    assert (after.state, after.finished_at) == ("SUCCESS", over.finished_at)


async def test_a_pod_created_by_volcano_for_an_earlier_attempt_is_deleted(
    world: World,
) -> None:
    await world.submit("early")
    await world.until("early", "RUNNING")
    (pod,) = await world.pods("early")
    await keep_the_collector_busy(world, "early")
    await world.evict("early")
    await world.until("early", "RUNNING", attempt=2)
    made = await make_late(world, pod, name="j-early-job-7")

    async def gone() -> bool:
        await world.parts.reconciler.reconcile("early")
        uids = {one["metadata"]["uid"] for one in await world.pods("early")}
        return made["metadata"]["uid"] not in uids

    await eventually(gone, seconds=30, what="a pod of an earlier attempt stays")
    assert await is_busy(world, "early"), "the collector was not behind"
    assert len(await world.pods("early")) == 1
    await world.end("early")


async def make_late(world: World, pod: dict[str, Any], *, name: str = "") -> dict[str, Any]:
    """Recreate a pod, as Volcano does while its cache still shows the VolcanoJob."""
    kept = ("labels", "annotations", "ownerReferences")
    metadata = {field: pod["metadata"][field] for field in kept}
    metadata["name"] = name or pod["metadata"]["name"]
    spec = {field: pod["spec"][field] for field in ("containers", "schedulerName")}
    for container in spec["containers"]:
        container.pop("volumeMounts", None)
    return await world.admin.create(PODS, {"metadata": metadata, "spec": spec}, "jobs")
