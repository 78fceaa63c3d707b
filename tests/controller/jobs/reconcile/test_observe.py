from __future__ import annotations

from dataclasses import replace

import pytest

from controller.jobs.cluster.informer import InformerCache
from controller.jobs.reconcile.lifecycle import ObservedState
from controller.jobs.reconcile.observe import Observer
from controller.jobs.spec.accepted import public_spec
from controller.store.database import Store
from controller.store.jobs.job_rows import insert_job
from controller.store.jobs.progress import CompanionRecord, record_companions
from tests.controller.samples import UID, make_job, make_pipeline, make_record, make_service

JOB = make_job(replicas=2, interactive={"lab": {"kind": "web", "port": 8888}})
SERVICES = [
    CompanionRecord(
        kind="Service",
        namespace="jobs",
        name=f"rank-j1-{rank}",
        uid=f"service-{rank}",
        owner_uid=UID,
        address=f"10.96.0.{rank + 1}",
    )
    for rank in (0, 1)
]


async def seen(
    store: Store, *made: CompanionRecord, on: bool = True, shown: tuple[int, ...] = (0, 1)
) -> ObservedState:
    """Return what is seen of a job that runs, with *made*, of which these ranks' are shown."""
    informer = InformerCache(None, instance="test", changed=lambda _: None, services=on)  # type: ignore[arg-type]  # no cluster here
    for rank in shown:
        informer.services.put(make_service(rank))
    record = make_record(uid=UID, state="RUNNING", spec=public_spec(JOB))
    async with store.write() as transaction:
        await insert_job(transaction, record, labels={})
        await record_companions(transaction, "j1", made)
    found = await Observer(store, informer, make_pipeline(), rank_services=on).observe("j1")
    assert found is not None
    return found


async def test_a_job_whose_ranks_have_services_is_as_it_should_be(store: Store) -> None:
    one = await seen(store, *SERVICES)
    assert (one.exposed, one.lost) == (True, False)


@pytest.mark.parametrize("made", [0, 1])
async def test_ranks_that_lack_services_get_them(store: Store, made: int) -> None:
    assert not (await seen(store, *SERVICES[:made])).exposed


async def test_services_go_where_the_setting_is_taken_back(store: Store) -> None:
    assert not (await seen(store, *SERVICES, on=False)).exposed


async def test_without_the_setting_nothing_is_missing(store: Store) -> None:
    one = await seen(store, on=False, shown=())
    assert (one.exposed, one.lost) == (True, False)


@pytest.mark.parametrize("uid", ["service-1", "another"])
async def test_a_service_that_is_not_shown_is_lost(store: Store, uid: str) -> None:
    changed = replace(SERVICES[1], uid=uid)
    shown = (0,) if uid == "service-1" else (0, 1)
    one = await seen(store, SERVICES[0], changed, shown=shown)
    assert (one.exposed, one.lost) == (True, True)
