"""``/v1/jobs/{id}/…``: more time, a pause, and going on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from typing import Annotated

from aiohttp import web
from pydantic import Field

from controller.api.audit import audit
from controller.api.error_responses import ApiError, or_not_found
from controller.api.operations import Operation
from controller.api.requests import IDEMPOTENCY_KEY, QUOTED_KEY, WHOLE_NUMBER, read_key, read_model
from controller.api.resources.jobs import JobView, view
from controller.api.response_models import Extension
from controller.jobs.spec.parameters import Strict
from controller.jobs.submission.commands import CommandRefused, JobCommands
from controller.store.jobs.job_rows import JobRecord


class ExtendRequest(Strict):
    """Time that is added to the job's."""

    seconds: Annotated[int, Field(ge=1, le=10**9), WHOLE_NUMBER]


class JobWishes:
    """The handlers of the resource."""

    def __init__(self, commands: JobCommands) -> None:
        self._commands = commands

    @Operation(
        "POST",
        "/v1/jobs/{id}/extend",
        "extendJob",
        "Give a job more time",
        body=ExtendRequest,
        answer=Extension,
        headers={IDEMPOTENCY_KEY: QUOTED_KEY},
        errors=("ending", "key_reused", "no_end", "not_offered", "over", "too_long"),
    )
    async def extend(self, request: web.Request) -> web.Response:
        """Add time; simultaneous additions add up, and a call with a known key adds nothing."""
        asked = await read_model(request, ExtendRequest)
        key = read_key(request)
        with _refusals():
            extended = await self._commands.extend(
                request.match_info["id"], seconds=float(asked.seconds), key=key
            )
        extended = or_not_found(extended, "job")
        record = extended.record
        audit(request, "changed", job=record.id)
        shown = Extension(
            id=record.id,
            added=extended.added,
            time_allocation_seconds=record.allocated_seconds or 0.0,
            expires_at=record.expires_at,
        )
        return web.json_response(shown.model_dump(mode="json"))

    @Operation(
        "POST",
        "/v1/jobs/{id}/suspend",
        "suspendJob",
        "Stop a job and keep it",
        answer=JobView,
        statuses=(200, 202),
        errors=("ending", "over"),
    )
    async def suspend(self, request: web.Request) -> web.Response:
        """Have the job stopped, and kept."""
        return await self._wish(request, self._commands.suspend, ("SUSPENDED",))

    @Operation(
        "POST",
        "/v1/jobs/{id}/resume",
        "resumeJob",
        "Let a suspended job go on",
        answer=JobView,
        statuses=(200, 202),
        errors=("ending", "over"),
    )
    async def resume(self, request: web.Request) -> web.Response:
        """Have the job go on."""
        return await self._wish(request, self._commands.resume, ("IN_QUEUE", "RUNNING"))

    async def _wish(
        self,
        request: web.Request,
        wish: Callable[[str], Awaitable[JobRecord | None]],
        done: tuple[str, ...],
    ) -> web.Response:
        with _refusals():
            record = or_not_found(await wish(request.match_info["id"]), "job")
        audit(request, "changed", job=record.id)
        status = 200 if record.state in done else 202
        return web.json_response(view(record), status=status)


@contextmanager
def _refusals() -> Iterator[None]:
    """Answer 409 where the job is not one for which this can be."""
    try:
        yield
    except CommandRefused as error:
        message = str(error)
        raise ApiError(error.code, f"{message[:1].upper()}{message[1:]}.") from None
