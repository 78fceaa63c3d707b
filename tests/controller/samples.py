"""Provides sample jobs, records and observed objects, and fakes for plugins."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from controller.jobs.cluster.informer import Indexer
from controller.jobs.history.pod_records import make_pod_records
from controller.jobs.pipeline.pipeline import Pipeline
from controller.jobs.pipeline.plugin import JobControl, JobPlugin, PluginContext, UsageLedger
from controller.jobs.pipeline.plugin_loading import load_plugins, make_loaded
from controller.jobs.reconcile.lifecycle.observed_state import ObservedState
from controller.jobs.spec.model import Job
from controller.plugins import PLUGINS
from controller.settings import PluginChoice, read_settings
from controller.site.job_defaults import JobDefaults
from controller.store.database import Transaction
from controller.store.jobs.job_rows import JobRecord, jobs_ended_before
from controller.store.jobs.progress import PodRecord
from controller.store.jobs.relations import Caller, Peer
from controller.store.jobs.tombstones import delete_job_records
from controller.volcano.observed import ObservedJob, ObservedPod, ObservedService
from shared.settings import Environment

UID = "vcjob-1"


def make_job(**fields: Any) -> Job:
    """Return a job with the required fields, and *fields*."""
    least = {"id": "j1", "owner": {"user": "ada"}, "image": "busybox"}
    return Job.model_validate(least | fields)


def make_record(**fields: Any) -> JobRecord:
    """Return the record of a job that was just accepted."""
    values: dict[str, Any] = {
        "id": "j1", "owner_user": "ada", "owner_project": None, "namespace": "jobs",
        "spec": {"id": "j1", "owner": {"user": "ada"}, "image": "busybox"}, "sealed": None,
        "fingerprint": None, "desired": "run", "state": "IN_QUEUE", "reason": "submitting",
        "message": "being submitted", "attempt": 1, "uid": None, "outcome": None,
        "created_at": 1.0, "started_at": None, "finished_at": None,
    }  # fmt: skip
    return JobRecord(**values | fields)


def make_observed(phase: str = "Running", **fields: Any) -> ObservedJob:
    """Return a VolcanoJob in *phase*."""
    values: dict[str, Any] = {
        "namespace": "jobs", "name": "j-j1", "uid": UID, "instance": "test", "job_id": "j1",
        "phase": phase, "message": "", "annotations": {}, "deleting": False, "created_at": 1.0,
    }  # fmt: skip
    return ObservedJob(**values | fields)


def make_pod(index: int = 0, **fields: Any) -> ObservedPod:
    """Return a running, ready pod."""
    values: dict[str, Any] = {
        "namespace": "jobs", "name": f"j-j1-job-{index}", "uid": f"pod-{index}",
        "instance": "test", "job_id": "j1", "owner_uid": UID, "task": "job", "index": index,
        "phase": "Running", "reason": "", "message": "", "address": f"10.0.0.{index + 1}",
        "node": "n1", "ready": True, "answers": True, "deleting": False, "waiting": "",
        "running": True, "started_at": 2.0, "ended": None,
    }  # fmt: skip
    return ObservedPod(**values | fields)


def relist(indexer: Indexer[Any], *objects: Any) -> None:
    """Replace the indexer's content by a complete list of *objects*."""
    indexer.begin_list()
    for one in objects:
        indexer.put(one, listed=True)
    for _ in indexer.end_list():
        pass


def make_service(rank: int = 0, **fields: Any) -> ObservedService:
    """Return the Service of a rank."""
    values: dict[str, Any] = {
        "namespace": "jobs", "name": f"rank-j1-{rank}", "uid": f"service-{rank}", "job_id": "j1",
        "owners": frozenset({UID}), "address": f"10.96.0.{rank + 1}", "ports": frozenset({8888}),
        "deleting": False,
    }  # fmt: skip
    return ObservedService(**values | fields)


def make_observed_state(record: JobRecord, job: ObservedJob | None = None, *pods: ObservedPod,
              **fields: Any) -> ObservedState:  # fmt: skip
    """Return the observed state of a job for which nothing is pending."""
    fields.setdefault("runs", recorded_pods(record, *pods))
    fields.setdefault("ended_since", {pod.uid: 9.0 for pod in pods if pod.is_over})
    done = {"companions_applied": True, "started": True, "completed": False, "cleaned": False}
    return ObservedState(record=record, job=job, pods=pods, **done | fields)


def recorded_pods(record: JobRecord, *pods: ObservedPod) -> dict[str, PodRecord]:
    """Return the stored records of these pods."""
    own = [pod for pod in pods if pod.owner_uid == record.uid]
    made = make_pod_records(
        make_job(replicas=9), record.attempt, runs={}, present=own, departed=(), now=9.0,
        looked_until=0.0,
    )  # fmt: skip
    return {run.pod_uid: run for run in made}


class NoSessions:
    """Sessions of a job without sessions; records the plugins' requests."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    async def routes_may_have_changed(self, job_id: str) -> None:
        """Record the call."""
        self.asked.append(("look", job_id))

    async def end_sessions(self, job_id: str, *, reason: str) -> None:
        """Record the call."""
        self.asked.append((reason, job_id))


class NoControl:
    """Jobs whose time is never over."""

    async def end_if_over(self, job_ids: Collection[str]) -> dict[str, float | None]:
        """Return no end for any job."""
        return dict.fromkeys(job_ids)


class NoLedger:
    """A ledger that gets no entries."""

    async def write_up(self, job_id: str) -> float | None:
        """Enter nothing."""
        return None


class NoLinks:
    """Links of a job without links; records the plugins' requests."""

    def __init__(self) -> None:
        self.asked: list[tuple[str, str]] = []

    async def expose(self, job: Job) -> None:
        """Record the call."""
        self.asked.append(("expose", job.id))

    async def release(self, job_id: str) -> None:
        """Record the call."""
        self.asked.append(("release", job_id))


class NoPeers:
    """A registry of *peers* and *callers*; records ended jobs."""

    def __init__(self, peers: Sequence[Peer] = (), callers: Sequence[Caller] = ()) -> None:
        self.peers = {one.job_id: one for one in peers}
        self.callers = list(callers)
        self.ended: list[str] = []

    async def find(self, job_ids: Collection[str]) -> Mapping[str, Peer]:
        """Return the requested peers."""
        return {name: one for name, one in self.peers.items() if name in job_ids}

    async def callers_of(self, job_id: str) -> Sequence[Caller]:
        """Return all callers."""
        return self.callers

    async def has_ended(self, job_id: str) -> None:
        """Record the call."""
        self.ended.append(job_id)


def make_defaults(**settings: str) -> JobDefaults:
    """Return the defaults of a deployment that sets *settings*."""
    return read_settings(Environment({"FUMAROLE_CONTROLLER_FAIR_SHARE": "off"} | settings)).jobs


def make_plugins(
    known: Sequence[type[JobPlugin]], context: PluginContext, *, wanted: Sequence[str] | None = None
) -> list[JobPlugin]:
    """Return instances of the *wanted* plugins; without *wanted*, of all *known* ones."""
    choice = PluginChoice(listed=None if wanted is None else tuple(wanted))
    return make_loaded(load_plugins(known, choice), context)


def make_context(
    sessions: NoSessions | None = None,
    defaults: JobDefaults | None = None,
    *,
    links: NoLinks | None = None,
    peers: NoPeers | None = None,
    control: JobControl | None = None,
    ledger: UsageLedger | None = None,
) -> PluginContext:
    """Return the context that plugins are constructed with."""
    return PluginContext(
        instance="test",
        jobs=defaults or make_defaults(),
        sessions=sessions or NoSessions(),
        control=control or NoControl(),
        ledger=ledger or NoLedger(),
        links=links or NoLinks(),
        peers=peers or NoPeers(),
    )


def make_pipeline(context: PluginContext | None = None, *, instance: str = "test") -> Pipeline:
    """Return a pipeline of the built-in plugins."""
    plugins = make_plugins(PLUGINS, context or make_context())
    return Pipeline(plugins, instance=instance, namespace="jobs")


async def forget_jobs(transaction: Transaction, *, finished_before: float, limit: int) -> int:
    """Delete the records of jobs that ended before *finished_before*; return how many."""
    gone = await jobs_ended_before(transaction, finished_before=finished_before, limit=limit)
    await delete_job_records(transaction, gone, at=finished_before)
    return len(gone)
