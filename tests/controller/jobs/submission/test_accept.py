"""Tests concurrent submissions, and calls with many jobs."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Sequence
from typing import Any, cast

import pytest

from controller.jobs.pipeline.pipeline import Plan
from controller.jobs.spec.accepted import Vault
from controller.jobs.spec.model import Job
from controller.jobs.spec.problems import JobRejected, Problem
from controller.jobs.submission.accept import Submissions
from controller.jobs.submission.checking import PLANS_AT_ONCE
from controller.jobs.submission.dry_run import DryRun, TimeBudget
from controller.store.database import Store
from controller.store.instance import ensure_position, raise_revision
from tests.controller.postgres import Postgres
from tests.controller.samples import make_defaults, make_job, make_pipeline

VAULT = Vault([os.urandom(32)])


async def submit(store: Store, *jobs: Job) -> tuple[list[str], list[str]]:
    """Submit the jobs; return their results and the enqueued jobs."""
    enqueued: list[str] = []
    submissions = Submissions(
        store=store,
        pipeline=make_pipeline(),
        vault=VAULT,
        defaults=make_defaults(),
        clock=time.time,
        random=os.urandom,
        enqueue=enqueued.append,
    )
    return [one.result for one in await submissions.submit(jobs, "best_effort")], enqueued


@pytest.mark.needs("postgres")
async def test_of_two_concurrent_calls_one_creates_the_job_and_one_finds_it(
    postgres: Postgres,
) -> None:
    url = postgres.new_database()
    stores = [Store(url) for _ in range(3)]
    await stores[0].open()
    async with stores[0].write() as transaction:
        await ensure_position(transaction, new_identity="test")
    async with asyncio.TaskGroup() as tasks, stores[0].write() as transaction:
        # This transaction blocks inserts. Both calls have read before, and found no job.
        await raise_revision(transaction)
        same, own, another = make_job(), make_job(id="j2"), make_job(image="other")
        calls = [
            tasks.create_task(submit(stores[1], same, own)),
            tasks.create_task(submit(stores[2], same, make_job(id="j3"))),
            tasks.create_task(submit(stores[0], another)),
        ]
        await asyncio.sleep(0.3)
        assert not any(call.done() for call in calls)
    (first, enqueued), (second, others), (third, more) = [call.result() for call in calls]
    assert sorted([first[0], second[0], third[0]]) in (
        ["conflict", "created", "unchanged"],
        ["conflict", "conflict", "created"],
    )
    assert (first[1], second[1]) == ("created", "created")
    assert sorted(enqueued + others + more) == ["j1", "j2", "j3"]
    for store in stores:
        await store.close()


class CountingDryRun:
    """A dry run that refuses the job `j7` and records how many plans each call holds."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.allowances = set[int]()

    async def problems_of(
        self, plans: Sequence[Plan], allowance: TimeBudget
    ) -> list[tuple[Problem, ...]]:
        self.asked.append(len(plans))
        self.allowances.add(id(allowance))
        return [(Problem("queue", "no"),) if plan.job.id == "j7" else () for plan in plans]


async def test_many_jobs_are_planned_and_dry_run_with_bounded_concurrency(store: Store) -> None:
    counting = CountingDryRun()
    submissions = Submissions(
        store=store,
        pipeline=make_pipeline(),
        vault=VAULT,
        defaults=make_defaults(),
        clock=time.time,
        random=os.urandom,
        enqueue=lambda _: None,
        dry_run=cast(DryRun, counting),
    )
    jobs: list[Job | JobRejected] = [make_job(id=f"j{i}") for i in range(2 * PLANS_AT_ONCE)]
    jobs += [make_job(id="j3"), JobRejected([Problem("id", "bad")]), make_job(id="last")]
    results = [one.result for one in await submissions.submit(jobs, "best_effort")]
    # A duplicate id is refused wherever the first one is, and gets no dry run.
    refused = {7, 2 * PLANS_AT_ONCE, 2 * PLANS_AT_ONCE + 1}
    assert {i for i, result in enumerate(results) if result == "rejected"} == refused
    assert results.count("created") == len(jobs) - len(refused)
    assert counting.asked == [PLANS_AT_ONCE, PLANS_AT_ONCE, 1]
    assert len(counting.allowances) == 1


async def test_members_of_an_object_have_no_order_but_lists_do(store: Store) -> None:
    """JSON objects are unordered (RFC 8259, section 4): a client may send them in any order."""
    lab, board = {"kind": "web", "port": 8888}, {"kind": "web", "port": 6006}
    parameters = {name: {"type": "text", "value": name} for name in ("a", "b")}
    objects: dict[str, dict[str, Any]] = {"lab": lab, "board": board}
    fields = {"interactive": objects, "parameters": parameters}
    turned = {name: dict(reversed(value.items())) for name, value in fields.items()}
    tasks = [{"name": "one"}, {"name": "two"}]
    first = make_job(tasks=tasks, **fields)
    assert await submit(store, first) == (["created"], ["j1"])
    assert (await submit(store, make_job(tasks=tasks, **turned)))[0] == ["unchanged"]
    # The order of tasks gives the ranks.
    assert (await submit(store, make_job(tasks=tasks[::-1], **fields)))[0] == ["conflict"]
