from __future__ import annotations

from typing import Any

from controller.store.database import Store
from controller.store.instance import read_store_metadata
from controller.store.jobs.job_rows import changed_jobs, insert_job, lock_job, update_job
from controller.store.jobs.progress import CompanionRecord, record_companions
from controller.store.jobs.relations import (
    NOBODY,
    Caller,
    basis_of,
    callers_of,
    find_peers,
    record_connections,
    touch_peers_of,
)
from tests.controller.samples import make_record


async def add(store: Store, job_id: str, **peers: list[int]) -> None:
    async with store.write() as transaction:
        record = make_record(id=job_id, namespace=f"of-{job_id}")
        await insert_job(transaction, record, labels={})
        await record_connections(transaction, job_id, peers)


async def move(store: Store, job_id: str, **values: Any) -> None:
    async with store.write() as transaction:
        record = await lock_job(transaction, job_id)
        assert record is not None
        await update_job(transaction, record, now=9.0, **values)


async def callers(store: Store, job_id: str) -> list[Caller]:
    async with store.read() as transaction:
        return await callers_of(transaction, job_id)


async def changed_since(store: Store, revision: int) -> set[str]:
    async with store.read() as transaction:
        return set((await changed_jobs(transaction, after=revision))[0])


async def revision_of(store: Store) -> int:
    async with store.read() as transaction:
        return (await read_store_metadata(transaction)).revision


async def test_callers_of_a_job_are_the_active_jobs_that_name_it(store: Store) -> None:
    await add(store, "db")
    await add(store, "a", db=[5432])
    await add(store, "b", db=[])
    assert await callers(store, "db") == [Caller("a", "of-a", (5432,)), Caller("b", "of-b", ())]
    await move(store, "a", outcome="SUCCESS")
    assert [one.job_id for one in await callers(store, "db")] == ["b"]
    await move(store, "b", state="FAILURE")
    assert await callers(store, "db") == []


async def test_named_jobs_are_enqueued_at_start_and_end_of_a_connection(
    store: Store,
) -> None:
    await add(store, "db")
    before = await revision_of(store)
    await add(store, "a", db=[])
    assert "db" in await changed_since(store, before)
    before = await revision_of(store)
    async with store.write() as transaction:
        await touch_peers_of(transaction, "a")
    assert await changed_since(store, before) == {"db"}
    before = await revision_of(store)
    async with store.write() as transaction:
        await touch_peers_of(transaction, "db")
    assert await revision_of(store) == before


async def test_a_peer_is_found_only_with_its_service_address(store: Store) -> None:
    await add(store, "db")
    await add(store, "over")
    await move(store, "over", outcome="FAILURE")
    rows = [("peer-db", "10.96.0.7"), ("other", "10.96.0.8")]
    async with store.write() as transaction:
        await record_companions(
            transaction,
            "db",
            [
                CompanionRecord(
                    kind="Service", namespace="of-db", name=name, uid="u", owner_uid=None,
                    address=address, lasting=True,
                )
                for name, address in rows
            ],
        )  # fmt: skip
    async with store.read() as transaction:
        found = await find_peers(transaction, ["db", "over", "absent"])
    assert (found["db"].address, found["db"].ended) == ("10.96.0.7", False)
    assert (found["over"].address, found["over"].ended) == (None, True)
    assert set(found) == {"db", "over"}


def test_an_input_hash_covers_caller_namespace_and_ports() -> None:
    one, other = Caller("a", "x", ()), Caller("b", "x", (80,))
    assert basis_of([]) == NOBODY
    assert basis_of([one, other]) == basis_of([other, one])
    bases = {
        basis_of(callers) for callers in ([], [one], [other], [one, other], [Caller("a", "y", ())])
    }
    assert len(bases) == 5


def test_a_companion_is_current_by_owner_and_input_hash() -> None:
    def one(**fields: Any) -> CompanionRecord:
        values = {"kind": "Service", "namespace": "x", "name": "y", "uid": "u", "owner_uid": "v"}
        return CompanionRecord(**values | fields)

    assert one().is_settled("v", "any")
    assert not one().is_settled("w", "any")
    assert not one(basis="old").is_settled("v", "new")
    assert one(basis="new").is_settled("v", "new")
    assert one(owner_uid=None, lasting=True).is_settled("w", "any")
    # Intended, but perhaps never created.
    assert not one(owner_uid=None, lasting=True, uid="").is_settled("w", "any")
