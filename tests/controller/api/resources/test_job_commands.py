"""Tests the job commands: extending a job's time, suspending and resuming it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from controller.jobs.pipeline.border import due_time
from controller.store.jobs.job_rows import find_job, update_job
from tests.controller.api.conftest import Api
from tests.controller.api.jobs import make_job, submit


async def post(api: Api, path: str, body: Any = None, **headers: str) -> tuple[int, dict[str, Any]]:
    response = await api.client.post(f"/v1/jobs/{path}", json=body, headers=headers)
    return response.status, await response.json()


async def change(api: Api, **values: Any) -> None:
    async with api.store.write() as transaction:
        record = await find_job(transaction, "j1")
        assert record is not None
        await update_job(transaction, record, now=1.0, **values)


async def test_concurrent_extensions_are_summed(api: Api) -> None:
    await submit(api, make_job(time_allocation_seconds=100))
    await asyncio.gather(*(post(api, "j1/extend", {"seconds": 10}) for _ in range(8)))
    shown = await (await api.client.get("/v1/jobs/j1")).json()
    assert shown["time_allocation_seconds"] == 180
    assert shown["expires_at"] is None
    await change(api, started_at=1000.0)
    status, extended = await post(api, "j1/extend", {"seconds": 20})
    assert (status, extended) == (
        200,
        {"id": "j1", "added": True, "time_allocation_seconds": 200, "expires_at": 1200.0},
    )


async def test_an_extension_repeated_with_its_idempotency_key_is_applied_once(api: Api) -> None:
    await submit(api, make_job(time_allocation_seconds=100))
    key = {"Idempotency-Key": '"a-1"'}
    responses = await asyncio.gather(
        *(post(api, "j1/extend", {"seconds": 10}, **key) for _ in range(4))
    )
    assert [status for status, _ in responses] == [200] * 4
    assert sorted(response["added"] for _, response in responses) == [False, False, False, True]
    assert {response["time_allocation_seconds"] for _, response in responses} == {110}
    status, refused = await post(api, "j1/extend", {"seconds": 11}, **key)
    assert (status, refused["code"]) == (409, "key_reused")


async def test_the_total_time_of_a_job_is_bounded(api: Api) -> None:
    await submit(api, make_job(time_allocation_seconds=100))
    most = [await post(api, "j1/extend", {"seconds": 10**9}) for _ in range(10)]
    assert [status for status, _ in most] == [200] * 9 + [409]
    assert most[-1][1]["code"] == "too_long"
    await change(api, started_at=time.time())
    shown = await (await api.client.get("/v1/jobs/j1")).json()
    assert due_time(shown["expires_at"]) == shown["expires_at"]
    assert shown["time_allocation_seconds"] == 9 * 10**9 + 100


@pytest.mark.parametrize("key", ["x" * 65, "", '""', "a b", "a\u00e9"])
async def test_a_malformed_idempotency_key_adds_no_time(api: Api, key: str) -> None:
    await submit(api, make_job(time_allocation_seconds=100))
    status, _ = await post(api, "j1/extend", {"seconds": 1}, **{"Idempotency-Key": key})
    assert status == 422


async def test_two_idempotency_keys_are_refused(api: Api) -> None:
    await submit(api, make_job(time_allocation_seconds=100))
    keys = [("Idempotency-Key", "a"), ("Idempotency-Key", "b")]
    asked = api.client.post("/v1/jobs/j1/extend", json={"seconds": 1}, headers=keys)
    assert (await asked).status == 422


@pytest.mark.parametrize(
    ("fields", "values", "code"),
    [
        ({}, {}, "no_end"),
        ({"time_allocation_seconds": 9}, {"state": "EXPIRED", "finished_at": 1.0}, "over"),
        ({"time_allocation_seconds": 9}, {"desired": "ended"}, "ending"),
        ({"time_allocation_seconds": 9}, {"outcome": "SUCCESS"}, "ending"),
    ],
)
async def test_time_is_added_only_to_jobs_with_a_limit_that_have_not_ended(
    api: Api, fields: dict[str, Any], values: dict[str, Any], code: str
) -> None:
    await submit(api, make_job(**fields))
    await change(api, message="as it was", **values)
    status, response = await post(api, "j1/extend", {"seconds": 5})
    assert (status, response["code"]) == (409, code)


@pytest.mark.parametrize("seconds", [0, -5, 1.5, "10", 10**10, None])
async def test_an_invalid_duration_is_refused(api: Api, seconds: object) -> None:
    await submit(api, make_job(time_allocation_seconds=9))
    status, _ = await post(api, "j1/extend", {"seconds": seconds})
    assert status == 422


async def test_an_expired_job_ends_unless_extended(api: Api) -> None:
    await submit(api, make_job(time_allocation_seconds=100))
    assert await api.commands.end_if_over(["j1"]) == {"j1": None}
    began = time.time() - 150
    await change(api, started_at=began)
    await post(api, "j1/extend", {"seconds": 1000})
    assert await api.commands.end_if_over(["j1"]) == {"j1": pytest.approx(began + 1100)}
    await change(api, allocated_seconds=1.0)
    assert await api.commands.end_if_over(["j1"]) == {"j1": None}
    shown = await (await api.client.get("/v1/jobs/j1")).json()
    assert (shown["state"], shown["reason"]) == ("CANCELING", "expired")
    # The first request to end the job decides the reported end state.
    await api.client.delete("/v1/jobs/j1")
    async with api.store.read() as transaction:
        record = await find_job(transaction, "j1")
    assert record is not None
    assert record.end_state == "EXPIRED"


async def test_suspend_and_resume_are_idempotent(api: Api) -> None:
    await submit(api, make_job())
    for _ in range(2):
        status, response = await post(api, "j1/suspend")
        assert (status, response["desired"]) == (202, "suspended")
    for _ in range(2):
        status, response = await post(api, "j1/resume")
        assert (status, response["desired"]) == (200, "run")
    await api.client.delete("/v1/jobs/j1")
    for wish in ("suspend", "resume"):
        status, response = await post(api, f"j1/{wish}")
        assert (status, response["code"]) == (409, "ending")
        assert (await post(api, f"never-was/{wish}"))[0] == 404


async def test_a_resumed_job_whose_abortion_has_begun_is_not_done(api: Api) -> None:
    await submit(api, make_job())
    await change(api, state="RUNNING", desired="suspended", stopping=True, reason="suspending")
    for _ in range(2):
        status, response = await post(api, "j1/resume")
        assert (status, response["desired"], response["state"]) == (202, "run", "RUNNING")
    await change(api, state="IN_QUEUE", stopping=False, reason="resumed")
    assert (await post(api, "j1/resume"))[0] == 200


async def test_an_ended_job_is_neither_suspended_nor_resumed(api: Api) -> None:
    await submit(api, make_job())
    for desired in ("run", "suspended"):
        await change(api, state="FAILURE", desired=desired)
        for wish in ("suspend", "resume"):
            status, response = await post(api, f"j1/{wish}")
            assert (status, response["code"]) == (409, "over"), (desired, wish)
