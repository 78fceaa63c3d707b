"""``/v1/jobs/{id}/…``: more time, a pause, and going on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Annotated, Any, TypeAlias

from aiohttp import web
from pydantic import Field

from controller.api.audit import audit
from controller.api.error_responses import ApiError, or_not_found
from controller.api.operations import offered
from controller.api.parts import ApiParts
from controller.api.requests import IDEMPOTENCY_KEY, QUOTED_KEY, WHOLE_NUMBER, read_key
from controller.api.resources.jobs import JobView, view
from controller.api.response_models import Extension
from controller.jobs.history.job_record import CommandRefused
from controller.jobs.spec.parameters import Strict
from controller.store.jobs.job_rows import JobRecord


class ExtendRequest(Strict):
    """Time that is added to the job's."""

    seconds: Annotated[int, Field(ge=1, le=10**9), WHOLE_NUMBER]


@offered(
    "POST",
    "/v1/jobs/{id}/extend",
    "extendJob",
    "Give a job more time",
    headers={IDEMPOTENCY_KEY: QUOTED_KEY},
    errors=("ending", "key_reused", "no_end", "not_offered", "over", "too_long"),
)
async def extend(api: ApiParts, request: web.Request, asked: ExtendRequest) -> Extension:
    """Add time; simultaneous additions add up, and a call with a known key adds nothing."""
    key = read_key(request)
    with _refusals():
        extended = await api.commands.extend(
            request.match_info["id"], seconds=float(asked.seconds), key=key
        )
    extended = or_not_found(extended, "job")
    record = extended.record
    audit(request, "changed", job=record.id)
    return Extension(
        id=record.id,
        added=extended.added,
        time_allocation_seconds=record.allocated_seconds or 0.0,
        expires_at=record.expires_at,
    )


_Shown: TypeAlias = tuple[Annotated[dict[str, Any], JobView], int]


@offered(
    "POST",
    "/v1/jobs/{id}/suspend",
    "suspendJob",
    "Stop a job and keep it",
    statuses=(200, 202),
    errors=("ending", "over"),
)
async def suspend(api: ApiParts, request: web.Request) -> _Shown:
    """Have the job stopped, and kept."""
    return await _wish(request, api.commands.suspend, ("SUSPENDED",))


@offered(
    "POST",
    "/v1/jobs/{id}/resume",
    "resumeJob",
    "Let a suspended job go on",
    statuses=(200, 202),
    errors=("ending", "over"),
)
async def resume(api: ApiParts, request: web.Request) -> _Shown:
    """Have the job go on."""
    return await _wish(request, api.commands.resume, ("IN_QUEUE", "RUNNING"))


async def _wish(
    request: web.Request,
    wish: Callable[[str], Awaitable[JobRecord | None]],
    done: tuple[str, ...],
) -> _Shown:
    with _refusals():
        record = or_not_found(await wish(request.match_info["id"]), "job")
    audit(request, "changed", job=record.id)
    return view(record), 200 if record.state in done else 202


@contextmanager
def _refusals() -> Iterator[None]:
    """Answer 409 where the job is not one for which this can be."""
    try:
        yield
    except CommandRefused as error:
        message = str(error)
        raise ApiError(error.code, f"{message[:1].upper()}{message[1:]}.") from None
