"""When a tool of a job runs, when its run ends, and how it is shown. No I/O.

A run observes one pod of the job: the one at its rank. It begins once that pod's program runs. It
ends with the job's attempt, when the tool is removed, or when another pod takes the rank, since the
volumes of that pod may have to move to another node. It never begins before the previous run has
ended.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from hashlib import sha256
from typing import Annotated, Final, Literal

from pydantic import BaseModel, ConfigDict, Field

from controller.jobs.history.pod_records import pod_at
from controller.jobs.spec.field_types import JobId, ToolName
from controller.jobs.spec.model import Job
from controller.store.jobs.job_rows import JobRecord, RequestedEnd
from controller.store.jobs.tools import AttachedTool
from controller.volcano.names import TOOL_PREFIX
from controller.volcano.observed import ObservedPod

ToolState = Literal["WAITING", "RUNNING", "ENDING", "ENDED"]

_JOB_ENDED: Final = RequestedEnd("SUCCESS", "job_ended", "its job has ended")
_ATTEMPT_ENDED: Final = RequestedEnd(
    "SUCCESS", "attempt_ended", "the attempt of its job has ended; it comes back with the next one"
)
_RANK_RESTARTED: Final = RequestedEnd(
    "SUCCESS", "rank_restarted", "its rank began again; it comes back once that runs"
)
REMOVED: Final = RequestedEnd("SUCCESS", "removed", "it was removed")
_COMES_BACK: Final = frozenset({_ATTEMPT_ENDED.reason, _RANK_RESTARTED.reason})


class RunOf(BaseModel):
    """The origin of a run: stored with its record, and with its VolcanoJob for a lost store.

    ``uid`` is the VolcanoJob of the job's attempt; ``pod`` is the pod at the rank, by its ``task``
    and ``index``. Fields of a newer version are dropped.
    """

    model_config = ConfigDict(frozen=True)

    job: JobId
    name: ToolName
    rank: Annotated[int, Field(ge=0, le=2**31 - 1)]
    asked_at: Annotated[float, Field(allow_inf_nan=False)]
    uid: str
    pod: str
    task: str
    index: int
    unshared: list[str] = []
    near: bool = False
    ready_path: str | None = None


@dataclass(frozen=True, slots=True)
class DueRun:
    """A tool that is due to run beside a pod of its job."""

    tool: AttachedTool
    pod: ObservedPod


def goes_on(job: JobRecord) -> bool:
    """Return whether the job's attempt continues, as far as is decided."""
    ends = job.is_final or job.outcome is not None or job.desired != "run"
    return not ends and job.renewal is None and job.uid is not None


def due_run(
    tool: AttachedTool,
    last: JobRecord | None,
    *,
    job: Job,
    record: JobRecord,
    pods: Iterable[ObservedPod],
) -> DueRun | None:
    """Return the run that is due now; None if there is none, or if the *last* run is not over.

    A run that has ended by itself is not repeated beside the same pod.
    """
    if not goes_on(record) or (last is not None and not last.is_final):
        return None
    pod = pod_at(tool.rank, job=job, record=record, pods=pods)
    if pod is None or pod.phase != "Running" or not pod.running:
        return None
    due = DueRun(tool, pod)
    return None if run_id(describe_run(due, record)) == tool.run else due


def why_unwanted(
    run: JobRecord,
    tool: AttachedTool | None,
    *,
    record: JobRecord | None,
    pods: Iterable[ObservedPod],
) -> RequestedEnd | None:
    """Return the reason why the run must end; None if it may continue.

    Args:
        run: The run's record.
        tool: Its tool, if it is still attached.
        record: The job's record, if there is one.
        pods: The observed pods of the job. A pod that is missing here may exist all the same.
    """
    of_run = run.tool or {}
    if record is None or record.is_final or record.outcome is not None or record.desired == "ended":
        return _JOB_ENDED
    if not goes_on(record) or record.uid != of_run.get("uid"):
        return _ATTEMPT_ENDED
    if tool is None or tool.run != run.id:
        return REMOVED
    place = of_run.get("task"), of_run.get("index")
    others = (pod for pod in pods if (pod.task, pod.index) == place)
    restarted = any(
        pod.owner_uid == record.uid and pod.uid != of_run.get("pod") and not pod.deleting
        for pod in others
    )
    return _RANK_RESTARTED if restarted else None


def describe_run(due: DueRun, record: JobRecord) -> RunOf:
    """Return the origin of the run that begins now."""
    tool, pod = due.tool, due.pod
    return RunOf(
        job=record.id,
        name=tool.name,
        rank=tool.rank,
        asked_at=tool.asked_at,
        uid=record.uid or "",
        pod=pod.uid,
        task=pod.task,
        index=pod.index,
        unshared=list(tool.unshared),
        near=bool(tool.shape.get("near")),
        ready_path=tool.shape.get("ready_path"),
    )


def run_id(of: RunOf) -> str:
    """Return the identifier of a run: the same for the same tool beside the same pod."""
    parts = (of.job, of.name, of.rank, of.asked_at, of.uid, of.pod)
    digest = sha256("\n".join(map(repr, parts)).encode()).hexdigest()
    return f"{TOOL_PREFIX}{digest[:24]}"


@dataclass(frozen=True, slots=True)
class ShownTool:
    """The state of a tool, and why."""

    state: ToolState
    reason: str | None
    message: str | None


def show_tool(tool: AttachedTool, run: JobRecord | None, record: JobRecord) -> ShownTool:
    """Return the state of the tool; *run* is its last run, *record* its job."""
    if run is not None and (run.tool or {}).get("asked_at") != tool.asked_at:
        run = None
    if run is not None and not run.is_final:
        return _living(run)
    if record.is_final or record.outcome is not None or record.desired == "ended":
        return ShownTool("ENDED", _JOB_ENDED.reason, _JOB_ENDED.message)
    if run is not None and run.reason not in _COMES_BACK:
        return ShownTool("ENDED", run.reason, run.message)
    if record.desired == "suspended":
        return ShownTool("WAITING", "suspended", "waits until its job goes on")
    return ShownTool("WAITING", "rank", f"waits until rank {tool.rank} runs")


def _living(run: JobRecord) -> ShownTool:
    if run.desired == "ended" or run.outcome is not None:
        reason = run.reason if run.outcome is None else run.end_reason
        message = run.message if run.outcome is None else run.end_message
        return ShownTool("ENDING", reason, message)
    state: ToolState = "RUNNING" if run.state == "RUNNING" else "WAITING"
    return ShownTool(state, run.reason, run.message)
