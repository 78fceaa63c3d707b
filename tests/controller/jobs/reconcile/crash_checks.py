"""Checks what must hold for a job whose controller crashed, at any crash point."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from controller.jobs.spec.model import Job
from controller.kube.kinds import (
    LEASES,
    NETWORK_POLICIES,
    PODS,
    VCJOBS,
)
from controller.store.jobs.job_rows import FINAL_STATES, JobRecord, known_jobs
from controller.store.jobs.progress import attempts_of, companions_of, pod_records_of
from controller.store.outbox.update_rows import UpdateRow, updates_of
from controller.store.outbox.usage_entries import usage_after
from controller.volcano.parsing import read_pod
from tests.controller.jobs.parts import (
    Parts,
)
from tests.controller.jobs.reconcile.crash_world import (
    CHAIN,
    CUT_SHORT,
    LIVES,
    LIVING,
    TWICE,
    Ledger,
    World,
)
from tests.controller.running import eventually


async def check_all(world: World, parts: Parts, jobs: Sequence[Job], life: str, where: str) -> None:
    """Run :func:`check` for each job; a job that is forgotten was checked before."""
    if life == "chain":
        async with parts.store.read() as transaction:
            every = await usage_after(transaction, 0, limit=10**6)
            assert not await known_jobs(transaction, [jobs[0].id]), where
        assert [one.final for one in every if one.job_id == jobs[0].id].count(True) == 1, where
    lives = CHAIN if life == "chain" else (life,)
    for job, one in list(zip(jobs, lives, strict=True))[life == "chain" :]:
        await check(world, parts, job.id, one, where)


async def check(world: World, parts: Parts, job_id: str, life: str, where: str) -> None:
    """Check that the job was created once, did everything, has exact usage, and left nothing."""
    record = await parts.record(job_id)
    assert record.sealed is None, where
    async with parts.store.read() as transaction:
        attempts = await attempts_of(transaction, job_id)
        updates = await updates_of(transaction, job_id)
        assert await companions_of(transaction, job_id) == [], where
    uids = world.made[f"j-{job_id}"]
    if life not in CUT_SHORT:
        said = [(one.state, one.reason, one.message) for one in updates]
        assert len(uids) == (2 if life in TWICE else life != "never"), (where, uids, said)
    assert {one.uid for one in attempts} == uids, where
    assert all(one.ended_at is not None and one.outcome for one in attempts), where
    assert record.retries_used == (life == "retried"), where
    # If the job ends between two attempts, there is no second attempt.
    between = life == "dropped" and len(attempts) < record.attempt
    assert (attempts[-1].uid if attempts and not between else None) == record.uid, where
    check_updates(updates, life, where)
    for hook in ("complete", "cleanup"):
        # A hook runs twice at most: again only if its first run was not recorded.
        assert 1 <= Ledger.entries[job_id, hook] <= 2, (where, hook)
    assert Ledger.entries[job_id, "start"] <= 2 * len(attempts), where
    labels = f"fumarole.dev/job={job_id}"
    made = await world.kube.list(VCJOBS, labels=labels)
    assert {one["metadata"]["uid"] for one in made} <= {record.uid}, where
    await check_usage(world, parts, job_id, where)
    for run in await parts.runs_of(job_id):
        await check_run(world, parts, run, where)
    if record.desired == "ended":
        await until_nothing_is_left(world, job_id, where)


async def check_run(world: World, parts: Parts, run: JobRecord, where: str) -> None:
    """Check that a tool's run ended with its job, has exact usage, and left nothing."""
    assert run.tool is not None
    assert (run.state, run.attempt) == ("SUCCESS", 1), (where, run)
    assert run.end_reason in ("attempt_ended", "job_ended"), (where, run)
    async with parts.store.read() as transaction:
        assert await updates_of(transaction, run.id) == [], where
        assert await companions_of(transaction, run.id) == [], where
    await check_usage(world, parts, run.id, where, tool=run.tool)
    await until_nothing_is_left(world, run.id, where)


def check_updates(updates: Sequence[UpdateRow], life: str, where: str) -> None:
    """Check that the end was reported exactly once, as the last update."""
    states = [(one.state, one.reason) for one in updates]
    *before, (state, reason) = states
    assert state == LIVES[life][2], (where, states)
    assert not {one for one, _ in before} & {*FINAL_STATES}, (where, states)
    waited_for = {why for one, why in before if one in LIVING}
    # A job may wait for a predecessor and then fail because of it.
    assert reason not in waited_for or reason == "predecessor", (where, states)
    assert all(one.exits is None for one in updates[:-1]), where


async def check_usage(
    world: World,
    parts: Parts,
    job_id: str,
    where: str,
    *,
    tool: Mapping[str, Any] | None = None,
) -> None:
    """Check that the ledger holds the usage of the cluster's pods exactly once."""
    paid_by, name = (job_id, None) if tool is None else (tool["job"], tool["name"])
    async with parts.store.read() as transaction:
        every = await usage_after(transaction, 0, limit=10**6)
        runs = await pod_records_of(transaction, job_id)
        uids = {one.attempt: one.uid for one in await attempts_of(transaction, job_id)}
    cut_short = any(life in job_id for life in CUT_SHORT)
    assert runs or tool is not None or not uids or cut_short, where
    if tool is None:
        own_uids = {one.uid for one in every if (one.job_id, one.tool) == (job_id, None)}
        assert own_uids <= {*uids.values()}, where
    for pod in await world.kube.list(PODS, labels=f"fumarole.dev/job={job_id}"):
        written = [one for one in runs if one.pod_uid == pod["metadata"]["uid"]]
        assert len(written) == 1, (where, job_id, uids, pod["metadata"]["ownerReferences"])
        seen, run = read_pod(pod), written[0]
        assert seen.ended is not None, where
        assert (run.started_at, run.ended_at) == (seen.started_at, seen.ended.finished_at), where
    for attempt in {run.attempt for run in runs}:
        own = [one for one in every if one.uid == uids[attempt]]
        assert {(one.job_id, one.tool) for one in own} <= {(paid_by, name)}, where
        own.sort(key=lambda one: one.period)
        began = [run for run in runs if run.attempt == attempt and run.started_at is not None]
        assert [one.period for one in own] == list(range(len(own))), where
        assert [one.final for one in own] == [False] * (len(own) - 1) + [True] * bool(own), where
        total = sum((run.ended_at or 0.0) - (run.started_at or 0.0) for run in began)
        assert (own[-1].seconds if own else 0.0) == total, (where, own, began)


async def until_nothing_is_left(world: World, job_id: str, where: str) -> None:
    try:
        await eventually(lambda: nothing_is_left(world, job_id), seconds=150)
    except AssertionError:
        raise AssertionError(where, await objects_of(world, job_id)) from None


async def nothing_is_left(world: World, job_id: str) -> bool:
    return not await objects_of(world, job_id)


async def objects_of(world: World, job_id: str) -> list[Mapping[str, Any]]:
    labels, kinds = f"fumarole.dev/job={job_id}", (VCJOBS, PODS, NETWORK_POLICIES, LEASES)
    return [one for kind in kinds for one in await world.kube.list(kind, labels=labels)]
