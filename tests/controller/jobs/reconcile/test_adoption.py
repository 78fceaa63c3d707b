"""Tests adoption from VolcanoJob annotations: no value, however wrong, stops the leader."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from controller.jobs.cluster.informer import InformerCache
from controller.jobs.cluster.job_objects import JobObjects
from controller.jobs.reconcile.adoption import Adoption
from controller.jobs.reconcile.lifecycle.next_step import decide
from controller.jobs.reconcile.lifecycle.steps import SetOutcome
from controller.jobs.tools.runs import why_unwanted
from controller.store.database import Store
from controller.store.instance import ensure_position, raise_term
from controller.store.jobs.job_rows import JobRecord, find_job
from controller.store.jobs.progress import companions_of
from controller.store.jobs.tools import AttachedTool, find_tool
from controller.volcano.names import labels_of, peer_service_name, volcano_job_name
from controller.volcano.observed import ObservedJob
from controller.volcano.parsing import read_job
from tests.controller.kube.api_server import Script, says, serving
from tests.controller.samples import make_defaults, make_observed, make_observed_state

SPEC = json.dumps({"id": "j1", "owner": {"user": "ada"}, "image": "busybox"})


async def intended(folder: Path) -> list[tuple[str, str, str]]:
    """Return the companions that the store expects."""
    store = Store(f"sqlite:///{folder}/store.db")
    async with store.read() as transaction:
        known = await companions_of(transaction, "j1")
    await store.close()
    return [(one.kind, one.namespace, one.name) for one in known]


async def adopt(
    folder: Path, *, beside: Sequence[ObservedJob] = (), **annotations: str
) -> tuple[JobRecord | None, tuple[str, ...]]:
    """Adopt a VolcanoJob with *annotations* into a new store; return its record and complaints.

    The jobs *beside* it are adopted too. Without annotations, only those are.
    """
    store = Store(f"sqlite:///{folder}/store.db")
    await store.open()
    async with store.write() as transaction:
        await ensure_position(transaction, new_identity="new")
        term = await raise_term(transaction)
    script = Script(says({"reason": "NotFound"}, 404), says({"metadata": {}}))
    async with serving(script, folder) as kube:
        informer = InformerCache(kube, instance="test", changed=lambda _job: None)
        named = {f"fumarole.dev/{name.replace('_', '-')}": v for name, v in annotations.items()}
        # A watch delivers events in no particular order.
        for one in beside:
            informer.jobs.put(one)
        if named:
            informer.jobs.put(make_observed(annotations=named))
        adoption = Adoption(
            store=store.fenced(term),
            kube=kube,
            informer=informer,
            cluster=JobObjects(kube, instance="test"),
            instance="test",
            namespace="jobs",
            defaults=make_defaults(),
            clock=time.time,
        )
        problems = await adoption._settle()
    async with store.read() as transaction:
        record = await find_job(transaction, "j1")
    await store.close()
    return record, problems


@pytest.mark.parametrize("word", ["nan", "inf", "1e999", "1_0", "-1", "²", "soon", "9" * 5000])
async def test_a_malformed_count_is_skipped(tmp_path: Path, word: str) -> None:
    record, problems = await adopt(
        tmp_path, spec=SPEC, attempt=word, created=word, first_start=word, allocated_seconds=word
    )
    assert record is not None
    assert problems == ()
    assert (record.attempt, record.created_at, record.started_at) == (1, 1.0, None)
    assert record.allocated_seconds is None


@pytest.mark.parametrize("spec", ["", "[]", "{", "[" * 200_000, '{"id":"j1","id":"j1"}', "\ud800"])
async def test_an_unreadable_volcano_job_is_reported_and_not_adopted(
    tmp_path: Path, spec: str
) -> None:
    record, problems = await adopt(tmp_path, spec=spec)
    assert record is None
    assert len(problems) == 1
    assert "jobs/j-j1 cannot be adopted" in problems[0]


async def test_the_service_by_which_peers_reach_an_adopted_job_is_looked_for(
    tmp_path: Path,
) -> None:
    # No VolcanoJob owns the companion, so nothing else would ever remove it.
    record, _ = await adopt(tmp_path, spec=SPEC)
    assert record is not None
    assert await intended(tmp_path) == [("Service", "jobs", peer_service_name("j1"))]


async def test_a_job_of_a_later_version_is_adopted_with_all_its_fields(tmp_path: Path) -> None:
    spec = json.loads(SPEC) | {"colour": {"of": "2028"}, "replicas": 2}
    record, problems = await adopt(tmp_path, spec=json.dumps(spec))
    assert problems == ()
    assert record is not None
    assert (record.spec, record.owner_user) == (spec, "ada")
    # An invalid field is not a field of a later version.
    other = tmp_path / "other"
    other.mkdir()
    record, problems = await adopt(other, spec=json.dumps(spec | {"replicas": "many"}))
    assert record is None
    assert "cannot be adopted" in problems[0]


RUN = f"tool.{'a' * 24}"
OF = {
    "job": "j1", "name": "board", "rank": 0, "asked_at": 5.5, "uid": "vcjob-1", "pod": "p",
    "task": "job", "index": 0, "unshared": ["/work"], "near": True, "ready_path": "/",
    "of a later version": 1,
}  # fmt: skip


def make_tools_job(
    run: str = RUN, user: str = "ada", phase: str = "Running", **annotations: str
) -> ObservedJob:
    """Return the VolcanoJob of a tool's run."""
    spec = {
        "id": run, "owner": {"user": user}, "image": "board", "resources": {"cpu": 2},
        "interactive": {"board": {"kind": "web", "port": 6006}},
    }  # fmt: skip
    said = {"spec": json.dumps(spec), "attempt": "1", "tool": json.dumps(OF)} | annotations
    named = {f"fumarole.dev/{name}": value for name, value in said.items()}
    # As a watch delivers it; the cache keeps a part of it.
    metadata = {
        "namespace": "jobs", "name": volcano_job_name(run), "uid": "vcjob-2",
        "labels": labels_of("test", run), "annotations": named,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    return read_job({"metadata": metadata, "status": {"state": {"phase": phase}}})


async def kept(folder: Path) -> tuple[JobRecord | None, AttachedTool | None]:
    """Return the stored run and its tool."""
    store = Store(f"sqlite:///{folder}/store.db")
    async with store.read() as transaction:
        run, tool = await find_job(transaction, RUN), await find_tool(transaction, PLACE)
    await store.close()
    return run, tool


PLACE = ("j1", "board", 0)


async def test_a_tools_volcano_job_is_adopted_as_its_jobs_tool_and_as_no_job(
    tmp_path: Path,
) -> None:
    record, problems = await adopt(tmp_path, beside=[make_tools_job()], spec=SPEC, attempt="1")
    run, tool = await kept(tmp_path)
    assert problems == ()
    assert record is not None
    assert run is not None
    assert tool is not None
    assert (record.tools, record.tool, run.uid) == (1, None, "vcjob-2")
    assert run.tool is not None
    assert {**OF, **run.tool} == OF
    assert (tool.run, tool.asked_at, tool.charged["cpu"]) == (RUN, 5.5, 2.0)
    assert tool.spec == {field: value for field, value in run.spec.items() if field != "id"}


async def test_an_aborted_tool_has_ended(
    tmp_path: Path,
) -> None:
    # An aborted job would be suspended until somebody resumes it. A tool cannot be resumed.
    aborted = make_tools_job(phase="Aborted")
    await adopt(tmp_path, beside=[aborted], spec=SPEC, attempt="1")
    run, _ = await kept(tmp_path)
    assert run is not None
    step = decide(make_observed_state(run, aborted))
    assert isinstance(step, SetOutcome)
    assert (step.outcome, step.reason) == ("FAILURE", "stopped")


async def test_a_tool_without_job_is_adopted_for_removal_and_an_unmarked_one_ignored(
    tmp_path: Path,
) -> None:
    _, problems = await adopt(tmp_path, beside=[make_tools_job()])
    run, tool = await kept(tmp_path)
    assert (problems, tool) == ((), None)
    assert run is not None
    assert run.tool is not None
    assert why_unwanted(run, tool, record=None, pods=()) is not None
    no_rank, no_time = OF | {"rank": 10**30}, OF | {"asked_at": float("nan")}
    wrong = ["", "{}", "[]", '{"job":"../x"}', json.dumps(no_rank), json.dumps(no_time)]
    for number, said in enumerate(wrong):
        other = tmp_path / str(number)
        other.mkdir()
        _, problems = await adopt(other, beside=[make_tools_job(tool=said)])
        assert await kept(other) == (None, None)
        assert "cannot be adopted" in problems[0]


@pytest.mark.parametrize("newest", [0, 1])
async def test_of_several_runs_the_last_belongs_to_the_tool(tmp_path: Path, newest: int) -> None:
    earlier = make_tools_job(
        f"tool.{'b' * 24}", tool=json.dumps(OF | {"asked_at": 4.5}), created="1"
    )
    both = [earlier]
    both.insert(newest, make_tools_job(created="2"))
    _, problems = await adopt(tmp_path, beside=both, spec=SPEC, attempt="1")
    _, tool = await kept(tmp_path)
    assert problems == ()
    assert tool is not None
    assert (tool.run, tool.asked_at) == (RUN, 5.5)


async def test_a_run_is_not_adopted_for_another_owners_job(tmp_path: Path) -> None:
    beside = [make_tools_job(user="eve")]
    record, problems = await adopt(tmp_path, beside=beside, spec=SPEC, attempt="1")
    run, tool = await kept(tmp_path)
    assert (problems, tool) == ((), None)
    assert run is not None
    assert why_unwanted(run, tool, record=record, pods=()) is not None
