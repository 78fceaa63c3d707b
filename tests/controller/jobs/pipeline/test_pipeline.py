from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import pytest

from controller.jobs.pipeline import pipeline as module
from controller.jobs.pipeline.border import HookRecorder, PluginFailed
from controller.jobs.pipeline.builder import Companion, JobBuilder
from controller.jobs.pipeline.pipeline import Pipeline
from controller.jobs.pipeline.plugin import JobFromServer, JobPlugin
from controller.jobs.spec.model import CARRIED_TYPES, Job
from controller.jobs.spec.problems import JobRejected, Problem
from controller.plugins import PLUGINS
from controller.plugins.accounting import AccountingPlugin
from controller.plugins.task import TaskPlugin
from controller.store.database import Store
from controller.store.errors import StoreUnavailable
from controller.store.instance import raise_term, read_leadership
from controller.store.jobs.job_rows import insert_job
from controller.store.jobs.progress import HookState, due_jobs, hooks_of
from tests.clock import Clock
from tests.controller.samples import make_context, make_job, make_pipeline, make_record

RAN: list[tuple[str, str]] = []


@pytest.fixture(autouse=True)
def _fresh() -> None:
    RAN.clear()


class Recording(JobPlugin):
    """A plugin that records its hook calls."""

    name: ClassVar[str] = "recording"

    async def on_job_start(self, job_id: str, job_from_server: JobFromServer) -> float | None:
        RAN.append((self.name, "start"))
        return 50.0

    async def on_job_complete(self, job_id: str, job_from_server: JobFromServer) -> None:
        RAN.append((self.name, "complete"))

    async def on_job_monitoring(
        self, job_batch: Sequence[JobFromServer]
    ) -> Mapping[str, float | None]:
        RAN.append((self.name, "monitoring"))
        return {one.job.id: None for one in job_batch}

    async def on_cleanup(self, job_id: str) -> None:
        RAN.append((self.name, "cleanup"))


class Second(Recording):
    name: ClassVar[str] = "second"


class RaisingPlugin(JobPlugin):
    """A plugin with a bug in every hook."""

    name: ClassVar[str] = "breaks"

    async def on_create(self, job: Job, builder: JobBuilder) -> None:
        raise ZeroDivisionError

    async def on_job_start(self, job_id: str, job_from_server: JobFromServer) -> float | None:
        raise ZeroDivisionError


class Refuses(JobPlugin):
    """A plugin that rejects every job."""

    name: ClassVar[str] = "refuses"

    async def on_create(self, job: Job, builder: JobBuilder) -> None:
        builder.refuse("replicas", "too many")
        raise JobRejected([Problem("image", "too old")])


class RefusesToo(JobPlugin):
    """A second plugin that rejects every job."""

    name: ClassVar[str] = "refuses_too"

    async def on_create(self, job: Job, builder: JobBuilder) -> None:
        builder.refuse("labels", "too few")


def pipeline_of(*plugins: type[JobPlugin]) -> Pipeline:
    context = make_context()
    made = [plugin(context) for plugin in plugins]
    return Pipeline(made, instance="test", namespace="jobs")


def view(job: Job | None = None) -> JobFromServer:
    return JobFromServer(
        job=job or make_job(), namespace="jobs", uid="u", attempt=1, phase="Running",
        started_at=1.0, pods=(),
    )  # fmt: skip


@pytest.fixture
async def recorder(store: Store, clock: Clock) -> HookRecorder:
    async with store.write() as transaction:
        await insert_job(transaction, make_record(), labels={})
        term = await raise_term(transaction)
    return HookRecorder(store.fenced(term), clock=clock)


async def done(store: Store) -> dict[str, frozenset[str]]:
    return {hook: state.done for hook, state in (await hooks(store)).items() if state.done}


async def hooks(store: Store) -> dict[str, HookState]:
    async with store.read() as transaction:
        return await hooks_of(transaction, "j1", 1)


class RefusesAsWell(JobPlugin):
    """A third plugin that rejects every job."""

    name: ClassVar[str] = "refuses_as_well"

    async def on_create(self, job: Job, builder: JobBuilder) -> None:
        raise JobRejected([Problem("queue", "too long")])


async def test_problems_of_three_plugins_are_returned_together() -> None:
    pipeline = pipeline_of(Refuses, RefusesAsWell, RefusesToo)
    with pytest.raises(JobRejected) as caught:
        await pipeline.plan(make_job())
    assert {one.path for one in caught.value.problems} == {"replicas", "image", "labels", "queue"}


async def test_a_plugin_that_raises_is_named() -> None:
    with pytest.raises(PluginFailed, match="breaks") as caught:
        await pipeline_of(RaisingPlugin).plan(make_job())
    assert isinstance(caught.value.__cause__, ZeroDivisionError)


async def test_a_job_that_breaks_a_volcano_rule_is_not_submitted() -> None:
    with pytest.raises(JobRejected) as caught:
        await pipeline_of(Recording).plan(make_job())
    assert Problem("tasks", "there is none") in caught.value.problems


async def test_a_field_that_no_plugin_handles_is_unknown() -> None:
    pipeline = pipeline_of(*(p for p in PLUGINS if p.name not in ("proxy", "parameter")))
    job = make_job(interactive={"lab": {"kind": "web", "port": 8888}}, parameters={})
    with pytest.raises(JobRejected) as caught:
        pipeline.refuse_unclaimed(job)
    assert [(one.path, one.message) for one in caught.value.problems] == [
        ("interactive", "unknown field"),
        ("parameters", "unknown field"),
    ]
    make_pipeline().refuse_unclaimed(job)


async def test_built_in_plugins_claim_only_existing_fields() -> None:
    carried = {f"parameters.{kind}" for kind in CARRIED_TYPES}
    assert make_pipeline().offered_fields <= set(Job.model_fields) | carried


async def test_a_parameter_that_no_plugin_handles_is_unknown() -> None:
    pipeline = pipeline_of(*(p for p in PLUGINS if p.name in ("task", "parameter")))
    job = make_job(parameters={"lab": {"type": "peer", "job": "j2", "hostname": "lab"}})
    with pytest.raises(JobRejected) as caught:
        pipeline.refuse_unclaimed(job)
    assert [(one.path, one.message) for one in caught.value.problems] == [
        ("parameters.lab", "unknown field")
    ]


async def test_a_volcano_job_is_annotated_with_its_spec_without_secrets() -> None:
    job = make_job(parameters={"p": {"type": "secret", "value": "canary"}}, replicas=2)
    plan = await make_pipeline().plan(job, attempt=3, created_at=1.5)
    assert plan.volcano_job.labels == {
        "fumarole.dev/instance": "test",
        "fumarole.dev/job": "j1",
    }
    annotations = plan.volcano_job.annotations
    assert json.loads(annotations["fumarole.dev/spec"])["replicas"] == 2
    assert annotations["fumarole.dev/attempt"] == "3"
    assert float(annotations["fumarole.dev/created"]) == 1.5
    assert "canary" not in json.dumps(plan.volcano_job.manifest())


async def test_planning_is_deterministic() -> None:
    job, pipeline = make_job(replicas=2), make_pipeline()
    first, second = [(await pipeline.plan(job)).volcano_job.manifest() for _ in range(2)]
    assert first == second


async def test_hooks_run_in_order_and_each_is_recorded(
    store: Store, recorder: HookRecorder
) -> None:
    await pipeline_of(Recording, Second).run("start", view(), done=frozenset(), recorder=recorder)
    assert RAN == [("recording", "start"), ("second", "start")]
    assert await done(store) == {"start": {"recording", "second"}}


class Counting(HookRecorder):
    """A recorder that keeps the subject of each transaction."""

    def __init__(self, store: Store, term: int) -> None:
        super().__init__(store.fenced(term), clock=lambda: 1.0)
        self.written: list[list[str]] = []

    async def record(self, job_id: str, attempt: int, *, hook: Any, ran: Any) -> None:
        await super().record(job_id, attempt, hook=hook, ran=ran)
        self.written.append([one.plugin for one in ran])


async def term_of(store: Store) -> int:
    async with store.read() as transaction:
        return (await read_leadership(transaction)).term


class Slow(Recording):
    """A plugin with a slow hook."""

    name: ClassVar[str] = "slow"

    async def on_job_start(self, job_id: str, job_from_server: JobFromServer) -> float | None:
        await asyncio.sleep(module.RECORD_SECONDS)
        return await super().on_job_start(job_id, job_from_server)


class Silent(JobPlugin):
    """A plugin without hooks."""

    name: ClassVar[str] = "silent"


async def test_hooks_that_finish_at_once_are_recorded_in_one_transaction(
    store: Store, recorder: HookRecorder
) -> None:
    recorder = Counting(store, await term_of(store))
    pipeline = pipeline_of(Silent, *PLUGINS, Recording)
    await pipeline.run("complete", view(), done=(), recorder=recorder)
    with_it = [one.name for one in PLUGINS if "on_job_complete" in vars(one)]
    assert recorder.written == [[*with_it, "recording"]]
    # Plugins without a hook need no record.
    assert with_it
    assert len(with_it) < len(PLUGINS) / 2
    assert "complete" in pipeline.done_hooks(were_done("complete", *recorder.written[0]))
    await pipeline.run("complete", view(), done=recorder.written[0], recorder=recorder)
    assert len(recorder.written) == 1


async def test_plans_yield_to_other_tasks() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    beside = asyncio.create_task(others())
    pipeline = pipeline_of(TaskPlugin)
    for _ in range(300):
        await pipeline.plan(make_job())
    beside.cancel()
    assert turns > 3


async def test_plugins_without_a_hook_are_not_recorded(
    store: Store, recorder: HookRecorder
) -> None:
    recorder = Counting(store, await term_of(store))
    pipeline = pipeline_of(Silent)
    await pipeline.run("complete", view(), done=(), recorder=recorder)
    assert recorder.written == []
    assert "complete" in pipeline.done_hooks({})


async def test_slow_hooks_and_hooks_before_a_failure_are_recorded_at_once(
    store: Store, recorder: HookRecorder
) -> None:
    recorder = Counting(store, await term_of(store))
    plugins = (Silent, Slow, Recording, RaisingPlugin, Second)
    await pipeline_of(*plugins).run("start", view(), done=(), recorder=recorder)
    assert recorder.written == [["slow"], ["recording"], ["second"]]


def were_done(hook: str, *plugins: str) -> dict[str, HookState]:
    return {hook: HookState(frozenset(plugins))}


async def test_a_recorded_hook_does_not_run_again(store: Store, recorder: HookRecorder) -> None:
    pipeline = pipeline_of(Recording, Second)
    await pipeline.run("complete", view(), done=frozenset({"recording"}), recorder=recorder)
    assert RAN == [("second", "complete")]


async def test_a_failing_hook_does_not_block_others_and_is_retried_up_to_a_limit(
    store: Store, recorder: HookRecorder, clock: Clock
) -> None:
    pipeline = pipeline_of(Recording, RaisingPlugin, Second)
    pauses = []
    while True:
        state = (await hooks(store)).get("start", HookState())
        await pipeline.run("start", view(), done=state.done, failed=state.failed, recorder=recorder)
        state = (await hooks(store))["start"]
        assert state.done == {"recording", "second"}
        failure = state.failed["breaks"]
        if failure.next_at is None:
            break
        assert "start" not in pipeline.done_hooks({"start": state})
        assert pipeline.next_calls({"start": state}) == {"start": failure.next_at}
        pauses.append(failure.next_at - clock())
        # It is not retried before its pause is over.
        await pipeline.run("start", view(), done=state.done, failed=state.failed, recorder=recorder)
        assert (await hooks(store))["start"].failed["breaks"] == failure
        clock.now = failure.next_at
    assert pauses == [1.0, 2.0, 4.0, 8.0]
    assert (failure.tries, failure.error) == (5, "raised ZeroDivisionError")
    assert "start" in pipeline.done_hooks({"start": state})
    assert pipeline.next_calls({"start": state}) == {}
    assert RAN == [("recording", "start"), ("second", "start")]


class UnavailableLedger:
    """A ledger whose store is unavailable."""

    async def write_up(self, job_id: str) -> float | None:
        raise StoreUnavailable("away")


class StoreUnavailablePlugin(JobPlugin):
    """A third-party plugin that raises the same error."""

    name: ClassVar[str] = "away_too"

    async def on_cleanup(self, job_id: str) -> None:
        raise StoreUnavailable("away")


async def test_hooks_of_built_in_plugins_are_retried_through_a_store_outage(
    store: Store, recorder: HookRecorder
) -> None:
    context = make_context(ledger=UnavailableLedger())
    pipeline = Pipeline([AccountingPlugin(context)], instance="test", namespace="jobs")
    with pytest.raises(StoreUnavailable):
        await pipeline.run("cleanup", view(), done=(), recorder=recorder)
    assert await hooks(store) == {}
    await pipeline_of(StoreUnavailablePlugin).run("cleanup", view(), done=(), recorder=recorder)
    assert (await hooks(store))["cleanup"].failed["away_too"].tries == 1


async def test_a_hook_that_finally_succeeds_clears_its_failure(
    store: Store, recorder: HookRecorder, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = pipeline_of(RaisingPlugin)
    await pipeline.run("start", view(), done=(), recorder=recorder)
    state = (await hooks(store))["start"]
    clock.now += 1
    monkeypatch.setattr(RaisingPlugin, "on_job_start", Recording.on_job_start)
    await pipeline.run("start", view(), done=(), failed=state.failed, recorder=recorder)
    assert (await hooks(store))["start"] == HookState(frozenset({"breaks"}), {})


async def test_the_due_time_of_a_plugin_is_stored_with_its_hook(
    store: Store, recorder: HookRecorder
) -> None:
    await pipeline_of(Recording).run("start", view(), done=frozenset(), recorder=recorder)
    async with store.read() as transaction:
        assert await due_jobs(transaction, now=49.0, limit=9) == {}
        assert await due_jobs(transaction, now=50.0, limit=9) == {"recording": ["j1"]}


async def test_hooks_are_complete_once_all_present_plugins_ran() -> None:
    pipeline = pipeline_of(Recording, Second)
    for hook in ("start", "complete", "cleanup"):
        assert hook not in pipeline.done_hooks(were_done(hook, "recording"))
        every = were_done(hook, "recording", "second", "one that was taken out")
        assert hook in pipeline.done_hooks(every)
    # A plugin without the hook has nothing pending.
    pipeline = pipeline_of(Recording, RaisingPlugin)
    assert "cleanup" in pipeline.done_hooks(were_done("cleanup", "recording"))
    assert "start" not in pipeline.done_hooks(were_done("start", "recording"))


async def test_due_jobs_go_to_the_plugin_that_requested_them() -> None:
    assert await pipeline_of(Recording, Second).monitor("second", [view()]) == {"j1": None}
    assert RAN == [("second", "monitoring")]
    with pytest.raises(LookupError):
        await pipeline_of(Recording).monitor("gone", [view()])


class MutatingPlugin(JobPlugin):
    """A plugin that modifies whatever it receives."""

    name: ClassVar[str] = "spoils"

    async def on_create(self, job: Job, builder: JobBuilder) -> None:
        for one in (job, builder.job):
            one.labels["spoilt"] = "1"
            one.parameters.clear()
            one.invocation.command.append("spoilt")

    async def on_job_start(self, job_id: str, job_from_server: JobFromServer) -> float | None:
        job_from_server.job.labels.clear()
        return None

    async def on_job_monitoring(
        self, job_batch: Sequence[JobFromServer]
    ) -> Mapping[str, float | None]:
        found: Any = job_batch
        while found:
            found.pop().job.labels.clear()
        return {}


class LabelRecordingPlugin(JobPlugin):
    """A plugin that records the labels that it sees."""

    name: ClassVar[str] = "looks"
    seen: ClassVar[list[dict[str, str]]] = []

    async def on_create(self, job: Job, builder: JobBuilder) -> None:
        self.seen.append(dict(builder.job.labels))

    async def on_job_start(self, job_id: str, job_from_server: JobFromServer) -> float | None:
        self.seen.append(dict(job_from_server.job.labels))
        return None


async def test_a_plugin_cannot_modify_its_arguments(
    recorder: HookRecorder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(LabelRecordingPlugin, "seen", [])
    text = {"type": "text", "value": "x"}
    job = make_job(labels={"a": "b"}, parameters={"p": text}, invocation={"command": ["run"]})
    before = job.model_dump_json()
    plugins = [plugin(make_context()) for plugin in PLUGINS]
    pipeline = Pipeline(
        [*plugins, MutatingPlugin(make_context()), LabelRecordingPlugin(make_context())],
        instance="test",
        namespace="jobs",
    )
    plan = await pipeline.plan(job)
    await pipeline_of(MutatingPlugin, LabelRecordingPlugin).run(
        "start", view(job), done=(), recorder=recorder
    )
    batch = [view(job)]
    assert await pipeline_of(MutatingPlugin).monitor("spoils", batch) == {}
    assert len(batch) == 1
    assert plan.job.model_dump_json() == job.model_dump_json() == before
    assert LabelRecordingPlugin.seen == [{"a": "b"}] * 2


def test_two_plugins_cannot_create_the_same_companion() -> None:
    builder = JobBuilder(make_job(), volcano_job=None)  # type: ignore[arg-type]  # not read
    one = Companion(kind="Secret", name="a", manifest={}, when="before")
    builder.add_companion(one)
    with pytest.raises(ValueError, match="Secret a"):
        builder.add_companion(one)
