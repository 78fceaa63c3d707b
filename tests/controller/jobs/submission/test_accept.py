"""Two calls at once: what one has accepted the other finds."""

from __future__ import annotations

import asyncio
import os
import time

import pytest

from controller.jobs.spec.model import Job
from controller.jobs.submission.accept import Submissions
from controller.store.database import Store
from controller.store.instance.identity import ensure_position, raise_revision
from controller.store.vault import Vault
from tests.controller.postgres import Postgres
from tests.controller.samples import make_defaults, make_job, make_pipeline

VAULT = Vault([os.urandom(32)])


async def submit(store: Store, *jobs: Job) -> tuple[list[str], list[str]]:
    """Return what became of each, and who was woken."""
    woken: list[str] = []
    submissions = Submissions(
        store=store,
        pipeline=make_pipeline(),
        vault=VAULT,
        defaults=make_defaults(),
        clock=time.time,
        random=os.urandom,
        wake=woken.append,
    )
    return [one.result for one in await submissions.submit(jobs, "best_effort")], woken


@pytest.mark.needs("postgres")
async def test_of_two_calls_at_once_one_makes_the_job_and_one_finds_it(postgres: Postgres) -> None:
    url = postgres.new_database()
    stores = [Store(url) for _ in range(3)]
    await stores[0].open()
    async with stores[0].write() as transaction:
        await ensure_position(transaction, new_identity="test")
    async with asyncio.TaskGroup() as tasks, stores[0].write() as transaction:
        # Whoever adds a job waits here; both have looked before, and there was none.
        await raise_revision(transaction)
        same, own, another = make_job(), make_job(id="j2"), make_job(image="other")
        calls = [
            tasks.create_task(submit(stores[1], same, own)),
            tasks.create_task(submit(stores[2], same, make_job(id="j3"))),
            tasks.create_task(submit(stores[0], another)),
        ]
        await asyncio.sleep(0.3)
        assert not any(call.done() for call in calls)
    (first, woken), (second, others), (third, more) = [call.result() for call in calls]
    assert sorted([first[0], second[0], third[0]]) in (
        ["conflict", "created", "unchanged"],
        ["conflict", "conflict", "created"],
    )
    assert (first[1], second[1]) == ("created", "created")
    assert sorted(woken + others + more) == ["j1", "j2", "j3"]
    for store in stores:
        await store.close()
