"""Tests when a tool's run begins and ends, as a function of its job, and its pod's spec."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.jobs.pipeline.pipeline import Plan
from controller.jobs.reconcile.lifecycle.next_step import decide
from controller.jobs.reconcile.lifecycle.steps import EndTool, SetOutcome, StartTool, Wait
from controller.jobs.tools.plans import make_tool_job, shape_tool, tool_spec
from controller.jobs.tools.runs import RunOf, describe_run, due_run, run_id, show_tool, why_unwanted
from controller.site.tool_list import Tool
from controller.store.jobs.job_rows import ASKED, JobRecord
from controller.store.jobs.tools import AttachedTool
from tests.controller.samples import (
    UID,
    make_job,
    make_observed,
    make_observed_state,
    make_pipeline,
    make_pod,
    make_record,
)

BOARD = Tool(image="board", command=["board", "--port=6006"], port=6006, ready_path="/ready")
JOB = make_job(replicas=2, parameters={"t": {"type": "secret", "value": "canary"}})
RUNNING = make_record(uid=UID, state="RUNNING", reason=None, message=None, started_at=2.0)


def make_tool(**fields: Any) -> AttachedTool:
    values: dict[str, Any] = {
        "job_id": "j1", "name": "board", "rank": 0, "spec": {}, "shape": {"near": True},
        "charged": {}, "unshared": [], "asked_at": 5.0,
    }  # fmt: skip
    return AttachedTool(**values | fields)


def make_run(tool: AttachedTool, **fields: Any) -> JobRecord:
    due = due_run(replace(tool, run=None), None, job=JOB, record=RUNNING, pods=[make_pod()])
    assert due is not None
    of = describe_run(due, RUNNING)
    return make_record(id=run_id(of), tool=of.model_dump(mode="json"), **fields)


@pytest.mark.parametrize(
    "record",
    [
        {"desired": "suspended"},
        {"desired": "ended"},
        {"renewal": "evicted"},
        {"outcome": "SUCCESS"},
        {"state": "SUCCESS"},
        {"uid": None},
        {"uid": "another"},
    ],
)
def test_a_tool_runs_only_beside_a_pod_of_a_running_attempt(record: Any) -> None:
    tool, other = make_tool(), make_record(**{"uid": UID, "state": "RUNNING"} | record)
    assert due_run(tool, None, job=JOB, record=RUNNING, pods=[make_pod(0)]) is not None
    assert due_run(tool, None, job=JOB, record=other, pods=[make_pod(0)]) is None
    run = make_run(tool)
    tool = make_tool(run=run.id)
    assert why_unwanted(run, tool, record=RUNNING, pods=[make_pod(0)]) is None
    assert why_unwanted(run, tool, record=other, pods=[make_pod(0)]) is not None


@pytest.mark.parametrize(
    "pod", [{"running": False}, {"phase": "Succeeded"}, {"deleting": True}, {"owner_uid": "x"}]
)
def test_a_tool_waits_for_the_container_of_its_rank(pod: Any) -> None:
    pods = [make_pod(0, **pod), make_pod(1)]
    assert due_run(make_tool(), None, job=JOB, record=RUNNING, pods=pods) is None
    assert due_run(make_tool(rank=1), None, job=JOB, record=RUNNING, pods=pods) is not None


def test_a_tool_is_restarted_only_after_its_end_and_beside_another_pod() -> None:
    tool = make_tool()
    run = make_run(tool)
    tool, again = make_tool(run=run.id), [make_pod(0, uid="next")]
    over = make_run(tool, state="FAILURE")
    for last in (over, None):  # the run's record may be deleted before its job's
        assert due_run(tool, last, job=JOB, record=RUNNING, pods=[make_pod(0)]) is None
    assert due_run(tool, run, job=JOB, record=RUNNING, pods=again) is None
    assert due_run(tool, over, job=JOB, record=RUNNING, pods=again) is not None
    asked = make_tool(run=run.id, asked_at=6.0)
    assert due_run(asked, over, job=JOB, record=RUNNING, pods=[make_pod(0)]) is not None


def test_a_tool_run_ends_with_its_pod_its_removal_or_its_job() -> None:
    tool = make_tool()
    run = make_run(tool)
    tool = make_tool(run=run.id)

    def why(tool: AttachedTool | None, record: JobRecord | None, *pods: Any) -> str | None:
        ends = why_unwanted(run, tool, record=record, pods=pods)
        return None if ends is None else ends.reason

    assert why(tool, RUNNING) is None  # a pod that is not shown may only be unseen yet
    assert why(tool, RUNNING, make_pod(0, phase="Succeeded"), make_pod(1)) is None
    assert why(tool, RUNNING, make_pod(0), make_pod(0, uid="next")) == "rank_restarted"
    assert why(None, RUNNING, make_pod(0)) == "removed"
    assert why(make_tool(run="another"), RUNNING, make_pod(0)) == "removed"
    assert why(tool, None, make_pod(0)) == "job_ended"


def test_tools_do_not_delay_their_job() -> None:
    record, pod = RUNNING, make_pod()
    due = due_run(make_tool(), None, job=JOB, record=record, pods=[pod])
    assert due is not None
    seen = make_observed_state(record, make_observed(), pod, due_tools=(due,))
    assert decide(seen) == StartTool(due)
    ends = make_observed_state(record, make_observed("Completed"), pod, due_tools=(due,))
    assert isinstance(decide(ends), SetOutcome)
    run = make_run(make_tool(), uid=UID, state="RUNNING", reason=None, message=None)
    ends = make_observed_state(run, make_observed(), pod, unwanted=ASKED)
    assert decide(ends) == EndTool(ASKED)
    assert decide(make_observed_state(run, make_observed(), pod)) == Wait()


def test_the_status_of_a_tool_is_separate() -> None:
    tool = make_tool()
    waits = make_run(tool, reason="queued", message="no room")
    tool = make_tool(run=waits.id)

    def shown(run: JobRecord | None, record: JobRecord = RUNNING) -> tuple[str, str | None]:
        said = show_tool(tool, run, record)
        return said.state, said.reason

    assert shown(None) == ("WAITING", "rank")
    assert shown(waits) == ("WAITING", "queued")
    assert shown(make_run(tool, state="RUNNING", reason=None)) == ("RUNNING", None)
    ending = {"desired": "ended", "state": "CANCELING", "reason": "attempt_ended"}
    assert shown(make_run(tool, **ending)) == ("ENDING", "attempt_ended")
    back = make_run(tool, state="SUCCESS", reason="attempt_ended")
    assert shown(back) == ("WAITING", "rank")
    assert shown(back, make_record(uid=UID, desired="suspended")) == ("WAITING", "suspended")
    assert shown(back, make_record(state="FAILURE")) == ("ENDED", "job_ended")
    assert shown(make_run(tool, state="FAILURE", reason="exit_code")) == ("ENDED", "exit_code")


async def plan_of(tool: Tool, job: Any = JOB) -> tuple[Plan, RunOf]:
    made = make_tool_job(job, "board", tool)
    due = due_run(make_tool(), None, job=JOB, record=RUNNING, pods=[make_pod()])
    assert due is not None
    shape = {"near": True, "ready_path": tool.ready_path}
    of = describe_run(type(due)(make_tool(shape=shape), due.pod), RUNNING)
    plan = await make_pipeline().plan(made)
    shape_tool(plan, of.model_dump(mode="json"))
    return plan, of


async def test_a_tools_volcano_job_is_owned_by_the_jobs_and_placed_beside_its_rank() -> None:
    plan, of = await plan_of(BOARD)
    made = plan.volcano_job.manifest()
    (owner,) = made["metadata"]["ownerReferences"]
    assert (owner["name"], owner["uid"], "controller" in owner) == ("j-j1", UID, False)
    (task,) = made["spec"]["tasks"]
    spec = task["template"]["spec"]
    (term,) = spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert term["labelSelector"]["matchLabels"] == {
        "fumarole.dev/instance": "test", "fumarole.dev/job": "j1",
        "volcano.sh/task-spec": "job", "volcano.sh/task-index": "0",
    }  # fmt: skip
    (container,) = spec["containers"]
    assert container["startupProbe"]["httpGet"] == {"path": "/ready", "port": 6006}
    assert "tcpSocket" not in container["startupProbe"]
    assert "canary" not in str(made)
    assert made["metadata"]["name"].startswith("t-")
    assert run_id(of) == run_id(RunOf.model_validate_json(of.model_dump_json()))


async def test_a_tool_without_path_is_probed_by_port() -> None:
    plan, _ = await plan_of(BOARD.model_copy(update={"ready_path": None}))
    probe = plan.volcano_job.tasks[0].template.containers[0].startup_probe
    assert probe is not None
    assert probe["tcpSocket"] == {"port": 6006}


def test_a_tool_mounts_only_the_files_of_its_job() -> None:
    parameters = {
        "data": {"type": "directory", "path": "/home/set1", "read_only": True},
        "copy": {"type": "file", "path": "/home/x", "policy": "staged", "size_limit": "1Gi"},
        "model": {"type": "artefacts", "job": "j0", "path": "/home/j0/artefacts"},
        "key": {"type": "secret", "value": "canary"},
        "lic": {"type": "licence", "address": "10.0.0.5", "port": 27000, "key": "canary"},
    }
    job = make_job(
        parameters=parameters, output="/home/run", queue="batch", priority="high", runtime="kata"
    )
    spec = tool_spec(make_tool_job(job, "board", BOARD))
    source = {"type": "file", "path": "/home/x", "read_only": True}
    same = {name: parameters[name] for name in ("data", "model")}
    assert spec["parameters"] == {**same, "copy": source}
    assert (spec["output"], spec["queue"], spec["priority"]) == ("/home/run", "batch", "high")
    assert (spec["runtime"], "id" in spec, "canary" in str(spec)) == ("kata", False, False)
