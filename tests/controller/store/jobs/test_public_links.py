from __future__ import annotations

from controller.store.database import Store
from controller.store.jobs.job_rows import insert_job, lock_job, update_job
from controller.store.jobs.public_links import (
    PASSES_ON_SECONDS,
    forget_links,
    link_conflicts,
    release_links,
    take_links,
)
from tests.controller.samples import make_record


async def add(store: Store, job_id: str) -> None:
    async with store.write() as transaction:
        await insert_job(transaction, make_record(id=job_id), labels={})


async def why_not(store: Store, *names: str, owner: str, job: str, now: float) -> dict[str, str]:
    async with store.write() as transaction:
        found = await link_conflicts(transaction, names, owner=owner, job_id=job, now=now)
    return {names[index]: problem for index, problem in found}


async def take(store: Store, *names: str, owner: str, job: str) -> None:
    async with store.write() as transaction:
        await take_links(transaction, names, owner=owner, job_id=job)


async def release(store: Store, job: str, now: float) -> None:
    async with store.write() as transaction:
        await release_links(transaction, job, now=now)


async def test_a_link_belongs_to_one_job_at_a_time(store: Store) -> None:
    await add(store, "j1")
    await take(store, "first", owner="ada", job="j1")
    asked = await why_not(store, "other", "first", owner="ada", job="j2", now=5.0)
    assert asked == {"first": "is in use by another job"}
    assert await why_not(store, "first", owner="ada", job="j1", now=5.0) == {}


async def test_a_released_link_is_reserved_for_its_owner_for_thirty_days(
    store: Store,
) -> None:
    await add(store, "j1")
    await take(store, "first", owner="ada", job="j1")
    await release(store, "j1", 100.0)
    assert await why_not(store, "first", owner="ada", job="j2", now=101.0) == {}
    almost = 100.0 + PASSES_ON_SECONDS - 1
    refused = await why_not(store, "first", owner="bob", job="j2", now=almost)
    assert refused == {"first": "is reserved for another owner"}
    assert await why_not(store, "first", owner="bob", job="j2", now=almost + 1) == {}


async def test_the_reservation_restarts_with_every_job(store: Store) -> None:
    await add(store, "j1")
    await add(store, "j2")
    await take(store, "first", owner="ada", job="j1")
    await release(store, "j1", 100.0)
    await take(store, "first", owner="ada", job="j2")
    later = 100.0 + PASSES_ON_SECONDS
    await release(store, "j2", later)
    assert await why_not(store, "first", owner="bob", job="j3", now=later + 1) != {}


async def test_an_ended_job_does_not_keep_an_unreleased_link(store: Store) -> None:
    await add(store, "j1")
    await take(store, "first", owner="ada", job="j1")
    async with store.write() as transaction:
        record = await lock_job(transaction, "j1")
        assert record is not None
        await update_job(transaction, record, now=50.0, state="FAILURE", finished_at=50.0)
    assert await why_not(store, "first", owner="ada", job="j2", now=51.0) == {}
    assert await why_not(store, "first", owner="bob", job="j2", now=51.0) != {}
    after = 50.0 + PASSES_ON_SECONDS
    assert await why_not(store, "first", owner="bob", job="j2", now=after) == {}


async def test_only_unreserved_links_are_deleted(store: Store) -> None:
    await add(store, "j1")
    await take(store, "held", owner="ada", job="j1")
    await take(store, "old", owner="ada", job="gone")
    await release(store, "gone", 100.0)
    async with store.write() as transaction:
        await forget_links(transaction, now=100.0 + PASSES_ON_SECONDS - 1)
    assert await why_not(store, "old", owner="bob", job="j2", now=101.0) != {}
    async with store.write() as transaction:
        await forget_links(transaction, now=100.0 + PASSES_ON_SECONDS)
    assert await why_not(store, "old", owner="bob", job="j2", now=101.0) == {}
    assert await why_not(store, "held", owner="bob", job="j2", now=1e9) != {}


async def test_the_link_of_a_deleted_job_is_released(store: Store) -> None:
    await take(store, "lost", owner="ada", job="forgotten")
    async with store.write() as transaction:
        await forget_links(transaction, now=100.0)
    assert await why_not(store, "lost", owner="bob", job="j2", now=101.0) != {}
    assert await why_not(store, "lost", owner="bob", job="j2", now=100.0 + PASSES_ON_SECONDS) == {}
