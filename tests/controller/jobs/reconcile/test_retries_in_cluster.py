"""Tests retries that Volcano loses to its own race, on an embedded cluster that loses them."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from controller.jobs.history.job_record import recovery_name
from controller.jobs.reconcile.adoption import Adoption
from controller.jobs.reconcile.workqueue import Requeue
from controller.kube.kinds import VCJOBS
from controller.store.jobs.job_rows import JobRecord
from controller.store.jobs.progress import companions_of, record_companions
from controller.volcano.names import FIRST_START_ANNOTATION, RETRIES_USED_ANNOTATION
from deploy.local.cluster.lags import chosen_lags
from tests.controller.jobs.reconcile.attempts_world import World
from tests.controller.new_stores import leading_store
from tests.controller.running import eventually

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

FAILS = {"command": ["sh", "-c", "sleep 3; exit 7"]}


async def lose_the_next_policy(world: World, job_id: str) -> None:
    """Delay Volcano's sync of the job: it sees the pod failed before it applies a policy."""
    world.cluster.set_lags(chosen_lags(world.cluster.seed) | {"volcano-sync": 8.0})
    await asyncio.sleep(0.1)
    body = {"metadata": {"annotations": {"somebody": "else"}}}
    await world.admin.merge(VCJOBS, f"j-{job_id}", body, "jobs")


async def until_volcano_failed_it(world: World, job_id: str) -> None:
    async def failed() -> bool:
        found = await world.volcano_job(job_id)
        return bool(found["status"]["state"]["phase"] == "Failed")

    await eventually(failed, seconds=40, what="Volcano did not lose the race")
    world.cluster.set_lags(chosen_lags(world.cluster.seed))


async def lose(world: World, job_id: str, **fields: Any) -> None:
    """Submit a job whose first failure Volcano handles without applying its policies."""
    await world.submit(job_id, **{"invocation": FAILS} | fields)
    await world.until(job_id, "RUNNING")
    await lose_the_next_policy(world, job_id)
    await until_volcano_failed_it(world, job_id)


async def until_again(world: World, job_id: str) -> JobRecord:
    """Return the job once its second attempt has a VolcanoJob, which may be short-lived."""
    return await world.parts.drive(job_id, lambda r: r.attempt == 2 and r.uid is not None)


async def test_a_restart_lost_by_volcano_starts_another_attempt_and_uses_one_retry(
    world: World,
) -> None:
    policies = [{"event": "PodFailed", "action": "RestartJob"}]
    await lose(world, "lost", policies=policies, max_retry=1)
    second = await until_again(world, "lost")
    assert (second.retries_used, second.evictions) == (1, 0)
    made = await world.volcano_job("lost")
    assert made["spec"]["maxRetry"] == 1  # no retry is left: the next failure is final
    assert made["metadata"]["annotations"][RETRIES_USED_ANNOTATION] == "1"
    record = await world.parts.drive_to_the_end("lost")
    assert (record.state, record.reason) == ("FAILURE", "exit_code")
    attempts, runs = await world.history("lost")
    assert [(one.outcome, one.used) for one in attempts] == [("RETRIED", 1), ("FAILURE", None)]
    assert "Volcano has not carried out its policy RestartJob" in (attempts[0].message or "")
    assert [(run.attempt, run.exit_code) for run in runs] == [(1, 7), (2, 7)]
    # The second attempt began only after the first was over.
    assert (runs[0].ended_at or 0) <= (runs[1].started_at or 0)


async def test_a_lost_pod_restart_becomes_a_job_restart_with_that_reason(world: World) -> None:
    await lose(
        world,
        "part",
        tasks=[
            {"name": "a", "policies": [{"exit_code": 7, "action": "RestartPod"}]},
            {"name": "b", "invocation": {"command": ["sh", "-c", "sleep 1; exit 0"]}},
        ],
        policies=[{"event": "PodFailed", "action": "AbortJob"}],
        max_retry=2,
    )
    record = await until_again(world, "part")
    assert record.retries_used == 1
    attempts, _ = await world.history("part")
    assert "RestartPod: the whole job is started again" in (attempts[0].message or "")
    await world.end("part")


async def test_an_end_lost_by_volcano_is_applied_without_restart(world: World) -> None:
    policies = [{"event": "PodFailed", "action": "CompleteJob"}]
    await lose(world, "lost-end", policies=policies, max_retry=3)
    record = await world.parts.drive_to_the_end("lost-end")
    assert (record.state, record.reason, record.attempt) == ("SUCCESS", "completed", 1)
    assert record.message == "job 0 ended with exit code 7: CompleteJob, as its policy says"


async def test_retries_known_only_to_a_lost_store_are_read_from_the_cluster(world: World) -> None:
    policies = [{"event": "PodFailed", "action": "RestartJob"}]
    await lose(world, "again", policies=policies, max_retry=2, time_allocation_seconds=900)
    before = await until_again(world, "again")
    made = await world.volcano_job("again")
    assert float(made["metadata"]["annotations"][FIRST_START_ANNOTATION]) == before.started_at
    record = await adopted(world, "again")
    assert (record.attempt, record.retries_used) == (2, 1)
    assert (record.started_at, record.allocated_seconds) == (before.started_at, 900.0)
    await world.end("again")


async def adopted(world: World, job_id: str) -> JobRecord:
    """Return the record that an empty store adopts of the job."""
    async with leading_store(world.folder, job_id) as (store, term):
        parts = world.assemble(store, term)
        adoption: Adoption = parts.adoption
        await adoption._adopt_all()
        return await parts.record(job_id)


async def test_a_created_volcano_job_is_never_written_to(world: World) -> None:
    await world.submit("untouched", time_allocation_seconds=900)
    await world.until("untouched", "RUNNING")
    made = await world.volcano_job("untouched")
    await world.parts.commands.extend("untouched", seconds=100)
    await world.parts.drive("untouched", lambda record: record.kept is not None)
    record = await adopted(world, "untouched")
    assert record.allocated_seconds == 1000.0
    after = await world.volcano_job("untouched")
    assert after["metadata"]["annotations"] == made["metadata"]["annotations"]
    assert after["metadata"]["generation"] == made["metadata"]["generation"]
    # Recovery data of an earlier attempt is removed, and not adapted to this attempt for ever.
    async with world.parts.store.write() as transaction:
        known = await companions_of(transaction, "untouched")
        (kept,) = [one for one in known if one.name == recovery_name("untouched")]
        await record_companions(transaction, "untouched", [replace(kept, owner_uid="earlier")])
    looks = [await world.parts.reconciler.reconcile("untouched") for _ in range(3)]
    assert looks[-1] != Requeue(0.0, "step")
    async with world.parts.store.read() as transaction:
        assert kept.name not in {one.name for one in await companions_of(transaction, "untouched")}
    await world.end("untouched")
    labels = "fumarole.dev/job=untouched"
    await eventually(lambda: world.nothing_is_left("untouched"), what=f"{labels} is left")
