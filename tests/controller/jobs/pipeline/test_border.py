"""Tests the error border around plugins: each fault becomes one named failure in time."""

from __future__ import annotations

import asyncio
import math
import sys
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pytest
from prometheus_client import CollectorRegistry

from controller.jobs.cluster.prerequisites import SHARED_KINDS
from controller.jobs.pipeline.border import (
    MOST_STUCK,
    BadResult,
    Call,
    PluginBorder,
    PluginFailed,
    Result,
    due_time,
    due_times,
    nothing,
)
from controller.jobs.pipeline.builder import SHAREABLE, Companion, JobBuilder, SharedObject
from controller.jobs.pipeline.pipeline import Pipeline
from controller.jobs.pipeline.plugin import JobFromServer, JobPlugin
from controller.jobs.pipeline.plugin_metrics import HookCounts
from controller.jobs.spec.model import Job
from controller.jobs.spec.problems import JobRejected, Problem
from controller.plugins.task import TaskPlugin
from controller.site.hook_limits import HookSeconds
from controller.store.errors import LeadershipLost, StoreUnavailable
from controller.volcano.names import ATTEMPT_ANNOTATION, INSTANCE_LABEL, labels_of
from tests.controller.samples import make_context, make_job
from tests.timing import timed

CALL = Call("odd", "on_job_start", "j1")


async def raising(error: BaseException) -> None:
    raise error


class Panic(BaseException):
    """Stands for the exception that extensions written in Rust raise."""


async def hanging() -> None:
    await asyncio.Event().wait()


async def returning(value: Any) -> Any:
    return value


async def exiting() -> None:
    sys.exit(3)


def not_even_a_coroutine() -> Any:
    return 7


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(
    ("work", "why", "result"),
    [
        (lambda: raising(ValueError("secret value")), "raised ValueError", "raised"),
        (lambda: raising(LeadershipLost("not yours to say")), "raised LeadershipLost", "raised"),
        (lambda: raising(StoreUnavailable("x")), "raised StoreUnavailable", "raised"),
        (lambda: raising(JobRejected([Problem("a", "b")])), "raised JobRejected", "raised"),
        (lambda: raising(PluginFailed("x", "y")), "raised PluginFailed", "raised"),
        (lambda: raising(BadResult("mine")), "raised BadResult", "raised"),
        (lambda: raising(TimeoutError()), "raised TimeoutError", "raised"),
        (lambda: raising(asyncio.CancelledError()), "raised CancelledError", "raised"),
        (lambda: raising(SystemExit(3)), "raised SystemExit", "raised"),
        (lambda: raising(KeyboardInterrupt()), "raised KeyboardInterrupt", "raised"),
        (lambda: raising(GeneratorExit()), "raised GeneratorExit", "raised"),
        (lambda: raising(Panic("secret value")), "raised Panic", "raised"),
        (lambda: raising(BaseExceptionGroup("several", [Panic()])), "raised BaseExc", "raised"),
        (lambda: raising(ValueError("x" * 10_000_000)), "raised ValueError", "raised"),
        (exiting, "raised SystemExit", "raised"),
        (not_even_a_coroutine, "raised TypeError", "raised"),
        (hanging, "took longer than 0.05 s", "timed_out"),
        (lambda: returning("soon"), "returned a str instead", "bad_result"),
        (lambda: returning(True), "returned a bool instead", "bad_result"),
        (lambda: returning(math.nan), "returned an invalid time", "bad_result"),
        (lambda: returning(10**400), "returned an invalid time", "bad_result"),
    ],
)
async def test_every_misbehaviour_of_a_hook_is_a_named_failure(
    work: Callable[[], Awaitable[object]],
    why: str,
    result: Result,
    in_place: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    registry = CollectorRegistry()
    border = PluginBorder(HookSeconds(0.05), metrics=HookCounts(registry))
    with pytest.raises(PluginFailed, match="odd failed in on_job_start") as caught:
        await border.call(CALL, work, due_time, secrets=["secret value"], in_place=in_place)
    assert caught.value.why.startswith(why)
    labels = {"plugin": "odd", "hook": "on_job_start", "result": result}
    assert registry.get_sample_value("fumarole_controller_hooks_total", labels) == 1
    (record,) = caplog.records
    assert "secret value" not in str(vars(record))
    assert len(str(vars(record))) < 10_000


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize(("given", "read"), [(None, None), (5, 5.0), (2.5, 2.5)])
async def test_a_valid_result_of_a_hook_is_used(
    given: Any, read: float | None, in_place: bool
) -> None:
    border, work = PluginBorder(), lambda: returning(given)
    assert await border.call(CALL, work, due_time, in_place=in_place) == read
    await border.call(CALL, work, nothing, in_place=in_place)


class LyingMapping(Mapping[str, Any]):
    """A mapping that claims every key and raises for each value."""

    def __getitem__(self, key: str) -> Any:
        raise ZeroDivisionError

    def __iter__(self) -> Iterator[str]:
        while True:
            yield "j1"

    def __len__(self) -> int:
        return 2**62


@pytest.mark.parametrize(
    "given", [None, 7, ["j1"], {"j1": "soon"}, {"j1": -math.inf}, LyingMapping()]
)
async def test_due_times_must_be_a_mapping_of_times(given: Any) -> None:
    with pytest.raises(PluginFailed):
        await PluginBorder().call(CALL, lambda: returning(given), due_times(["j1"]))


async def test_of_a_huge_mapping_only_requested_jobs_are_read() -> None:
    given = {"j1": 5, "j2": "never looked at"} | {str(n): None for n in range(10**5)}
    due = await PluginBorder().call(CALL, lambda: returning(given), due_times(["j1", "j9"]))
    assert due == {"j1": 5.0}


async def test_each_plugin_has_its_own_timeout() -> None:
    border = PluginBorder(HookSeconds(0.05, {"slow": 20.0}))
    await border.call(Call("slow", "on_cleanup", "j1"), lambda: asyncio.sleep(0.1), nothing)
    with pytest.raises(PluginFailed) as caught:
        await border.call(Call("other", "on_cleanup", "j1"), lambda: asyncio.sleep(0.1), nothing)
    assert caught.value.slow


async def test_a_hook_that_ignores_cancellation_is_abandoned_and_not_called_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("controller.jobs.pipeline.border.GRACE_SECONDS", 0.05)
    released = asyncio.Event()

    async def stubborn() -> None:
        while not released.is_set():
            try:
                await released.wait()
            except asyncio.CancelledError:
                continue

    border = PluginBorder(HookSeconds(0.05))
    with pytest.raises(PluginFailed, match="odd"):
        await border.call(CALL, stubborn, nothing)
    assert border.stuck == {"odd": 1}
    with pytest.raises(PluginFailed) as caught:
        await border.call(CALL, lambda: returning(None), nothing)
    assert caught.value.why == "its last call for this job does not end"
    # Other jobs and other plugins are unaffected.
    await border.call(Call("odd", "on_job_start", "j2"), lambda: returning(None), nothing)
    await border.call(Call("fine", "on_job_start", "j1"), lambda: returning(None), nothing)
    monkeypatch.setattr("controller.jobs.pipeline.border.MOST_STUCK", 1)
    with pytest.raises(PluginFailed, match="odd"):
        await border.call(Call("odd", "on_job_start", "j2"), lambda: returning(None), nothing)
    monkeypatch.setattr("controller.jobs.pipeline.border.MOST_STUCK", MOST_STUCK)
    released.set()
    while border.stuck:
        await asyncio.sleep(0.01)
    await border.call(CALL, lambda: returning(None), nothing)


@pytest.mark.parametrize("in_place", [False, True])
async def test_a_wait_for_a_hook_can_be_cancelled(in_place: bool) -> None:
    border = PluginBorder()
    waiting = asyncio.create_task(border.call(CALL, hanging, nothing, in_place=in_place))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert [border.call_in(task) for task in asyncio.all_tasks() if border.call_in(task)] == [CALL]
    waiting.cancel()
    with timed() as took, pytest.raises(asyncio.CancelledError):
        await waiting
    assert took.seconds < 0.5
    assert not border.stuck
    assert border.call_in(waiting) is None


async def test_a_disabled_plugin_is_not_called_for_the_job() -> None:
    border = PluginBorder()
    border.switch_off([("odd", "j1")])
    with pytest.raises(PluginFailed) as caught:
        await border.call(CALL, hanging, nothing)
    assert "switched off" in caught.value.why
    await border.call(Call("odd", "on_job_start", "j2"), lambda: returning(None), nothing)


# What a hook makes


class SuppliedPlugin(JobPlugin):
    """A plugin that makes what the test supplies."""

    name: ClassVar[str] = "makes"
    what: ClassVar[Callable[[JobBuilder], Any]] = lambda builder: None

    async def on_create(self, job: Job, builder: JobBuilder) -> None:
        type(self).what(builder)


class RecursiveJson:
    """JSON that contains itself."""


def _companion(manifest: Any) -> Companion:
    return Companion(kind="ConfigMap", name="c", manifest=manifest, when="after")


def _named(name: Any, **fields: Any) -> Companion:
    given: dict[str, Any] = {"kind": "ConfigMap", "name": name, "manifest": {}, "when": "after"}
    return Companion(**given | fields)


def _labelled(labels: Any) -> Companion:
    return _companion({"metadata": {"labels": labels}})


def _shared(**fields: Any) -> SharedObject:
    given: dict[str, Any] = {"kind": "Secret", "name": "s", "namespace": "jobs"}
    return SharedObject(**given | fields)


def _endless() -> dict[str, Any]:
    found: dict[str, Any] = {}
    found["self"] = found
    return found


@pytest.mark.parametrize(
    ("what", "why"),
    [
        (lambda b: b.refuse(1, "x"), "refused the job with a problem that is not text"),
        (lambda b: b.refuse("x", None), "refused the job with a problem that is not text"),
        (lambda b: b.problems.append("wrong"), "left a str where a Problem should be"),
        (lambda b: setattr(b, "problems", None), "left no list"),
        (lambda b: setattr(b, "volcano_job", {}), "replaced the VolcanoJob by something else"),
        (lambda b: setattr(b.volcano_job, "name", "mine"), "renamed the VolcanoJob"),
        (lambda b: b.volcano_job.tasks.clear(), "removed the program of the task job"),
        (
            lambda b: b.task("job").template.containers.clear(),
            "removed the program of the task job",
        ),
        (lambda b: b.companions.append({}), "left a dict where a Companion should be"),
        (
            lambda b: b.add_companion(_companion(_endless())),
            "made the ConfigMap c with a manifest that is not JSON",
        ),
        (
            lambda b: b.add_companion(_companion({"a": RecursiveJson()})),
            "made the ConfigMap c with a manifest that is not JSON",
        ),
        (
            lambda b: b.add_companion(_companion({"a": math.nan})),
            "made the ConfigMap c with a manifest that is not JSON",
        ),
        (lambda b: b.add_companion(_companion({"a": "x" * 2_000_000})), "made the ConfigMap c lar"),
        (
            lambda b: b.add_companion(_companion([])),
            "made the ConfigMap c with a manifest that is not an object",
        ),
        (
            lambda b: b.add_companion(_companion({"metadata": "x"})),
            "made the ConfigMap c with meta",
        ),
        (lambda b: b.add_companion(_labelled({"a": 1})), "made the ConfigMap c with labels"),
        (lambda b: b.add_companion(_labelled("x")), "made the ConfigMap c with labels"),
        (lambda b: b.add_companion(_named("..")), "made a ConfigMap with the invalid name '..'"),
        (lambda b: b.add_companion(_named("A b")), "made a ConfigMap with the invalid name 'A b'"),
        (lambda b: b.add_companion(_named(5)), "made a ConfigMap with the invalid name 5"),
        (lambda b: b.add_companion(_named("c", when="soon")), "made the ConfigMap c neither"),
        (lambda b: b.companions.append(_named("c", kind=["x"])), "made an object without a kind"),
        (lambda b: b.shared.append(_shared(name=None)), "made a Secret with the invalid name None"),
        (
            lambda b: b.shared.append(_shared(kind="ConfigMap")),
            "shared the ConfigMap s, but only these kinds",
        ),
        (lambda b: b.shared.append(_shared(labels={"a": 1})), "made the Secret s with labels"),
        (lambda b: b.waiting.extend("x" * 2000), "left no list"),
        (lambda b: setattr(b.volcano_job, "tasks", 3), "raised TypeError"),
        (lambda b: setattr(b.volcano_job, "queue", None), "raised TypeError"),
        (lambda b: setattr(b.volcano_job, "retention_seconds", "5"), "raised TypeError"),
        (lambda b: b.volcano_job.labels.update(a=1), "raised TypeError"),
        (lambda b: b.task("job").template.annotations.update(a=1), "raised AttributeErr"),
        (lambda b: setattr(b.container("job"), "image", None), "raised AttributeError"),
        (lambda b: setattr(b.task("job"), "replicas", "1"), "raised TypeError"),
        (
            lambda b: setattr(b.task("job").template, "more", {"a": RecursiveJson()}),
            "made the VolcanoJo",
        ),
    ],
)
async def test_the_output_of_a_plugin_is_validated_before_the_next_plugin(
    what: Callable[[JobBuilder], Any], why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SuppliedPlugin, "what", staticmethod(what))
    context = make_context()
    pipeline = Pipeline(
        [TaskPlugin(context), SuppliedPlugin(context)], instance="test", namespace="jobs"
    )
    with pytest.raises(PluginFailed, match="makes") as caught:
        await pipeline.plan(make_job())
    assert caught.value.why.startswith(why)


def test_only_declared_kinds_may_be_shared() -> None:
    assert set(SHAREABLE) == set(SHARED_KINDS)


async def test_companions_are_found_without_their_labels(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def forgets(builder: JobBuilder) -> None:
        builder.volcano_job.labels = {"theirs": "1"}
        builder.volcano_job.annotations.clear()
        builder.task("job").template.labels = {INSTANCE_LABEL: "theirs"}

    monkeypatch.setattr(SuppliedPlugin, "what", staticmethod(forgets))
    context = make_context()
    pipeline = Pipeline(
        [TaskPlugin(context), SuppliedPlugin(context)], instance="test", namespace="jobs"
    )
    made = (await pipeline.plan(make_job(), attempt=2)).volcano_job
    (task,) = made.tasks
    assert made.labels == {"theirs": "1"} | labels_of("test", "j1")
    assert task.template.labels == labels_of("test", "j1")
    assert made.annotations[ATTEMPT_ANNOTATION] == "2"

    def moves(builder: JobBuilder) -> None:
        builder.volcano_job.namespace = "elsewhere"

    monkeypatch.setattr(SuppliedPlugin, "what", staticmethod(moves))
    assert (await pipeline.plan(make_job())).volcano_job.namespace == "elsewhere"
    with pytest.raises(PluginFailed) as caught:
        await pipeline.plan(make_job(), accepted_in="jobs")
    assert caught.value.why.startswith("moved the VolcanoJob out of the namespace")


def _rejects(error: JobRejected) -> Callable[[JobBuilder], Any]:
    def what(_builder: JobBuilder) -> None:
        raise error

    return what


async def test_the_number_of_problems_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    many = JobRejected([Problem("p" * 10**6, "m" * 10**6)] * 150)
    pipeline = Pipeline([SuppliedPlugin(make_context())], instance="test", namespace="jobs")
    monkeypatch.setattr(SuppliedPlugin, "what", staticmethod(_rejects(many)))
    with pytest.raises(JobRejected) as caught:
        await pipeline.plan(make_job())
    assert len(caught.value.problems) == 100
    assert all(len(p.path) + len(p.message) == 4000 for p in caught.value.problems)
    # Text that no store accepts is not passed on.
    odd = JobRejected([Problem("a\0b", "half \ud800 of\u202ea pair")])
    monkeypatch.setattr(SuppliedPlugin, "what", staticmethod(_rejects(odd)))
    with pytest.raises(JobRejected, match=r"^a b: half \ufffd of a pair$"):
        await pipeline.plan(make_job())
    monkeypatch.setattr(SuppliedPlugin, "what", staticmethod(_rejects(JobRejected([]))))
    with pytest.raises(JobRejected, match="without a reason"):
        await pipeline.plan(make_job())


class Answers(JobPlugin):
    """A plugin whose monitoring hook returns a forbidden type."""

    name: ClassVar[str] = "answers"

    async def on_job_monitoring(
        self, job_batch: Sequence[JobFromServer]
    ) -> Mapping[str, float | None]:
        return ["j1"]  # type: ignore[return-value]  # the wrong type is intended


async def test_monitoring_without_a_mapping_is_a_plugin_failure() -> None:
    view = JobFromServer(
        job=make_job(), namespace="jobs", uid="u", attempt=1, phase="Running", started_at=1.0,
        pods=(),
    )  # fmt: skip
    pipeline = Pipeline([Answers(make_context())], instance="test", namespace="jobs")
    with pytest.raises(PluginFailed, match="answers failed in on_job_monitoring"):
        await pipeline.monitor("answers", [view])
