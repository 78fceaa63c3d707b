"""``/v1/jobs/{id}/…``: extend, suspend and resume a job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Annotated, Any, TypeAlias

from aiohttp import web
from pydantic import Field

from controller.api.audit import audit
from controller.api.error_responses import or_not_found
from controller.api.operations import operation
from controller.api.parts import ApiParts
from controller.api.requests import IDEMPOTENCY_KEY, QUOTED_KEY, WHOLE_NUMBER, read_key
from controller.api.resources.jobs import JobView, view
from controller.api.response_models import Extension
from controller.jobs.spec.parameters import Strict
from controller.store.jobs.job_rows import JobRecord


class ExtendRequest(Strict):
    """The time to add to the job's allocation."""

    seconds: Annotated[int, Field(ge=1, le=10**9), WHOLE_NUMBER]


@operation(
    "POST",
    "/v1/jobs/{id}/extend",
    "extendJob",
    "Extend a job's time allocation",
    headers={IDEMPOTENCY_KEY: QUOTED_KEY},
    errors=("ending", "key_reused", "no_end", "not_offered", "over", "too_long"),
)
async def extend(api: ApiParts, request: web.Request, body: ExtendRequest) -> Extension:
    """Add time. Concurrent requests add up; a request with a known key adds nothing."""
    key = read_key(request)
    done = await api.commands.extend(request.match_info["id"], seconds=float(body.seconds), key=key)
    record, added = or_not_found(done, "job")
    audit(request, "changed", job=record.id)
    return Extension(
        id=record.id,
        added=added,
        time_allocation_seconds=record.allocated_seconds or 0.0,
        expires_at=record.expires_at,
    )


_Shown: TypeAlias = tuple[Annotated[dict[str, Any], JobView], int]


@operation(
    "POST",
    "/v1/jobs/{id}/suspend",
    "suspendJob",
    "Suspend a job",
    statuses=(200, 202),
    errors=("ending", "over"),
)
async def suspend(api: ApiParts, request: web.Request) -> _Shown:
    """Request that the job is suspended."""
    return await _set_desired(request, api.commands.suspend, _is_suspended)


@operation(
    "POST",
    "/v1/jobs/{id}/resume",
    "resumeJob",
    "Resume a suspended job",
    statuses=(200, 202),
    errors=("ending", "over"),
)
async def resume(api: ApiParts, request: web.Request) -> _Shown:
    """Request that the job is resumed."""
    return await _set_desired(request, api.commands.resume, _continues)


def _is_suspended(record: JobRecord) -> bool:
    return record.state == "SUSPENDED"


def _continues(record: JobRecord) -> bool:
    # A VolcanoJob whose abortion has begun is aborted; the job continues with its next attempt.
    return record.state in ("IN_QUEUE", "RUNNING") and not record.stopping


async def _set_desired(
    request: web.Request,
    command: Callable[[str], Awaitable[JobRecord | None]],
    is_done: Callable[[JobRecord], bool],
) -> _Shown:
    record = or_not_found(await command(request.match_info["id"]), "job")
    audit(request, "changed", job=record.id)
    return view(record), 200 if is_done(record) else 202
