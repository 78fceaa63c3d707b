from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from dataclasses import replace
from typing import Any, ClassVar, Self

import pytest

from controller.jobs.history.job_record import JobRecords
from controller.jobs.pipeline.border import PluginFailed
from controller.jobs.pipeline.builder import JobBuilder
from controller.jobs.pipeline.pipeline import Pipeline
from controller.jobs.pipeline.plugin import JobPlugin
from controller.jobs.reconcile.plugin_calls import PluginCalls, StillRunning
from controller.jobs.reconcile.submitting import SubmitActions
from controller.jobs.reconcile.workqueue import RequeueAfter
from controller.jobs.spec.accepted import Vault
from controller.jobs.spec.model import Job
from controller.kube.errors import Invalid, KubeError, error_from
from controller.plugins import PLUGINS
from controller.store.database import Store
from controller.store.instance import raise_term
from controller.store.jobs.job_rows import JobRecord, find_job, insert_job
from controller.volcano.preflight import Capabilities
from tests.clock import Clock
from tests.controller.samples import make_context, make_plugins, make_record
from tests.controller.volcano.test_capabilities import schema_of


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Create VolcanoJobs without companions, and without a wait for other jobs."""

    async def nothing(*_: Any) -> list[Any]:
        return []

    monkeypatch.setattr(SubmitActions, "_apply_before", nothing)
    monkeypatch.setattr(SubmitActions, "_wait_for_other_jobs", nothing)


class RaisingPlugin(JobPlugin):
    """A plugin that fails in its hook, after all other plugins."""

    name: ClassVar[str] = "breaks"

    async def on_create(self, job: Job, builder: JobBuilder) -> None:
        raise ZeroDivisionError


class Cluster:
    """A fake cluster that refuses VolcanoJobs and records what is created."""

    def __init__(self, refusal: KubeError | None = None) -> None:
        self.refusal = refusal
        self.made: list[str] = []

    @property
    def companions(self) -> Self:
        return self

    async def ensure(self, *args: Any, **options: Any) -> None:
        self.made.append("companion")

    async def ensure_volcano_job(self, plan: Any) -> None:
        self.made.append("job")
        if self.refusal is not None:
            raise self.refusal


class Prerequisites:
    """Prerequisites that all exist."""

    def __init__(self) -> None:
        self.expired = 0

    async def why_not_ready(self, *_: Any) -> None:
        return None

    def forget(self) -> None:
        """Do nothing: nothing is remembered."""

    def expire(self, _shared: Any) -> None:
        self.expired += 1


UNUSED: Any = None


async def submit(
    store: Store,
    clock: Clock,
    cluster: Any,
    pipeline: Pipeline,
    prerequisites: Any = None,
    *,
    details: dict[str, Any] | None = None,
    **spec: Any,
) -> JobRecord:
    record = make_record(spec={**make_record().spec, **spec}, details=details)
    record = replace(record, id=record.spec["id"])
    async with store.write() as transaction:
        await insert_job(transaction, record, labels={})
        term = await raise_term(transaction)
    records = JobRecords(store.fenced(term), vault=Vault([os.urandom(32)]), clock=clock)
    prerequisites = prerequisites or Prerequisites()
    actions = SubmitActions(
        records,
        pipeline=pipeline,
        cluster=cluster,
        prerequisites=prerequisites,
        priorities=UNUSED,
        calls=PluginCalls(),
    )
    try:
        # On a busy machine, planning takes longer than a worker waits for it.
        while True:
            with suppress(StillRunning):
                await actions.submit(record)
                break
            await asyncio.sleep(0.05)
    finally:
        async with store.read() as transaction:
            found = await find_job(transaction, record.id)
        assert found is not None
    return found


def pipeline_of(*more: type[JobPlugin]) -> Pipeline:
    plugins = make_plugins([*PLUGINS, *more], make_context())
    return Pipeline(plugins, instance="test", namespace="jobs")


async def test_a_plugin_that_raises_stops_the_submission_before_any_create(
    store: Store, clock: Clock
) -> None:
    cluster = Cluster()
    with pytest.raises(PluginFailed, match="breaks"):
        await submit(store, clock, cluster, pipeline_of(RaisingPlugin))
    assert cluster.made == []
    async with store.read() as transaction:
        record = await find_job(transaction, "j1")
    assert record is not None
    assert record.reason == "plugin"
    assert record.message == "the plugin breaks failed in on_create"


async def test_a_field_unsupported_by_this_volcano_is_refused(store: Store, clock: Clock) -> None:
    cluster, pipeline = Cluster(), pipeline_of()
    pipeline.learn(Capabilities(schema_of("1.11")))
    topology = {"network": {"mode": "hard", "tier": 1}}
    record = await submit(store, clock, cluster, pipeline, topology=topology)
    assert (record.outcome, record.end_reason) == ("FAILURE", "rejected")
    assert record.end_message is not None
    assert record.end_message.startswith("topology.network: the cluster's Volcano does not know")
    assert cluster.made == []


@pytest.mark.parametrize(
    ("refusal", "message"),
    [
        (Invalid('admission webhook "validatejob.volcano.sh" denied the request: '
                 'unable to find job plugin: ray'),
         "framework: unable to find job plugin: ray"),
        (Invalid("no", status=422, details={"causes": [
            {"field": "spec.minSuccess", "message": "too many"},
            {"field": "spec.priorityClassName", "message": "not found"}]}),
         "min_success: too many; priority: not found"),
    ],
)  # fmt: skip
async def test_a_cluster_refusal_is_reported_with_the_jobs_own_path(
    store: Store, clock: Clock, at_once: None, refusal: Invalid, message: str
) -> None:
    record = await submit(store, clock, Cluster(refusal), pipeline_of())
    decided = (record.outcome, record.end_reason, record.end_message)
    assert decided == ("FAILURE", "refused", message)


DENIES = 'admission webhook "validatejob.volcano.sh" denied the request: '


EVICTED = {"cause": "evicted"}


@pytest.mark.parametrize(
    ("status", "message", "waited", "reason", "raised"),
    [
        (400, DENIES + "can only submit job to queue with state `Open`", 0, "preparing",
         RequeueAfter),
        (400, DENIES + 'unable to find job queue: queue "q" not found', 0, "preparing",
         RequeueAfter),
        (500, 'failed calling webhook "x": connection refused', 0, "preparing", KubeError),
        (500, DENIES + "no label team", 0, "preparing", KubeError),
        (429, DENIES + "too many jobs", 0, "preparing", KubeError),
        (403, "x is forbidden: exceeded quota: q", 0, "forbidden", KubeError),
        (503, "later", 0, "submitting", KubeError),
        (429, "later", 0, "submitting", KubeError),
        (503, "later", 11, "preparing", KubeError),
    ],
)  # fmt: skip
async def test_a_temporary_refusal_does_not_end_a_job_and_states_its_reason(
    store: Store, clock: Clock, at_once: None,
    status: int, message: str, waited: float, reason: str, raised: type[Exception],
) -> None:  # fmt: skip
    clock.now = make_record().created_at + waited
    cluster = Cluster(error_from(status, {"message": message}))
    with pytest.raises(raised):
        await submit(store, clock, cluster, pipeline_of(), queue="q", details=EVICTED)
    async with store.read() as transaction:
        record = await find_job(transaction, "j1")
    assert record is not None
    assert (record.outcome, record.reason) == (None, reason)
    assert reason == "submitting" or record.message == message
    details = {"forbidden": {"cause": "quota"}, "submitting": EVICTED}.get(reason)
    assert record.details == details, "details belong to their reason"


@pytest.mark.parametrize(
    ("message", "expired"),
    [
        ('jobs.batch.volcano.sh is forbidden: User "u" cannot create resource "jobs"', 1),
        ("exceeded quota: q, requested: count/jobs.batch.volcano.sh=1", 0),
    ],
)
async def test_a_missing_right_recreates_its_role_binding(
    store: Store, clock: Clock, at_once: None, message: str, expired: int
) -> None:
    cluster, prerequisites = Cluster(error_from(403, {"message": message})), Prerequisites()
    with pytest.raises(KubeError):
        await submit(store, clock, cluster, pipeline_of(), prerequisites)
    assert prerequisites.expired == expired


@pytest.mark.parametrize(
    ("status", "message"),
    [(413, "Request entity too large: limit is 3145728"),
     (500, "etcdserver: request is too large")],
)  # fmt: skip
async def test_an_oversize_volcano_job_ends_the_job(
    store: Store, clock: Clock, at_once: None, status: int, message: str
) -> None:
    cluster = Cluster(error_from(status, {"message": message}))
    record = await submit(store, clock, cluster, pipeline_of())
    assert (record.outcome, record.end_reason) == ("FAILURE", "refused")
    assert message in (record.end_message or "")


class Named(Cluster):
    """A cluster that may still hold pods of finished jobs."""

    def __init__(self, *has_pods: str) -> None:
        super().__init__(Invalid("made after all", status=422))
        self.has_pods = has_pods

    async def find_pods(self, _namespace: str, job_id: str) -> list[str]:
        return [job_id] if job_id in self.has_pods else []


@pytest.mark.parametrize(
    ("values", "has_pods", "waits"),
    [
        ({"uid": "u"}, (), True), ({"uid": "u", "namespace": "other"}, (), False),
        ({"uid": "u", "tasks": [{"name": "b"}]}, (), False),
        ({"created_at": -1.0}, (), True), ({"created_at": 1.0}, (), False),
        ({"uid": "u", "state": "SUCCESS"}, ("a",), True),
        ({"uid": "u", "state": "SUCCESS"}, (), False),
    ],
    ids=["submitted", "elsewhere", "other-task", "first", "second", "pods-left", "gone"],
)  # fmt: skip
async def test_a_job_waits_for_pods_of_another_job_with_the_same_names(
    store: Store, clock: Clock, monkeypatch: pytest.MonkeyPatch,
    values: dict[str, Any], has_pods: tuple[str, ...], waits: bool,
) -> None:  # fmt: skip
    async def nothing(*_: Any) -> list[Any]:
        return []

    monkeypatch.setattr(SubmitActions, "_apply_before", nothing)
    values = dict(values)
    tasks = values.pop("tasks", [{"name": "b-job"}])
    base = make_record()
    spec = {**base.spec, "id": "a", "tasks": tasks}
    values["created_at"] = base.created_at + values.get("created_at", 0.0)
    other = replace(base, id="a", spec=spec, **values)
    async with store.write() as transaction:
        await insert_job(transaction, other, labels={})
    cluster = Named(*has_pods)
    if not waits:
        record = await submit(store, clock, cluster, pipeline_of(), id="a-b")
        assert (record.end_reason, cluster.made) == ("refused", ["job"])
        return
    with pytest.raises(RequeueAfter):
        await submit(store, clock, cluster, pipeline_of(), id="a-b")
    assert cluster.made == []
    async with store.read() as transaction:
        found = await find_job(transaction, "a-b")
    assert found is not None
    assert found.reason == "preparing"
    assert found.message == (
        "waiting for the job a and its pods, which have the same names, to be gone"
    )
