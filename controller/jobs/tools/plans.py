"""The runs of a job's tools: one pod each, planned from a declaration and the job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from controller.jobs.history.job_record import read_known
from controller.jobs.pipeline.pipeline import Pipeline, Plan
from controller.jobs.spec.accepted import public_spec
from controller.jobs.spec.model import Job, ToolJob
from controller.jobs.spec.parameters import (
    COPIED,
    ArtefactsParameter,
    DirectoryParameter,
    FileParameter,
)
from controller.jobs.spec.problems import JobRejected, Problem
from controller.site.job_defaults import JobDefaults
from controller.site.tool_list import Tool
from controller.store.jobs.job_rows import JobRecord
from controller.store.jobs.tools import AttachedTool
from controller.volcano.names import (
    API_VERSION,
    INSTANCE_LABEL,
    JOB_LABEL,
    TASK_INDEX_LABEL,
    TASK_LABEL,
    TOOL_PREFIX,
    volcano_job_name,
)

ENDPOINT_PREFIX: Final = "tool:"
"""Prefix of the endpoint by which a session of the job leads to a tool."""

UNNAMED: Final = f"{TOOL_PREFIX}{'0' * 24}"
"""The identifier of a run before it has one."""

_HOST_NAME: Final = "kubernetes.io/hostname"


def endpoint_of(tool: str) -> str:
    """Return the endpoint of a job's sessions that leads to *tool*."""
    return ENDPOINT_PREFIX + tool


def tool_at(endpoint: str | None) -> str | None:
    """Return the tool to which an endpoint of a job's sessions leads; None: the job itself."""
    if endpoint is None or not endpoint.startswith(ENDPOINT_PREFIX):
        return None
    return endpoint.removeprefix(ENDPOINT_PREFIX)


def make_tool_job(job: Job, name: str, tool: Tool) -> Job:
    """Return the run of *tool* beside *job*, with the job's owner, queue and files.

    Of the job's parameters the run has only the files, neither secrets nor licences. It sees the
    original of a data set that each pod of the job copies.
    """
    files = {
        parameter: _mounted(given)
        for parameter, given in job.parameters.items()
        if isinstance(given, FileParameter | DirectoryParameter | ArtefactsParameter)
    }
    endpoint = {
        "kind": "web",
        "port": tool.port,
        "base_path": tool.base_path,
        "service_workers": tool.service_workers,
    }
    given = {
        "id": UNNAMED,
        "owner": job.owner,
        "name": tool.title or name,
        "image": tool.image,
        "pull_credential": tool.pull_credential,
        "product": tool.product,
        "resources": tool.resources,
        "queue": job.queue,
        "priority": job.priority,
        "runtime": job.runtime,
        "invocation": {"command": tool.command, "environment": tool.environment},
        "parameters": files,
        "output": job.output,
        "network": job.network,
        "interactive": {name: endpoint},
    }
    return ToolJob.model_validate({field: value for field, value in given.items() if value})


def _mounted(
    given: FileParameter | DirectoryParameter | ArtefactsParameter,
) -> FileParameter | DirectoryParameter | ArtefactsParameter:
    if isinstance(given, ArtefactsParameter) or given.policy not in COPIED:
        return given
    return given.model_copy(update={"policy": "direct", "size_limit": None, "read_only": True})


def tool_spec(tool_job: Job) -> dict[str, Any]:
    """Return what is stored with the attached tool: everything but its identifier."""
    spec = public_spec(tool_job)
    del spec["id"]
    return spec


def is_bound_to_node(tool_job: Job, shared_volumes: frozenset[str]) -> bool:
    """Return whether a tool must be on its rank's node, by a volume that one node mounts."""
    return any(file.source.volume not in shared_volumes for file in tool_job.files())


def unshared_folders(plan: Plan, task: str) -> list[str]:
    """Return the folders of the job's program that no other pod sees."""
    template = next(one.template for one in plan.volcano_job.tasks if one.name == task)
    own = {volume.name for volume in template.volumes if "emptyDir" in volume.source}
    mounts = [mount for one in template.containers for mount in one.mounts]
    return sorted({mount.path for mount in mounts if mount.volume in own})


def shape_tool(plan: Plan, tool: Mapping[str, Any]) -> None:
    """Make the VolcanoJob of a run owned by its job's, place it beside its rank, and probe it."""
    made, owner = plan.volcano_job, str(tool["job"])
    # Without ``controller: true``: Volcano's controller must not take it for one of its objects.
    made.owner = {
        "apiVersion": API_VERSION,
        "kind": "Job",
        "name": volcano_job_name(owner),
        "uid": str(tool["uid"]),
    }
    (task,) = made.tasks
    if tool.get("near"):
        labels = {
            INSTANCE_LABEL: made.labels[INSTANCE_LABEL],
            JOB_LABEL: owner,
            TASK_LABEL: str(tool["task"]),
            TASK_INDEX_LABEL: str(tool["index"]),
        }
        term = {"labelSelector": {"matchLabels": labels}, "topologyKey": _HOST_NAME}
        near = {"requiredDuringSchedulingIgnoredDuringExecution": [term]}
        affinity = task.template.more.get("affinity") or {}
        task.template.more["affinity"] = {**affinity, "podAffinity": near}
    path = tool.get("ready_path")
    probe = task.template.containers[0].startup_probe
    if path and probe is not None:
        aimed = {"httpGet": {"path": path, "port": probe["tcpSocket"]["port"]}}
        rest = {name: value for name, value in probe.items() if name != "tcpSocket"}
        task.template.containers[0].startup_probe = {**aimed, **rest}


TryOut = Callable[[Sequence[Plan]], Awaitable[Sequence[Sequence[Problem]]]]
"""Returns the API server's problems with plans."""


@dataclass(frozen=True, slots=True)
class PlannedTool:
    """A tool that a job requests, and the plan of a run of it."""

    tool: AttachedTool
    plan: Plan


class ToolPlans:
    """Plans the runs of tools.

    Args:
        defaults: The declared tools, and the defaults of jobs.
        try_out: Tries plans on the API server; None: no dry runs.
    """

    def __init__(
        self, pipeline: Pipeline, defaults: JobDefaults, *, try_out: TryOut | None = None
    ) -> None:
        self._pipeline = pipeline
        self._try_out = try_out
        self._defaults = defaults
        self.declared = defaults.pods.tools

    async def of_new(self, job: Job, plan: Plan, *, now: float) -> list[PlannedTool]:
        """Return the tools that a submitted job requests, in its order.

        There is no dry run here: a submission tries all of its jobs at once.

        Raises:
            JobRejected: With their problems.
            PluginFailed: If a plugin fails.
        """
        problems = list[Problem]()
        made = list[PlannedTool]()
        for index, name in enumerate(job.tools):
            try:
                made.append(await self._plan(job, plan, name, rank=0, now=now))
            except JobRejected as rejected:
                problems += [one.under(f"tools[{index}]") for one in rejected.problems]
        if problems:
            raise JobRejected(problems)
        return made

    def problems(self, job: Job) -> list[Problem]:
        """Return what is wrong with the names of the tools that *job* requests."""
        names = job.tools
        found = [
            Problem(f"tools[{index}]", "there is no such tool")
            for index, name in enumerate(names)
            if name not in self.declared.tools
        ]
        found += [
            Problem(f"tools[{index}]", "is listed twice")
            for index, name in enumerate(names)
            if name in names[:index]
        ]
        if len(names) > self.declared.most_per_job:
            found.append(Problem("tools", f"at most {self.declared.most_per_job} here"))
        return found

    async def make(self, job: Job, plan: Plan, name: str, *, rank: int, now: float) -> AttachedTool:
        """Return the declared tool *name* at a rank of the job.

        Raises:
            JobRejected: If it cannot be run, with the problems of a plugin or of the API server.
            PluginFailed: If a plugin fails.
        """
        planned = await self._plan(job, plan, name, rank=rank, now=now)
        for problems in await self._try_out([planned.plan]) if self._try_out is not None else ():
            if problems:
                raise JobRejected(problems)
        return planned.tool

    async def _plan(self, job: Job, plan: Plan, name: str, *, rank: int, now: float) -> PlannedTool:
        tool_job = make_tool_job(job, name, self.declared.tools[name])
        namespace = plan.volcano_job.namespace
        made = await self._pipeline.plan(tool_job)
        if made.volcano_job.namespace != namespace:
            # A run is in the namespace of its job. That is final since the acceptance, even if the
            # settings change.
            made = await self._pipeline.plan(tool_job, accepted_in=namespace)
        unshared = unshared_folders(plan, job.task_of(rank) or "")
        tool = make_attached(job, name, rank, self._defaults, now=now, unshared=unshared)
        return PlannedTool(tool, made)

    async def plan_of(self, record: JobRecord) -> tuple[Job, Plan]:
        """Return an accepted job, and its plan.

        Raises:
            JobRejected: If it cannot be planned any more.
            PluginFailed: If a plugin fails.
        """
        job = read_known(record)
        plan = await self._pipeline.plan(job, accepted_in=record.namespace, submitted=True)
        return job, plan


def make_attached(
    job: Job,
    name: str,
    rank: int,
    defaults: JobDefaults,
    *,
    now: float,
    unshared: Sequence[str] = (),
) -> AttachedTool:
    """Return the declared tool *name* as it is attached to a rank of the job."""
    declared = defaults.pods.tools
    tool = declared.tools[name]
    made = make_tool_job(job, name, tool)
    near = is_bound_to_node(made, frozenset(declared.shared_volumes))
    return AttachedTool(
        job_id=job.id,
        name=name,
        rank=rank,
        spec=tool_spec(made),
        shape={"near": near, "ready_path": tool.ready_path},
        charged=defaults.charged_by(made, defaults.pods.catalogue),
        unshared=list(unshared),
        asked_at=now,
    )
