"""``/v1/jobs/{id}/tools``: programs such as TensorBoard that are attached to a job."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Annotated, Literal

from aiohttp import web
from pydantic import Field

from controller.api.audit import audit
from controller.api.error_responses import ApiError, invalid, or_not_found
from controller.api.operations import offered
from controller.api.parts import ApiParts
from controller.api.requests import WHOLE_NUMBER, Query
from controller.api.response_models import Details, ResponseModel, read_details
from controller.jobs.history.job_record import CommandRefused
from controller.jobs.spec.model import ToolName
from controller.jobs.spec.parameters import Strict
from controller.jobs.spec.problems import JobRejected
from controller.jobs.tools.attachments import ToolView
from controller.jobs.tools.plans import endpoint_of

Rank = Annotated[int, Field(ge=0, le=2**31 - 1)]


class ToolRequest(Strict):
    """A tool of the deployment, and the rank beside which it is to run."""

    tool: ToolName
    rank: Annotated[Rank, WHOLE_NUMBER] = 0


class ToolQuery(Query):
    """Which one, where several ranks have the tool."""

    rank: Rank = 0


class ToolAnswer(ResponseModel):
    """A tool of a job, and how it is."""

    tool: str
    rank: int
    endpoint: str = Field(description="What a session of the job and rank names to lead there.")
    state: Literal["WAITING", "RUNNING", "ENDING", "ENDED"]
    reason: str | None = Field(description="A word for programs: the tool's own, not the job's.")
    message: str | None = Field(description="A text for people.")
    details: Details | None = Field(default=None, description="What is known of the reason.")
    attached_at: float
    started_at: float | None = Field(description="When the run that goes on, or the last, began.")
    unshared: list[str] = Field(
        description="Folders of the job that are its pod's own: the tool has others there, empty."
    )
    product: str | None


class ToolRemoved(ResponseModel):
    """The result of removing a tool."""

    tool: str
    rank: int
    removed: bool = Field(description="False where it was not attached.")


@offered(
    "POST",
    "/v1/jobs/{id}/tools",
    "attachTool",
    "Attach a tool to a job",
    statuses=(200, 201),
    errors=("draining", "ending", "over", "plugin_failed"),
)
async def attach(api: ApiParts, request: web.Request, asked: ToolRequest) -> tuple[ToolAnswer, int]:
    """Attach a tool; one that is attached already is answered as it is."""
    with _refusals():
        done = await api.tools.attach(request.match_info["id"], asked.tool, rank=asked.rank)
    view, new = or_not_found(done, "job")
    if new:
        audit(request, "created", job=view.tool.job_id, rank=asked.rank, kind="tool")
    return _shown(view), 201 if new else 200


@offered("GET", "/v1/jobs/{id}/tools", "listTools", "Look at the tools of a job")
async def find(api: ApiParts, request: web.Request) -> list[ToolAnswer]:
    """Show the tools in the order in which they were attached."""
    views = or_not_found(await api.tools.list(request.match_info["id"]), "job")
    return [_shown(one) for one in views]


@offered("GET", "/v1/jobs/{id}/tools/{tool}", "getTool", "Look at a tool of a job")
async def show(api: ApiParts, request: web.Request, wanted: ToolQuery) -> ToolAnswer:
    """Show one tool."""
    job_id, named = request.match_info["id"], request.match_info["tool"]
    return _shown(or_not_found(await api.tools.find(job_id, named, rank=wanted.rank), "tool"))


@offered("DELETE", "/v1/jobs/{id}/tools/{tool}", "removeTool", "Remove a tool from a job")
async def remove(api: ApiParts, request: web.Request, wanted: ToolQuery) -> ToolRemoved:
    """Remove one tool; again changes nothing."""
    job_id, named = request.match_info["id"], request.match_info["tool"]
    removed = or_not_found(await api.tools.remove(job_id, named, rank=wanted.rank), "job")
    if removed:
        audit(request, "ended", job=job_id, rank=wanted.rank, kind="tool", reason="removed")
    return ToolRemoved(tool=named, rank=wanted.rank, removed=removed)


@contextmanager
def _refusals() -> Iterator[None]:
    """Answer 422 where a tool cannot be run as asked, 409 or 503 where it cannot be now."""
    try:
        yield
    except JobRejected as rejected:
        raise invalid(rejected.problems) from None
    except CommandRefused as error:
        message = str(error)
        raise ApiError(error.code, f"{message[:1].upper()}{message[1:]}.") from None


def _shown(view: ToolView) -> ToolAnswer:
    tool, run, shown = view.tool, view.run, view.shown
    # Details go with their reason: the run may be one before the tool was asked for again.
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
