"""``/v1/usage``: the ledger of resource usage, and its acknowledgement."""

from __future__ import annotations

from typing import Annotated, Self

from aiohttp import web
from pydantic import ConfigDict, Field, model_validator

from controller.api.audit import audit
from controller.api.error_responses import ApiError
from controller.api.operations import operation
from controller.api.parts import ApiParts
from controller.api.requests import (
    DEFAULT_LIMIT,
    MOST_ITEMS,
    WHOLE_NUMBER,
    Limit,
    Number,
    Query,
    is_given,
)
from controller.api.response_models import Acknowledged, UsagePage, UsageView, owner_view
from controller.jobs.spec.field_types import JobId, Name
from controller.jobs.spec.parameters import Strict
from controller.jobs.submission.commands import OwnerFilter
from controller.store.instance import read_store_metadata
from controller.store.outbox.update_rows import Forgotten, read_counter
from controller.store.outbox.usage_entries import UsageEntry, usage_after


class UsageQuery(Query):
    """Selects a page of the ledger."""

    after: Number = 0
    limit: Limit = DEFAULT_LIMIT


class ExhaustedOwner(Strict):
    """Whose jobs end: a project's, or without a project those of a user outside projects.

    The owner of a ledger's entry may be sent as it is: a project pays for all jobs in it.
    """

    model_config = ConfigDict(json_schema_extra={"anyOf": [is_given("user"), is_given("project")]})

    user: Name | None = None
    project: Name | None = None

    @model_validator(mode="after")
    def _says_one(self) -> Self:
        if self.user is None and self.project is None:
            raise ValueError("a user or a project must be given")
        return self


class Exhausted(Strict):
    """An owner or a job that is out of funds."""

    model_config = ConfigDict(json_schema_extra={"oneOf": [is_given("owner"), is_given("job")]})

    owner: ExhaustedOwner | None = None
    job: JobId | None = None

    @model_validator(mode="after")
    def _says_one(self) -> Self:
        if (self.owner is None) == (self.job is None):
            raise ValueError("either an owner or a job must be given")
        return self


class AckRequest(Strict):
    """The last entry that was processed, and the owners and jobs that are out of funds."""

    through: Annotated[int, Field(ge=0, le=2**63 - 1), WHOLE_NUMBER]
    exhausted: Annotated[list[Exhausted], Field(max_length=MOST_ITEMS)] = Field(
        default_factory=list
    )


@operation("GET", "/v1/usage", "readUsage", "Read the usage ledger", errors=("forgotten",))
async def read(api: ApiParts, _request: web.Request, query: UsageQuery) -> UsagePage:
    """Return entries in order. No earlier entry appears after a later one was returned."""
    async with api.store.read() as transaction:
        try:
            entries = await usage_after(transaction, query.after, limit=query.limit)
        except Forgotten as gone:
            text = "Some of these entries have been deleted."
            raise ApiError("forgotten", text, {"through": gone.through}) from None
        return UsagePage(
            ledger=(await read_store_metadata(transaction)).identity,
            items=[_view(one) for one in entries],
            next=entries[-1].id if entries else query.after,
            acknowledged=await read_counter(transaction, "usage_acknowledged"),
        )


@operation(
    "POST",
    "/v1/usage/ack",
    "acknowledgeUsage",
    "Acknowledge usage entries, and name owners and jobs that are out of funds",
    errors=("beyond_the_end",),
)
async def acknowledge(api: ApiParts, request: web.Request, body: AckRequest) -> Acknowledged:
    """Store the acknowledgement and end jobs out of funds. A repeated request changes nothing."""
    owners = [OwnerFilter(one.owner.user, one.owner.project) for one in body.exhausted if one.owner]
    jobs = [one.job for one in body.exhausted if one.job]
    done = await api.commands.acknowledge(body.through, owners=owners, job_ids=jobs)
    if done is None:
        raise ApiError("beyond_the_end")
    if body.exhausted:
        # Each job gets its own audit record when it ends.
        audit(request, "changed", reason="exhausted", count=len(body.exhausted))
    return Acknowledged(through=done[0], ended=done[1])


def _view(entry: UsageEntry) -> UsageView:
    owner = owner_view(entry.owner_user, entry.owner_project)
    same = UsageView.model_fields.keys() - {"job", "owner"}
    values = {name: getattr(entry, name) for name in same}
    return UsageView(job=entry.job_id, owner=owner, **values)
