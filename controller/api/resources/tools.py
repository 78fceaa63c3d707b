"""``/v1/jobs/{id}/tools``: programs such as TensorBoard that are attached to a job."""

from __future__ import annotations

from typing import Annotated

from aiohttp import web
from pydantic import Field

from controller.api.audit import audit
from controller.api.error_responses import or_not_found
from controller.api.operations import operation
from controller.api.parts import ApiParts
from controller.api.requests import WHOLE_NUMBER, Query
from controller.api.response_models import Details, ResponseModel, read_details
from controller.jobs.spec.field_types import ToolName
from controller.jobs.spec.parameters import Strict
from controller.jobs.tools.attachments import ToolView
from controller.jobs.tools.plans import endpoint_of
from controller.jobs.tools.runs import ToolState

Rank = Annotated[int, Field(ge=0, le=2**31 - 1)]


class ToolRequest(Strict):
    """A tool of this deployment, and the rank that it is attached to."""

    tool: ToolName
    rank: Annotated[Rank, WHOLE_NUMBER] = 0


class ToolQuery(Query):
    """Selects the rank if several ranks have the tool."""

    rank: Rank = 0


class ToolAnswer(ResponseModel):
    """A tool of a job, and its state."""

    tool: str
    rank: int
    endpoint: str = Field(description="The endpoint of sessions that lead to the tool.")
    state: ToolState
    reason: str | None = Field(description="A machine-readable code of the tool, not of the job.")
    message: str | None = Field(description="A human-readable message.")
    details: Details | None = Field(default=None, description="Details of the reason.")
    attached_at: float
    started_at: float | None = Field(description="When the current or the last run started.")
    unshared: list[str] = Field(
        description="The job's folders that only its pod has; the tool's own ones are empty."
    )
    product: str | None


class ToolRemoved(ResponseModel):
    """The result of removing a tool."""

    tool: str
    rank: int
    removed: bool = Field(description="False if the tool was not attached.")


@operation(
    "POST",
    "/v1/jobs/{id}/tools",
    "attachTool",
    "Attach a tool to a job",
    statuses=(200, 201),
    errors=("draining", "ending", "over", "plugin_failed"),
)
async def attach(api: ApiParts, request: web.Request, body: ToolRequest) -> tuple[ToolAnswer, int]:
    """Attach a tool. If it is attached already, its state is returned."""
    done = await api.tools.attach(request.match_info["id"], body.tool, rank=body.rank)
    view, new = or_not_found(done, "job")
    if new:
        audit(request, "created", job=view.tool.job_id, rank=body.rank, kind="tool")
    return _shown(view), 201 if new else 200


@operation("GET", "/v1/jobs/{id}/tools", "listTools", "List the tools of a job")
async def find(api: ApiParts, request: web.Request) -> list[ToolAnswer]:
    """Return the tools in the order of their attachment."""
    views = or_not_found(await api.tools.list(request.match_info["id"]), "job")
    return [_shown(one) for one in views]


@operation("GET", "/v1/jobs/{id}/tools/{tool}", "getTool", "Get a tool of a job")
async def show(api: ApiParts, request: web.Request, query: ToolQuery) -> ToolAnswer:
    """Return one tool."""
    job_id, named = request.match_info["id"], request.match_info["tool"]
    return _shown(or_not_found(await api.tools.find(job_id, named, rank=query.rank), "tool"))


@operation("DELETE", "/v1/jobs/{id}/tools/{tool}", "removeTool", "Remove a tool from a job")
async def remove(api: ApiParts, request: web.Request, query: ToolQuery) -> ToolRemoved:
    """Remove one tool. A repeated request changes nothing."""
    job_id, named = request.match_info["id"], request.match_info["tool"]
    removed = or_not_found(await api.tools.remove(job_id, named, rank=query.rank), "job")
    if removed:
        audit(request, "ended", job=job_id, rank=query.rank, kind="tool", reason="removed")
    return ToolRemoved(tool=named, rank=query.rank, removed=removed)


def _shown(view: ToolView) -> ToolAnswer:
    tool, run, shown = view.tool, view.run, view.shown
    # The run may precede the tool's last attachment; its details then belong to another reason.
    details = run.details if run is not None and shown.reason == run.reason else None
    return ToolAnswer(
        tool=tool.name,
        rank=tool.rank,
        endpoint=endpoint_of(tool.name),
        state=shown.state,
        reason=shown.reason,
        message=shown.message,
        details=read_details(details),
        attached_at=tool.asked_at,
        started_at=None if run is None else run.started_at,
        unshared=list(tool.unshared),
        product=tool.charged.get("product"),
    )
