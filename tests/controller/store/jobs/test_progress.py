from __future__ import annotations

import pytest

from controller.store.database import Store
from controller.store.jobs.job_rows import insert_job
from controller.store.jobs.progress import (
    CompanionRecord,
    HookState,
    attempts_of,
    companions_of,
    drop_companions,
    drop_due,
    due_jobs,
    hooks_of,
    intend_companions,
    record_attempt,
    record_companions,
    record_hooks,
    set_due,
)
from tests.controller.samples import make_record


@pytest.fixture(autouse=True)
async def _jobs(store: Store) -> None:
    async with store.write() as transaction:
        for job_id in ("j1", "j2"):
            await insert_job(transaction, make_record(id=job_id), labels={})


async def test_hooks_are_recorded_per_attempt(store: Store) -> None:
    async with store.write() as transaction:
        for plugins in (["task"], ["task", "proxy"]):
            await record_hooks(transaction, "j1", 1, hook="start", plugins=plugins, now=1.0)
        await record_hooks(transaction, "j1", 2, hook="complete", plugins=["task"], now=1.0)
        assert await hooks_of(transaction, "j1", 1) == {
            "start": HookState(frozenset({"task", "proxy"}))
        }
        assert await hooks_of(transaction, "j2", 1) == {}


async def test_an_attempt_is_recorded_once(store: Store) -> None:
    async with store.write() as transaction:
        for uid, now in (("u", 1.0), ("other", 2.0)):
            await record_attempt(transaction, "j1", 1, uid=uid, now=now)
        (attempt,) = await attempts_of(transaction, "j1")
    assert (attempt.attempt, attempt.uid, attempt.submitted_at) == (1, "u", 1.0)


async def test_due_jobs_are_returned_oldest_first_up_to_a_limit(store: Store) -> None:
    async with store.write() as transaction:
        await set_due(transaction, "j1", "a", at=20.0)
        await set_due(transaction, "j2", "a", at=10.0)
        await set_due(transaction, "j1", "b", at=30.0)
        assert await due_jobs(transaction, now=25.0, limit=9) == {"a": ["j2", "j1"]}
        assert await due_jobs(transaction, now=25.0, limit=1) == {"a": ["j2"]}
        await set_due(transaction, "j2", "a", at=None)
        await set_due(transaction, "j1", "a", at=40.0)
        assert await due_jobs(transaction, now=35.0, limit=9) == {"b": ["j1"]}
        await drop_due(transaction, "j1")
        assert await due_jobs(transaction, now=99.0, limit=9) == {}


async def test_a_companion_is_recorded_from_intent_to_removal(store: Store) -> None:
    wanted = [("Secret", "jobs", "s"), ("NetworkPolicy", "jobs", "p")]
    made = CompanionRecord(kind="Secret", namespace="jobs", name="s", uid="u", owner_uid=None)
    async with store.write() as transaction:
        await intend_companions(transaction, "j1", wanted)
        assert {(one.name, one.uid) for one in await companions_of(transaction, "j1")} == {
            ("s", ""), ("p", ""),
        }  # fmt: skip
        await record_companions(transaction, "j1", [made])
        await intend_companions(transaction, "j1", wanted)
        assert made in await companions_of(transaction, "j1")
        await drop_companions(transaction, "j1", [made])
        assert [one.name for one in await companions_of(transaction, "j1")] == ["p"]
