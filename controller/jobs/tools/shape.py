"""What is run for a tool of a job: one pod, made of its declaration and of the job. No I/O."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from controller.jobs.pipeline.pipeline import Plan
from controller.jobs.spec.accepted import public_spec
from controller.jobs.spec.model import Job, ToolJob
from controller.jobs.spec.parameters import (
    COPIED,
    ArtefactsParameter,
    DirectoryParameter,
    FileParameter,
)
from controller.jobs.spec.storage.files import files_of
from controller.site.tool_list import Tool
from controller.volcano.manifest import API_VERSION
from controller.volcano.names import INSTANCE_LABEL, JOB_LABEL, TOOL_PREFIX, volcano_job_name
from controller.volcano.observed import TASK_INDEX_LABEL, TASK_LABEL

ENDPOINT_PREFIX: Final = "tool:"
"""Of the endpoint by which a session of the job leads to a tool."""

UNNAMED: Final = f"{TOOL_PREFIX}{'0' * 24}"
"""Stands for the identifier of a run before there is one."""

_HOST_NAME: Final = "kubernetes.io/hostname"


def endpoint_of(tool: str) -> str:
    """Return the endpoint of a job's sessions that leads to *tool*."""
    return ENDPOINT_PREFIX + tool


def tool_at(endpoint: str | None) -> str | None:
    """Return the tool to which an endpoint of a job's sessions leads; None: to the job itself."""
    if endpoint is None or not endpoint.startswith(ENDPOINT_PREFIX):
        return None
    return endpoint.removeprefix(ENDPOINT_PREFIX)


def make_tool_job(job: Job, name: str, tool: Tool) -> Job:
    """Return what is run for *tool* beside *job*: its owner's, in its queue, with its files.

    Of the job's parameters it has the files alone: neither secrets nor licences. What each of the
    job's pods has a copy of, it sees where the copy was made from.
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
    """Return what is kept of it with the attached tool: everything but its identifier."""
    spec = public_spec(tool_job)
    del spec["id"]
    return spec


def is_bound_to_node(tool_job: Job, shared_volumes: frozenset[str]) -> bool:
    """Say whether a tool must be on its rank's node: it mounts what only one node can."""
    return any(file.source.volume not in shared_volumes for file in files_of(tool_job))


def unshared_folders(plan: Plan, task: str) -> list[str]:
    """Return the folders of the job's program that are its pod's own: no other pod sees them."""
    template = next(one.template for one in plan.volcano_job.tasks if one.name == task)
    own = {volume.name for volume in template.volumes if "emptyDir" in volume.source}
    mounts = [mount for one in template.containers for mount in one.mounts]
    return sorted({mount.path for mount in mounts if mount.volume in own})


def shape_tool(plan: Plan, tool: Mapping[str, Any]) -> None:
    """Have the VolcanoJob of a run go with its job's, be placed beside its rank, and be probed."""
    made, owner = plan.volcano_job, str(tool["job"])
    # No controller reference: Volcano's own controller must not take it for one of its objects.
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
