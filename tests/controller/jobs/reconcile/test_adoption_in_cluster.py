"""Tests the store's identity, and the adoption of VolcanoJobs, on the embedded cluster."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from controller.jobs.cluster.informer import InformerCache
from controller.jobs.reconcile.adoption import StoreIdentity
from controller.kube.errors import Conflict, NotFound
from controller.kube.kinds import CONFIG_MAPS, VCJOBS
from controller.store.jobs.job_rows import find_job, insert_job
from controller.volcano.names import INSTANCE_LABEL
from tests.controller.jobs.parts import Parts
from tests.controller.jobs.two_accounts import TwoAccounts, make_vcjob
from tests.controller.running import eventually
from tests.controller.samples import forget_jobs, make_record

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(120)]


async def test_the_store_identity_is_replaced_only_if_unchanged(both: TwoAccounts) -> None:
    identity = StoreIdentity(both.kube, instance="idt", namespace="jobs")
    assert await identity.read() is None
    await identity.write("one", instead_of=None)
    assert await identity.read() == "one"
    with pytest.raises(Conflict):
        await identity.write("two", instead_of=None)
    with pytest.raises(Conflict):
        await identity.write("two", instead_of="three")
    await identity.write("two", instead_of="one")
    assert await identity.read() == "two"


def spec_of(job_id: str, **fields: Any) -> str:
    return json.dumps({"id": job_id, "owner": {"user": "ada"}, "image": "busybox"} | fields)


async def until_seen(informer: InformerCache, job_id: str) -> None:
    async def look() -> bool:
        return informer.job("jobs", job_id) is not None

    await eventually(look)


@pytest.mark.parametrize("count", [5, pytest.param(50, marks=pytest.mark.long)])
async def test_an_empty_store_beside_running_jobs_adopts_them_all(
    both: TwoAccounts, settled: tuple[Parts, InformerCache], instance: str, count: int
) -> None:
    parts, informer = settled
    made = [
        await make_vcjob(
            both.admin, f"ad{count}-{number}", instance,
            **{"fumarole.dev/spec": spec_of(f"ad{count}-{number}", labels={"n": str(number)}),
               "fumarole.dev/attempt": "2", "fumarole.dev/created": "12.5",
               "fumarole.dev/first-start": "13.5"},
        )
        for number in range(count)
    ]  # fmt: skip
    for job in made:
        await until_seen(informer, job.job_id)
    assert parts.adoption.problems
    await parts.adoption.settle()
    assert parts.adoption.problems == ()
    for number, job in enumerate(made):
        record = await parts.record(job.job_id)
        assert (record.uid, record.attempt, record.created_at) == (job.uid, 2, 12.5)
        assert record.started_at == 13.5
        assert record.spec["labels"] == {"n": str(number)}
        kept = await both.admin.get(VCJOBS, job.name, "jobs")
        assert "deletionTimestamp" not in kept["metadata"]


async def test_an_unadoptable_job_blocks_all_other_actions(
    both: TwoAccounts, settled: tuple[Parts, InformerCache], instance: str
) -> None:
    parts, informer = settled
    await make_vcjob(both.admin, "odd", instance, **{"fumarole.dev/spec": spec_of("other")})
    await until_seen(informer, "odd")
    settling = asyncio.create_task(parts.adoption.settle())

    async def is_reported() -> bool:
        return any("j-odd cannot be adopted" in problem for problem in parts.adoption.problems)

    await eventually(is_reported)
    assert not settling.done()
    settling.cancel()
    kept = await both.admin.get(VCJOBS, "j-odd", "jobs")
    assert "deletionTimestamp" not in kept["metadata"]


async def test_an_unknown_volcano_job_is_adopted_and_one_with_tombstone_removed(
    both: TwoAccounts, settled: tuple[Parts, InformerCache], instance: str
) -> None:
    parts, informer = settled
    await parts.adoption.settle()
    planted = await make_vcjob(
        both.admin, "plant", instance, **{"fumarole.dev/spec": spec_of("plant")}
    )
    over = await make_vcjob(both.admin, "over", instance)
    async with parts.store.write() as transaction:
        record = make_record(id="over", uid=over.uid, state="SUCCESS", finished_at=1.0)
        await insert_job(transaction, record, labels={})
        await forget_jobs(transaction, finished_before=2.0, limit=9)
    for job_id in ("plant", "over"):
        await until_seen(informer, job_id)
        await parts.reconciler.reconcile(job_id)
    assert (await parts.record("plant")).uid == planted.uid
    with pytest.raises(NotFound):
        await both.admin.get(VCJOBS, "j-over", "jobs")


async def test_a_volcano_job_without_annotations_is_left_alone(
    both: TwoAccounts, settled: tuple[Parts, InformerCache], instance: str
) -> None:
    parts, informer = settled
    await parts.adoption.settle()
    await make_vcjob(both.admin, "mute", instance)
    await until_seen(informer, "mute")
    await parts.reconciler.reconcile("mute")
    async with parts.store.read() as transaction:
        assert await find_job(transaction, "mute") is None
    kept = await both.admin.get(VCJOBS, "j-mute", "jobs")
    assert "deletionTimestamp" not in kept["metadata"]


async def test_a_foreign_store_adopts_all_jobs_first(
    both: TwoAccounts, settled: tuple[Parts, InformerCache], instance: str
) -> None:
    parts, informer = settled
    identity = StoreIdentity(both.kube, instance=instance, namespace="jobs")
    await identity.write("of the store before", instead_of=None)
    async with parts.store.write() as transaction:
        await insert_job(transaction, make_record(id="known"), labels={})
    await make_vcjob(both.admin, "left", instance, **{"fumarole.dev/spec": spec_of("left")})
    await until_seen(informer, "left")
    await parts.adoption.settle()
    assert (await parts.record("left")).reason == "adopted"
    assert await identity.read() != "of the store before"
    name = f"fumarole-{instance}.store"
    found = await both.admin.get(CONFIG_MAPS, name, "jobs")
    assert found["metadata"]["labels"] == {INSTANCE_LABEL: instance}
