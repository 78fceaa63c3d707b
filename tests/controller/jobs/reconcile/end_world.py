"""Provides a stored job at its end, and a fake cluster that records commands."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any, Self, cast

import pytest

from controller.jobs.cluster.job_objects import JobObjects
from controller.jobs.history.job_record import JobRecords
from controller.jobs.reconcile.actions import Actions
from controller.jobs.reconcile.ending import EndActions
from controller.jobs.reconcile.plugin_calls import PluginCalls
from controller.jobs.reconcile.workqueue import RequeueAfter
from controller.jobs.spec.accepted import Vault
from controller.kube.errors import Forbidden, Unavailable
from controller.store.database import Store
from controller.store.instance import raise_term
from controller.store.jobs.job_rows import (
    JobRecord,
    find_job,
    insert_job,
    request_end,
)
from controller.store.jobs.progress import (
    Attempt,
    CompanionRecord,
    PodRecord,
    Timer,
    attempts_of,
    due_jobs,
    record_attempt,
    replace_timers,
    set_due,
    upsert_pod_records,
)
from controller.volcano.observed import ObservedJob, ObservedPod
from tests.clock import Clock
from tests.controller.samples import UID, make_record

RUNS = make_record(uid=UID, state="RUNNING", reason=None, message=None, started_at=2.0)
WHY = {"cause": "a test"}
ENDS = make_record(
    uid=UID, state="RUNNING", reason=None, message=None, started_at=2.0, outcome="SUCCESS",
    end_state="SUCCESS", end_reason="completed", end_message="it is done", end_details=WHY,
)  # fmt: skip


class Cluster:
    """Shows a VolcanoJob and pods that the cache lacks, and records commands."""

    def __init__(self) -> None:
        self.job: ObservedJob | None = None
        self.pods: list[ObservedPod] = []
        self.forbids = False
        self.is_pending = False
        self.given_away = False
        self.told: list[tuple[object, ...]] = []
        self.events: list[Mapping[str, Any]] = []
        self.events_fail = False
        self.all_fails = False

    async def find_events(self, job: ObservedJob) -> Sequence[Mapping[str, Any]]:
        assert job.uid == UID
        if self.events_fail or self.all_fails:
            raise Unavailable("etcdserver: leader changed", status=500)
        return self.events

    async def find_volcano_job(self, namespace: str, name: str, job_id: str) -> ObservedJob | None:
        assert (namespace, name, job_id) == ("jobs", "j-j1", "j1")
        if self.all_fails:
            raise Unavailable("no response")
        return self.job

    async def find_pods(
        self, namespace: str, job_id: str, *, known: Collection[str] = ()
    ) -> list[ObservedPod]:
        assert (namespace, job_id) == ("jobs", "j1")
        return self.pods

    async def command(self, job_id: str, job: ObservedJob, action: str) -> bool:
        if self.forbids:
            raise Forbidden("no right")
        self.told.append((action, job_id, job.uid))
        return not self.is_pending

    async def withdraw_command(self, job_id: str, namespace: str) -> None:
        self.told.append(("withdraw", job_id, namespace))

    async def remove_volcano_job(self, namespace: str, name: str, uid: str, *, shown: bool) -> bool:
        self.told.append(("remove", namespace, name, uid, shown))
        return not self.given_away

    async def remove_volcanos(self, namespace: str, name: str, uid: str) -> None:
        self.told.append(("volcanos", namespace, name, uid))

    async def remove_pods(self, namespace: str, pods: Sequence[ObservedPod]) -> None:
        if self.forbids:
            raise Forbidden("no right")
        self.told.append(("pods", namespace, *(pod.name for pod in pods)))

    @property
    def companions(self) -> Self:
        return self

    async def remove(self, job_id: str, companion: CompanionRecord) -> None:
        self.told.append(("companion", job_id, companion.name))


@dataclass
class World:
    """A job in a store, and the actions on it."""

    store: Store
    clock: Clock
    cluster: Cluster
    ends: EndActions
    actions: Actions

    async def record(self) -> JobRecord:
        async with self.store.read() as transaction:
            record = await find_job(transaction, "j1")
        assert record is not None
        return record

    async def attempts(self) -> list[Attempt]:
        async with self.store.read() as transaction:
            return await attempts_of(transaction, "j1")

    async def is_due(self) -> bool:
        async with self.store.read() as transaction:
            return bool(await due_jobs(transaction, now=self.clock.now, limit=9))

    async def somebody_ends_it(self) -> None:
        async with self.store.write() as transaction:
            record = await find_job(transaction, "j1")
            assert record is not None
            await request_end(transaction, record, now=self.clock.now)


@asynccontextmanager
async def world(
    store: Store, clock: Clock, record: JobRecord, *runs: PodRecord, uid: str | None = UID
) -> AsyncIterator[World]:
    """Yield a job whose attempt is VolcanoJob *uid*, with a pending plugin and timer."""
    async with store.write() as transaction:
        await insert_job(transaction, record, labels={})
        term = await raise_term(transaction)
        if uid is not None:
            await record_attempt(transaction, "j1", 1, uid=uid, now=1.0)
        await set_due(transaction, "j1", "usage", at=clock.now + 900)
        timer = Timer(job_id="j1", trigger="t", attempt=1, due_at=9e9, action="AbortJob",
                      why="w", retries=0)  # fmt: skip
        await replace_timers(transaction, "j1", timers=[timer])
        if runs:
            await upsert_pod_records(transaction, runs)
    cluster = Cluster()
    records = JobRecords(store.fenced(term), vault=Vault([b"x" * 32]), clock=clock)
    nothing: Any = None
    actions = Actions(
        records,
        pipeline=nothing,
        cluster=cast(JobObjects, cluster),
        prerequisites=nothing,
        priorities=nothing,
        recorder=nothing,
        calls=PluginCalls(),
    )
    yield World(store, clock, cluster, EndActions(records, cast(JobObjects, cluster)), actions)


def run(uid: str = "pod-0", **fields: Any) -> PodRecord:
    values: dict[str, Any] = {
        "job_id": "j1", "pod_uid": uid, "attempt": 1, "rank": 0, "task": "job", "index": 0,
        "pod": "j-j1-job-0", "node": "n1", "phase": "Failed", "reason": "Error", "message": "",
        "exit_code": 1, "signal": 0, "seen_at": 5.0, "started_at": 4.0, "ended_at": 7.0,
    }  # fmt: skip
    return PodRecord(**values | fields)


async def seconds_of(work: Any) -> float:
    """Return the delay of the ``RequeueAfter`` that *work* raises."""
    with pytest.raises(RequeueAfter) as again:
        await work
    return again.value.seconds
