"""Tests that repeated tries of a submission write only what is new."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from contextlib import suppress
from dataclasses import replace
from typing import Any, Self

import pytest

from controller.jobs.cluster import companion_objects as module
from controller.jobs.cluster.companion_objects import AppliedCompanions
from controller.jobs.history.job_record import JobRecords
from controller.jobs.pipeline.builder import Companion
from controller.jobs.reconcile.plugin_calls import PluginCalls, StillRunning
from controller.jobs.reconcile.submitting import SubmitActions
from controller.jobs.reconcile.workqueue import RequeueAfter
from controller.jobs.spec.accepted import Vault
from controller.kube.errors import KubeError, error_from
from controller.store.database import Store
from controller.store.instance import raise_term
from controller.store.jobs.job_rows import JobRecord, find_job, insert_job
from controller.store.jobs.progress import CompanionRecord, companions_of
from controller.volcano.observed import ObservedJob
from controller.volcano.parsing import read_job
from tests.clock import Clock
from tests.controller.jobs.reconcile.test_submitting import Prerequisites, pipeline_of
from tests.controller.samples import make_record

SECRET = Companion(kind="Secret", name="s", manifest={"data": {"a": "eA=="}}, when="before")
MADE = CompanionRecord(kind="Secret", namespace="jobs", name="s", uid="u", owner_uid=None)


class Cluster:
    """A fake cluster that refuses as scripted, by the name of the object."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.refusals: dict[str, list[KubeError]] = {}
        self.uid = "v1"

    def _take(self, what: str) -> None:
        self.calls.append(what)
        if waiting := self.refusals.get(what):
            raise waiting.pop(0)

    @property
    def companions(self) -> Self:
        return self

    async def ensure(
        self, _job_id: str, namespace: str, one: Companion, *, owner: ObservedJob | None
    ) -> CompanionRecord:
        self._take(f"apply {one.name}")
        uid = None if owner is None or one.lasting else owner.uid
        return CompanionRecord(
            kind=one.kind, namespace=namespace, name=one.name, uid="u", owner_uid=uid,
            basis=one.basis, lasting=one.lasting,
        )  # fmt: skip

    async def ensure_volcano_job(self, plan: Any) -> ObservedJob:
        self._take("create VolcanoJob")
        manifest = plan.volcano_job.manifest()
        return read_job({**manifest, "metadata": {**manifest["metadata"], "uid": self.uid}})

    async def set_owner_reference(
        self, _job_id: str, one: CompanionRecord, owner: ObservedJob
    ) -> CompanionRecord:
        self._take(f"own {one.name}")
        return replace(one, owner_uid=owner.uid)


class Priorities:
    """Priority classes without values."""

    async def value_of(self, _name: str | None) -> None:
        return None


async def tried(
    store: Store, clock: Clock, cluster: Any, *, tries: int, prerequisites: Any = None
) -> None:
    """Submit a job with a Secret so many times with the same actions."""
    spec = {
        **make_record().spec,
        "parameters": {"token": {"type": "secret"}},
        "interactive": {"site": {"kind": "web", "port": 8000}},
    }
    vault = Vault([os.urandom(32)])
    sealed = vault.seal("j1", {"token": "x"}, random=os.urandom)
    record = replace(make_record(spec=spec), sealed=sealed)
    async with store.write() as transaction:
        await insert_job(transaction, record, labels={})
        term = await raise_term(transaction)
    actions = SubmitActions(
        JobRecords(store.fenced(term), vault=vault, clock=clock),
        pipeline=pipeline_of(),
        cluster=cluster,
        prerequisites=prerequisites or Prerequisites(),  # type: ignore[arg-type]  # a fake
        priorities=Priorities(),  # type: ignore[arg-type]  # a fake
        calls=PluginCalls(),
    )
    for _ in range(tries):
        async with store.read() as transaction:
            found = await find_job(transaction, record.id)
        assert found is not None
        with suppress(KubeError, RequeueAfter):
            await submit_once(actions, found)


async def submit_once(actions: SubmitActions, record: JobRecord) -> None:
    while True:
        with suppress(StillRunning):
            await actions.submit(record)
            return
        await asyncio.sleep(0.05)


FULL = error_from(403, {"reason": "Forbidden", "message": "x is forbidden: exceeded quota: q"})
BUSY = error_from(429, {"reason": "TooManyRequests", "message": "later"})
NO_NAMESPACE = error_from(404, {"reason": "NotFound", "message": 'namespaces "jobs" not found'})
BEFORE = ["apply j-j1.parameters", "apply j-j1.ranks", "apply j-j1.network"]
OWNED = [one.replace("apply", "own") for one in BEFORE]


def after(cluster: Cluster, count: int) -> list[str]:
    """Return the calls after the first *count*."""
    return cluster.calls[count:]


async def test_tries_that_a_full_quota_refuses_write_the_companions_once(
    store: Store, clock: Clock
) -> None:
    cluster = Cluster()
    cluster.refusals["create VolcanoJob"] = [FULL, FULL, FULL]
    await tried(store, clock, cluster, tries=4)
    assert sorted(cluster.calls[:3]) == sorted(BEFORE)
    assert after(cluster, 3)[:4] == ["create VolcanoJob"] * 4
    assert sorted(after(cluster, 7)) == sorted([*OWNED, "apply j-j1.gateway"])


async def test_a_volcano_job_is_recorded_although_a_companion_after_it_is_refused(
    store: Store, clock: Clock
) -> None:
    cluster = Cluster()
    cluster.refusals["apply j-j1.gateway"] = [BUSY]
    await tried(store, clock, cluster, tries=1)
    async with store.read() as transaction:
        record = await find_job(transaction, "j1")
        companions = await companions_of(transaction, "j1")
    assert record is not None
    assert (record.uid, record.reason) == ("v1", "queued")
    # The next step applies the one that is missing.
    settled = {one.name: one.is_settled("v1", one.basis or "") for one in companions}
    assert settled.pop("j-j1.gateway") is False
    assert settled == dict.fromkeys([one.removeprefix("apply ") for one in BEFORE], True)


async def test_companions_are_applied_again_after_their_namespace_was_missing(
    store: Store, clock: Clock
) -> None:
    cluster = Cluster()
    cluster.refusals["create VolcanoJob"] = [NO_NAMESPACE]
    await tried(store, clock, cluster, tries=2)
    counted = Counter(cluster.calls)
    assert [counted[one] for one in BEFORE] == [2, 2, 2]


def test_a_companion_that_is_planned_differently_is_new(clock: Clock) -> None:
    applied, record = AppliedCompanions(clock=clock), make_record()
    applied.keep(record, SECRET, MADE)
    assert applied.find(record, SECRET) == MADE
    assert applied.find(record, replace(SECRET, manifest={"data": {"a": "eQ=="}})) is None
    assert applied.find(record, replace(SECRET, basis="b")) is None
    assert applied.find(record, replace(SECRET, name="t")) is None


def test_another_attempt_or_job_applies_its_own(clock: Clock) -> None:
    applied, record = AppliedCompanions(clock=clock), make_record()
    applied.keep(record, SECRET, MADE)
    assert applied.find(replace(record, attempt=record.attempt + 1), SECRET) is None
    assert applied.find(replace(record, created_at=record.created_at + 1), SECRET) is None
    assert applied.find(replace(record, id="j2"), SECRET) is None
    applied.forget(record.id)
    assert applied.find(record, SECRET) is None


def test_what_others_may_have_deleted_is_applied_again_in_time(clock: Clock) -> None:
    applied, record = AppliedCompanions(clock=clock), make_record()
    applied.keep(record, SECRET, MADE)
    clock.now += module.APPLIED_SECONDS - 1
    assert applied.find(record, SECRET) == MADE
    clock.now += 1
    assert applied.find(record, SECRET) is None


def test_the_number_of_remembered_jobs_is_bounded(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_JOBS", 2)
    applied = AppliedCompanions(clock=clock)
    records = [replace(make_record(), id=f"j{number}") for number in range(3)]
    for record in records:
        applied.keep(record, SECRET, MADE)
    assert [applied.find(record, SECRET) for record in records] == [None, MADE, MADE]
    applied.forget_namespace("jobs")
    assert [applied.find(record, SECRET) for record in records] == [None, None, None]
