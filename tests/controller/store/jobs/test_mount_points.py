"""Tests output folders: a folder in use is not cleaned, and a folder in cleaning is not used."""

from __future__ import annotations

from typing import Any

from controller.store.database import Store, Transaction
from controller.store.jobs.folders import (
    MountPoints,
    begin_cleaning,
    end_cleaning,
    hold_mount_points,
    last_jobs_of,
    outputs_not_held,
    places_to_clean,
    record_missing_mount_points,
    release_mount_points,
)
from controller.store.jobs.job_rows import JobRecord, insert_jobs
from tests.controller.samples import make_record


async def hold(transaction: Transaction, job_id: str, place: str = "out") -> bool:
    await insert_jobs(transaction, [(make_record(id=job_id), {})])
    return await hold_again(transaction, job_id, place)


async def hold_again(transaction: Transaction, job_id: str, place: str = "out") -> bool:
    wanted = MountPoints(place=place, names=("a", "b", "c"), cleaner={"of": job_id})
    return await hold_mount_points(transaction, job_id, wanted)


async def test_a_folder_is_cleaned_once_the_last_job_has_left_it(store: Store) -> None:
    async with store.write() as transaction:
        for job_id in ("one", "two", "three"):
            assert await hold(transaction, job_id)
        await record_missing_mount_points(transaction, "one", {0, 2})
        await record_missing_mount_points(
            transaction, "one", {2}
        )  # by its next attempt, which found the other one
        await record_missing_mount_points(transaction, "two", {1, 7})
        await release_mount_points(transaction, "one", at=5.0)
        assert await places_to_clean(transaction, limit=9) == []
        assert await begin_cleaning(transaction, "out", now=6.0) is None
        await release_mount_points(transaction, "two", at=7.0)
        # It found all mount points, so it leaves none of its own.
        await release_mount_points(transaction, "three", at=8.0)
        assert sorted(await last_jobs_of(transaction, "out")) == ["one", "two"]
        assert await places_to_clean(transaction, limit=9) == ["out"]
        cleaning = await begin_cleaning(transaction, "out", now=9.0)
        assert cleaning is not None
        assert (cleaning.names, cleaning.began_at) == (("a", "c", "b"), 9.0)
        assert cleaning.cleaner == {"of": "two"}


async def test_no_job_acquires_a_folder_being_cleaned(store: Store) -> None:
    async with store.write() as transaction:
        await hold(transaction, "one")
        await record_missing_mount_points(transaction, "one", {0})
        await release_mount_points(transaction, "one", at=5.0)
        assert await begin_cleaning(transaction, "out", now=6.0)
        assert not await hold(transaction, "two")
        assert await hold(transaction, "other", "elsewhere")
        # The next leader continues the cleaning.
        again = await begin_cleaning(transaction, "out", now=60.0)
        assert again is not None
        assert again.began_at == 6.0
        await end_cleaning(transaction, "out")
        assert await hold_again(transaction, "two")
        assert await hold_again(transaction, "two"), "its next attempt has what it has"


async def test_a_folder_in_use_again_is_not_cleaned(store: Store) -> None:
    async with store.write() as transaction:
        await hold(transaction, "one")
        await record_missing_mount_points(transaction, "one", {1})
        await release_mount_points(transaction, "one", at=5.0)
        assert await hold(transaction, "two")
        assert await begin_cleaning(transaction, "out", now=6.0) is None
        await release_mount_points(transaction, "two", at=7.0)
        cleaning = await begin_cleaning(transaction, "out", now=8.0)
        assert cleaning is not None
        assert cleaning.names == ("b",), "what the first one made is not forgotten"


async def test_a_sweep_leaves_folders_beyond_one_cleaners_capacity(store: Store) -> None:
    async with store.write() as transaction:
        for job_id in ("one", "two"):
            await insert_jobs(transaction, [(make_record(id=job_id), {})])
            names = tuple(f"{job_id}-{number}" for number in range(700))
            wanted = MountPoints(place="out", names=names, cleaner={})
            assert await hold_mount_points(transaction, job_id, wanted)
            await record_missing_mount_points(transaction, job_id, range(700))
            await release_mount_points(transaction, job_id, at=5.0)
        cleaning = await begin_cleaning(transaction, "out", now=6.0)
        assert cleaning is not None
        assert len(cleaning.names) == 1000


async def test_a_job_without_mount_points_has_no_record(store: Store) -> None:
    async with store.write() as transaction:
        await insert_jobs(transaction, [(make_record(id="plain"), {})])
        await record_missing_mount_points(transaction, "plain", {0})
        await release_mount_points(transaction, "plain", at=5.0)
        assert await places_to_clean(transaction, limit=9) == []


async def test_cluster_jobs_without_folder_are_recorded(store: Store) -> None:
    def record(job_id: str, **fields: Any) -> JobRecord:
        spec: dict[str, Any] = {"output": f"/home/{job_id}"}
        spec |= {"parameters": {"in": {"type": "directory", "path": "/home/in"}}}
        return make_record(**{"id": job_id, "uid": "u", "spec": spec} | fields)

    records = [
        record("older"),
        record("waits", uid=None),
        record("over", finished_at=5.0),
        record("other", owner_user="bob"),
        record("plain", spec={"output": "/home/plain"}),
        record("newer", spec=["of a later version"]),
        record("newest", spec={"output": 7, "parameters": {"in": {"type": "directory"}}}),
        record("holds"),
    ]
    async with store.write() as transaction:
        await insert_jobs(transaction, [(one, {}) for one in records])
        await hold_again(transaction, "holds")
        found = await outputs_not_held(transaction, namespace="jobs", user="ada")
        assert found == {"/home/older"}
