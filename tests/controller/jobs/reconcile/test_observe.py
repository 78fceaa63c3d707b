from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from controller.jobs.cluster.informer import InformerCache
from controller.jobs.history.job_record import JobRecords
from controller.jobs.reconcile.lifecycle.observed_state import ObservedState
from controller.jobs.reconcile.observe import Observer
from controller.jobs.spec.accepted import Vault, public_spec
from controller.store.database import Store
from controller.store.instance import raise_term
from controller.store.jobs.job_rows import insert_job, update_job
from controller.store.jobs.progress import CompanionRecord, record_companions
from controller.volcano.observed import OVERDUE_SECONDS, Ended
from tests.controller.samples import (
    UID,
    make_job,
    make_observed,
    make_pipeline,
    make_pod,
    make_record,
    make_service,
)

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
    """Return a running job's observed state: companions *made*, Services of the ranks *shown*."""
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


async def test_a_job_with_all_rank_services_needs_no_step(store: Store) -> None:
    one = await seen(store, *SERVICES)
    assert (one.companions_applied, one.service_missing) == (True, False)


@pytest.mark.parametrize("made", [0, 1])
async def test_missing_rank_services_are_created(store: Store, made: int) -> None:
    assert not (await seen(store, *SERVICES[:made])).companions_applied


async def test_rank_services_are_removed_when_the_setting_is_disabled(store: Store) -> None:
    assert not (await seen(store, *SERVICES, on=False)).companions_applied


async def test_without_the_setting_no_rank_service_is_missing(store: Store) -> None:
    one = await seen(store, on=False, shown=())
    assert (one.companions_applied, one.service_missing) == (True, False)


@pytest.mark.parametrize("uid", ["service-1", "another"])
async def test_a_service_missing_from_the_cache_counts_as_lost(store: Store, uid: str) -> None:
    changed = replace(SERVICES[1], uid=uid)
    shown = (0,) if uid == "service-1" else (0, 1)
    one = await seen(store, SERVICES[0], changed, shown=shown)
    assert (one.companions_applied, one.service_missing) == (True, True)


async def test_no_service_counts_as_lost_while_services_cannot_be_watched(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise every new job would apply all its companions again every two seconds.
    monkeypatch.setattr(InformerCache, "watches_services", False)
    one = await seen(store, *SERVICES, shown=())
    assert (one.companions_applied, one.service_missing) == (True, False)


async def test_a_pod_removed_before_its_volcano_job_was_recorded_is_observed_afterwards(
    store: Store,
) -> None:
    informer = InformerCache(None, instance="test", changed=lambda _: None)  # type: ignore[arg-type]  # no cluster here
    for pod in (make_pod(0), make_pod(1, owner_uid="before")):
        informer.pods.put(pod)
        informer.pods.drop(pod)
    async with store.write() as transaction:
        await insert_job(transaction, make_record(), labels={})
        term = await raise_term(transaction)
    observer = Observer(store, informer, make_pipeline())
    one = await observer.observe("j1")
    assert one is not None
    assert one.departed == ()
    records = JobRecords(store.fenced(term), vault=Vault([b"k" * 32]), clock=lambda: 2.0)
    async with records.store.write() as transaction:
        assert await records.update(transaction, one.record, uid=UID)
    after = await observer.observe("j1")
    assert after is not None
    assert [pod.uid for pod in after.departed] == ["pod-0"]
    assert informer.departed() == list(after.departed), "what is nobody's is forgotten"


async def test_an_overdue_pod_is_rechecked_in_time_and_then_lost(store: Store) -> None:
    informer = InformerCache(None, instance="test", changed=lambda _: None)  # type: ignore[arg-type]  # no cluster here
    informer.pods.put(make_pod(0, deleting=True, had_time=True, due_to_end_at=100.0))
    informer.pods.put(make_pod(1, deleting=True, had_time=True, due_to_end_at=110.0))
    async with store.write() as transaction:
        await insert_job(transaction, make_record(uid=UID, state="CANCELING"), labels={})
    moments = iter([100.0, 100.0 + OVERDUE_SECONDS])
    observer = Observer(store, informer, make_pipeline(), clock=lambda: next(moments))
    before, then = await observer.observe("j1"), await observer.observe("j1")
    assert before is not None
    assert then is not None
    assert [pod.lost for pod in before.pods] == [False, False]
    assert before.requeue_after == OVERDUE_SECONDS
    assert [pod.lost for pod in then.pods] == [True, False]
    assert then.requeue_after == 10.0


async def test_an_end_counts_from_its_first_observation_in_the_phase(store: Store) -> None:
    informer = InformerCache(None, instance="test", changed=lambda _: None)  # type: ignore[arg-type]  # no cluster here
    async with store.write() as transaction:
        await insert_job(transaction, make_record(uid=UID, state="RUNNING"), labels={})
    now = 1000.0
    observer = Observer(store, informer, make_pipeline(), clock=lambda: now)

    async def ended_since() -> Mapping[str, float]:
        one = await observer.observe("j1")
        assert one is not None
        return one.ended_since

    informer.pods.put(make_pod())
    assert await ended_since() == {}
    # The node's clock is far behind, or the node was cut off.
    ended = make_pod(ended=Ended(exit_code=1, signal=0, reason="Error", finished_at=5.0))
    informer.pods.put(ended)
    assert await ended_since() == {"pod-0": 1000.0}
    now = 1010.0
    assert await ended_since() == {"pod-0": 1000.0}
    # A sidecar ran until now: Volcano has not known the end before.
    informer.pods.put(replace(ended, phase="Failed"))
    assert await ended_since() == {"pod-0": 1010.0}
    informer.pods.drop(ended)
    assert await ended_since() == {}


async def test_a_deleted_pod_counts_as_lost_by_the_servers_clock(store: Store) -> None:
    # With this machine's clock ten minutes ahead, every deleted pod would be lost at once.
    informer = InformerCache(None, instance="test", changed=lambda _: None)  # type: ignore[arg-type]  # no cluster here
    informer.pods.put(make_pod(0, deleting=True, had_time=True, due_to_end_at=1000.0))
    async with store.write() as transaction:
        await insert_job(transaction, make_record(uid=UID, state="CANCELING"), labels={})
    now = 1600.0
    observer = Observer(
        store, informer, make_pipeline(), clock=lambda: now, clock_offset=lambda: -600.0
    )
    one = await observer.observe("j1")
    assert one is not None
    assert [pod.lost for pod in one.pods] == [False]
    assert one.requeue_after == OVERDUE_SECONDS
    now += OVERDUE_SECONDS
    one = await observer.observe("j1")
    assert one is not None
    assert [pod.lost for pod in one.pods] == [True]


async def test_a_deleted_volcano_job_that_stays_is_rechecked_in_time_and_then_held(
    store: Store,
) -> None:
    informer = InformerCache(None, instance="test", changed=lambda _: None)  # type: ignore[arg-type]  # no cluster here
    informer.jobs.put(make_observed(deleting=True, asked_to_end_at=1000.0))
    async with store.write() as transaction:
        await insert_job(transaction, make_record(uid=UID, state="CANCELING"), labels={})
    now = 1030.0
    observer = Observer(store, informer, make_pipeline(), clock=lambda: now)
    one = await observer.observe("j1")
    assert one is not None
    assert one.job is not None
    assert (one.job.held, one.requeue_after) == (False, OVERDUE_SECONDS - 30.0)
    now = 1000.0 + OVERDUE_SECONDS
    one = await observer.observe("j1")
    assert one is not None
    assert one.job is not None
    assert (one.job.held, one.requeue_after) == (True, None)


async def test_a_phase_counts_from_its_first_observation(store: Store) -> None:
    informer = InformerCache(None, instance="test", changed=lambda _: None)  # type: ignore[arg-type]  # no cluster here
    async with store.write() as transaction:
        await insert_job(transaction, make_record(uid=UID, state="RUNNING"), labels={})
    now = 1000.0
    observer = Observer(store, informer, make_pipeline(), clock=lambda: now)

    async def seen_at() -> float:
        one = await observer.observe("j1")
        assert one is not None
        return one.phase_seen_at

    assert await seen_at() == 0.0
    informer.jobs.put(make_observed("Running", phase_since=3.0))
    assert await seen_at() == 1000.0
    now = 1010.0
    informer.jobs.put(failed := make_observed("Failed", phase_since=900.0))
    assert await seen_at() == 1010.0
    now = 1020.0
    informer.jobs.drop(failed)
    assert await seen_at() == 1010.0
    now = 1000.0  # the clock was set back
    assert await seen_at() == 1000.0


async def test_a_deleted_volcano_job_that_goes_on_counts_from_its_deletion_in_any_phase(
    store: Store,
) -> None:
    informer = InformerCache(None, instance="test", changed=lambda _: None)  # type: ignore[arg-type]  # no cluster here
    record = make_record(uid=UID, state="CANCELING", outcome="SUCCESS")
    async with store.write() as transaction:
        await insert_job(transaction, record, labels={})
    now, times = 1000.0, []
    observer = Observer(store, informer, make_pipeline(), clock=lambda: now)
    for phase, removed in (("Running", False), ("Running", True), ("Restarting", True)):
        if removed:
            async with store.write() as transaction:
                await update_job(transaction, record, now=now, removed_uid=UID)
        informer.jobs.put(make_observed(phase))
        one = await observer.observe("j1")
        assert one is not None
        times.append(one.phase_seen_at)
        now += 10.0
    assert times == [1000.0, 1010.0, 1010.0]
