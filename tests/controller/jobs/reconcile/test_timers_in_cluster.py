"""Tests policies with a timeout, timed by the controller, on a cluster with realistic lags."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from controller.kube.kinds import NODES, PODS
from controller.plugins import task
from controller.store.jobs.progress import Timer, timers_of
from deploy.local.cluster.lags import chosen_lags
from tests.controller.jobs.reconcile.attempts_world import SLEEPS, World
from tests.controller.running import eventually
from tests.controller.samples import make_job

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

FAILS = {"command": ["sh", "-c", "sleep 3; exit 7"]}


def after(seconds: int, action: str, **trigger: Any) -> list[dict[str, Any]]:
    return [{**trigger, "action": action, "timeout_seconds": seconds}]


async def timers(world: World, job_id: str) -> dict[str, Timer]:
    async with world.parts.store.read() as transaction:
        return await timers_of(transaction, job_id)


async def until_timed(world: World, job_id: str, event: str) -> Timer:
    """Reconcile until a timer of *event* runs, and return the timer."""

    async def look() -> Timer | None:
        await world.parts.reconciler.reconcile(job_id)
        found = [one for one in (await timers(world, job_id)).values() if event in one.trigger]
        return found[0] if found else None

    return await eventually(look, seconds=40, what="nothing was timed")


async def test_a_delayed_restart_becomes_an_attempt_when_due(world: World) -> None:
    policies = after(3, "RestartJob", event="PodFailed")
    await world.submit("later", invocation=FAILS, policies=policies, max_retry=1)
    await world.parts.drive("later", lambda record: record.uid is not None)
    made = await world.volcano_job("later")
    assert "policies" not in made["spec"]
    timer = await until_timed(world, "later", "PodFailed")
    _, (run,) = await world.history("later")
    assert timer.due_at == pytest.approx((run.ended_at or 0.0) + 3, abs=1.5)
    # The next attempt may begin in the same pass: Volcano's time to live is over by then.
    await world.parts.drive("later", lambda r: r.renewal is not None or r.attempt == 2)
    assert time.time() >= timer.due_at
    record = await world.parts.drive("later", lambda r: r.attempt == 2 and r.uid is not None)
    assert record.retries_used == 1
    # It fails again and has no retry left.
    record = await world.parts.drive_to_the_end("later")
    assert (record.state, record.reason, record.attempt) == ("FAILURE", "exit_code", 2)
    attempts, runs = await world.history("later")
    assert [one.outcome for one in attempts] == ["RETRIED", "FAILURE"]
    assert [run.exit_code for run in runs] == [7, 7]
    assert await timers(world, "later") == {}


async def test_a_delayed_end_is_sent_to_volcano_as_command(world: World) -> None:
    # In parallel: each takes the policy's two seconds and Volcano's lags.
    await asyncio.gather(
        is_ordered(world, "AbortJob", "FAILURE", "stopped"),
        is_ordered(world, "TerminateJob", "FAILURE", "stopped"),
        is_ordered(world, "CompleteJob", "SUCCESS", "completed"),
    )


async def is_ordered(world: World, action: str, state: str, reason: str) -> None:
    job_id = f"order-{action.lower()}"
    await world.submit(
        job_id,
        tasks=[{"name": "fails", "invocation": FAILS}, {"name": "lives", "invocation": SLEEPS}],
        policies=after(2, action, exit_code=7),
    )
    record = await world.parts.drive_to_the_end(job_id)
    assert (record.state, record.reason, record.attempt) == (state, reason, 1)
    assert record.message == f"fails 0 ended with exit code 7: {action}, as its policy says"
    assert record.ordered == action
    found = [one["status"]["phase"] for one in await world.pods(job_id)]
    assert "Running" not in found


async def test_a_policy_that_an_older_version_gave_to_volcano_is_timed_by_volcano_alone(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    # With the lag, Volcano restarts once more than it counts. So the controller restarts instead.
    world.cluster.set_lags({})
    with monkeypatch.context() as before:
        before.setattr(task, "carried_out_here", lambda lists: [])
        policies = after(2, "RestartJob", event="PodFailed")
        await world.submit("older", invocation=FAILS, policies=policies, max_retry=1)
        await world.parts.drive("older", lambda record: record.uid is not None)
    made = await world.volcano_job("older")
    assert made["spec"]["policies"][0]["timeout"] == "2s"
    record = await world.parts.drive_to_the_end("older")
    assert record.state == "FAILURE"
    assert await timers(world, "older") == {}
    attempts, _ = await world.history("older")
    # The controller restarts it at most once: for a restart that Volcano lost.
    assert len(attempts) == record.attempt <= 2
    world.cluster.set_lags(chosen_lags(world.cluster.seed))


async def test_a_pod_pending_too_long_aborts_the_job_once(world: World) -> None:
    policies = after(2, "AbortJob", event="PodPending")
    await world.submit("pending", image="nobody-has-it", policies=policies)
    record = await world.parts.drive_to_the_end("pending")
    assert (record.state, record.reason) == ("FAILURE", "stopped")
    assert record.message == "job 0 has waited too long: AbortJob, as its policy says"
    _, runs = await world.history("pending")
    assert len(runs) == 1


async def test_a_pod_pending_too_long_exhausts_the_retries(world: World) -> None:
    policies = after(1, "RestartJob", event="PodPending")
    await world.submit("waits", image="nobody-has-it", policies=policies, max_retry=1)
    record = await world.parts.drive_to_the_end("waits")
    assert (record.state, record.reason) == ("FAILURE", "stopped")
    assert (record.attempt, record.retries_used) == (2, 1)
    text = "job 0 has waited too long, and no retry is left: TerminateJob, as its policy says"
    assert record.message == text


async def test_a_replaced_pod_of_a_rank_cancels_its_timer(world: World) -> None:
    policies = [*after(600, "AbortJob", event="PodEvicted"),
                *after(600, "TerminateJob", event="PodPending")]  # fmt: skip
    await world.submit("returns", policies=policies)
    await world.until("returns", "RUNNING")
    assert await timers(world, "returns") == {}
    (pod,) = await world.pods("returns")
    # The pod does not return before an observation.
    lags = chosen_lags(world.cluster.seed)
    world.cluster.set_lags(lags | {"volcano-client": 0.5})
    await world.admin.delete(PODS, pod["metadata"]["name"], "jobs")
    await until_timed(world, "returns", "PodEvicted")
    world.cluster.set_lags(lags)

    async def cancelled() -> bool:
        await world.parts.reconciler.reconcile("returns")
        return await timers(world, "returns") == {}

    await eventually(cancelled, seconds=60, what="a timer still runs")
    (again,) = await world.pods("returns")
    assert again["metadata"]["uid"] != pod["metadata"]["uid"]
    record = await world.parts.record("returns")
    assert (record.attempt, record.retries_used, record.ordered) == (1, 0, None)
    await world.end("returns")


async def test_a_policy_due_without_leader_is_applied_by_the_next_leader(world: World) -> None:
    policies = after(2, "RestartJob", event="PodFailed")
    tasks = [{"name": "fails", "invocation": FAILS}, {"name": "lives", "invocation": SLEEPS}]
    await world.submit("absent", tasks=tasks, policies=policies)
    timer = await until_timed(world, "absent", "PodFailed")
    await asyncio.sleep(max(0.0, timer.due_at - time.time()) + 0.5)
    assert (await world.parts.record("absent")).attempt == 1
    again = await world.parts.reconciler.reconcile("absent")
    assert again is None or again.after <= 2.0
    record = await world.parts.drive("absent", lambda r: r.attempt == 2 and r.uid is not None)
    assert record.retries_used == 1
    await world.end("absent")


async def test_the_job_is_requeued_for_the_earliest_timer(world: World) -> None:
    policies = after(100, "AbortJob", event="PodPending")
    await world.parts.submit(make_job(id="again", image="nobody-has-it", policies=policies))
    await until_timed(world, "again", "PodPending")

    async def settled() -> float | None:
        requeue = await world.parts.reconciler.reconcile("again")
        return requeue.after if requeue is not None and requeue.reason == "due" else None

    seconds = await eventually(settled)
    assert 50 < seconds <= 100
    await world.end("again")


async def test_a_completed_task_completes_the_job_after_its_timeout(world: World) -> None:
    done = {"command": ["sh", "-c", "sleep 1"]}
    await world.submit(
        "task-done",
        tasks=[{"name": "short", "invocation": done}, {"name": "lives", "invocation": SLEEPS}],
        policies=after(3, "CompleteJob", event="TaskCompleted"),
    )
    timer = await until_timed(world, "task-done", "TaskCompleted")
    _, runs = await world.history("task-done")
    (short,) = [run for run in runs if run.task == "short"]
    # A kubelet reports whole seconds.
    assert timer.due_at >= (short.ended_at or 0.0) + 3
    assert any(run.ended_at is None for run in runs), "it did not wait"
    record = await world.parts.drive_to_the_end("task-done")
    assert time.time() >= timer.due_at
    assert (record.state, record.reason, record.attempt) == ("SUCCESS", "completed", 1)
    assert record.ordered == "CompleteJob"


async def test_a_job_whose_only_task_completes_does_not_wait_for_its_policy(world: World) -> None:
    policies = after(600, "RestartJob", event="TaskCompleted")
    await world.submit("all-done", invocation={"command": ["true"]}, policies=policies)
    record = await world.parts.drive_to_the_end("all-done")
    assert (record.state, record.reason, record.attempt) == ("SUCCESS", "completed", 1)
    assert await timers(world, "all-done") == {}


async def test_a_partly_unschedulable_job_is_aborted_after_its_timeout(
    world: World,
) -> None:
    (node,) = await world.admin.list(NODES)
    name = node["metadata"]["name"]
    tasks = [{"name": "stays", "invocation": SLEEPS}, {"name": "leaves", "invocation": SLEEPS}]
    await world.submit("torn", tasks=tasks, policies=after(2, "AbortJob", event="Unknown"))
    await world.until("torn", "RUNNING")
    assert await timers(world, "torn") == {}
    await world.admin.merge(NODES, name, {"spec": {"unschedulable": True}})
    try:
        (gone,) = [
            pod["metadata"]["name"]
            for pod in await world.pods("torn")
            if "leaves" in pod["metadata"]["name"]
        ]
        await world.admin.delete(PODS, gone, "jobs")
        timer = await until_timed(world, "torn", "Unknown")
        record = await world.parts.drive_to_the_end("torn")
    finally:
        await world.admin.merge(NODES, name, {"spec": {"unschedulable": None}})
    assert time.time() >= timer.due_at
    assert (record.state, record.reason, record.attempt) == ("FAILURE", "stopped", 1)
    text = "some pods run and others cannot be placed: AbortJob, as its policy says"
    assert record.message == text
