from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

import pytest

from controller.jobs.history.job_record import JobRecords
from controller.jobs.pipeline.builder import JobBuilder
from controller.jobs.pipeline.pipeline import Pipeline
from controller.jobs.pipeline.plugin import JobPlugin
from controller.jobs.reconcile import plugin_calls as module
from controller.jobs.reconcile.plugin_calls import PLAN_SECONDS, PlanCache, PluginCalls
from controller.jobs.reconcile.submitting import SubmitActions
from controller.jobs.reconcile.workqueue import RequeueAfter
from controller.jobs.spec.accepted import Vault
from controller.jobs.spec.model import Job
from controller.plugins import PLUGINS
from controller.store.database import Store
from controller.store.instance import raise_term
from controller.store.jobs.job_rows import insert_job
from tests.clock import Clock
from tests.controller.samples import (
    make_context,
    make_job,
    make_pipeline,
    make_plugins,
    make_record,
)


@pytest.fixture
def plans(clock: Clock) -> PlanCache:
    return PlanCache(clock=clock)


async def test_a_plan_is_cached_by_its_inputs_for_a_while(plans: PlanCache, clock: Clock) -> None:
    plan = await make_pipeline().plan(make_job())
    plans.keep("j1", plan, 1, "digest")
    assert plans.find("j1", 1, "digest") is plan
    assert plans.find("j1", 2, "digest") is None
    assert plans.find("j1", 1, "other") is None
    clock.now += PLAN_SECONDS
    assert plans.find("j1", 1, "digest") is None


async def test_an_expired_plan_is_recomputed_and_replaced(plans: PlanCache) -> None:
    plan = await make_pipeline().plan(make_job())
    plans.keep("j1", plan, 1)
    plans.keep("j1", replace(plan, waiting=("a licence",)), 1)
    assert plans.find("j1", 1) is None


async def test_the_plan_cache_is_bounded_in_size_and_age(
    plans: PlanCache, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MOST_PLANS", 2)
    plan = await make_pipeline().plan(make_job())
    for number in range(5):
        plans.keep(f"j{number}", plan)
    assert list(plans._kept) == ["j3", "j4"]
    clock.now += PLAN_SECONDS
    plans.keep("j5", plan)
    assert list(plans._kept) == ["j5"]


class Counting(JobPlugin):
    """A plugin that counts the calls of its planning hook."""

    name: ClassVar[str] = "counting"
    asked: ClassVar[int] = 0

    async def on_create(self, job: Job, builder: JobBuilder) -> None:
        type(self).asked += 1


class NeverReady:
    """A cluster whose namespace never becomes ready."""

    async def why_not_ready(self, *_: Any) -> str:
        return "the namespace is being prepared"

    def retry_in(self, *_: Any) -> float:
        return 0.5


async def test_plugins_plan_a_repeatedly_retried_attempt_once(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Counting, "asked", 0)
    plugins = make_plugins([*PLUGINS, Counting], make_context())
    record = make_record()
    async with store.write() as transaction:
        await insert_job(transaction, record, labels={})
        term = await raise_term(transaction)
    nothing: Any = NeverReady()
    actions = SubmitActions(
        JobRecords(store.fenced(term), vault=Vault([b"k" * 32]), clock=clock),
        pipeline=Pipeline(plugins, instance="test", namespace="jobs"),
        cluster=nothing,
        prerequisites=nothing,
        priorities=nothing,
        calls=PluginCalls(),
    )
    for _ in range(3):
        with pytest.raises(RequeueAfter):
            await actions.submit(record)
    assert Counting.asked == 1
    with pytest.raises(RequeueAfter):
        await actions.submit(replace(record, attempt=2))
    assert Counting.asked == 2
