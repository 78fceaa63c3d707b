"""``/v1/batches``: submit, show, list and end the jobs of one template."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final, TypeAlias

from aiohttp import web
from pydantic import Field, ValidationError

from controller.api.audit import audit
from controller.api.error_responses import ApiError, invalid, or_not_found, problems_json
from controller.api.operations import operation
from controller.api.parts import ApiParts
from controller.api.requests import (
    DEFAULT_LIMIT,
    WHOLE,
    Limit,
    Number,
    PageCursor,
    Query,
    Word,
    read_object,
    read_place,
)
from controller.api.resources.jobs import (
    ProblemView,
    audit_submitted,
    read_job,
    refuse_all,
)
from controller.api.response_models import ResponseModel, owner_view
from controller.jobs.history.job_record import State
from controller.jobs.spec.model import Job, Owner
from controller.jobs.spec.problems import JobRejected, Problem, problems_of
from controller.jobs.submission.accept import BatchExists, NewBatch
from controller.jobs.submission.batch_template import (
    MOST_ITEMS,
    BatchRequest,
    Item,
    Template,
    TooLarge,
    items_in,
)
from controller.jobs.submission.checking import Mode, Result, SubmissionResult
from controller.loop_turn import LoopTurn
from controller.store.database import Transaction
from controller.store.jobs.batches import (
    BatchItem,
    BatchRecord,
    batch_counts,
    batch_items,
    find_batch,
    newest_batches,
)
from controller.store.jobs.job_rows import FINAL_STATES

MOST_BATCHES: Final = 100
"""Per page: the jobs of each batch are counted, and there can be a thousand."""
_LONGEST_ID: Final = 40


class BatchesQuery(Query):
    """Selects batches, and a page of them."""

    user: Word | None = None
    project: Word | None = None
    after: PageCursor = Field(default="", description="`next` of the previous page.")
    limit: Annotated[int, Field(ge=1, le=MOST_BATCHES), WHOLE] = MOST_BATCHES


class ItemsQuery(Query):
    """Selects a page of a batch's items."""

    after: Number | None = Field(default=None, description="`next` of the previous page.")
    limit: Limit = DEFAULT_LIMIT


class BatchView(ResponseModel):
    """A batch, and its jobs counted by state."""

    id: str
    owner: dict[str, str]
    mode: Mode
    created_at: float
    size: int = Field(description="The number of items in the request.")
    jobs: int = Field(description="The number of items that are jobs.")
    rejected: int = Field(description="The number of items that were not accepted.")
    counts: dict[str, int] = Field(
        description="The jobs by state. A job whose record is deleted counts by its last state."
    )
    over: bool = Field(description="Whether all jobs have ended.")


class BatchItemView(ResponseModel):
    """One item of a batch: its variables, and its job."""

    index: int
    id: str | None = Field(description="The job's id.")
    parameters: dict[str, Any] = Field(description="The item's variables.")
    result: Result = Field(
        description="The result of the request. `unchanged`: the job existed already."
    )
    problems: list[ProblemView] | None = None
    state: State | None = Field(
        default=None, description="The job's state; the last one if its record is deleted."
    )


class NewBatchView(BatchView):
    """A batch, and the result of each of its items, in order."""

    results: list[BatchItemView]


class BatchPage(ResponseModel):
    """A page of batches."""

    items: list[BatchView]
    next: str | None = Field(description="`after` of the next page; None on the last one.")


class BatchItemPage(ResponseModel):
    """A page of a batch's items, in order."""

    items: list[BatchItemView]
    next: int | None = Field(description="`after` of the next page; None on the last one.")


_Shown: TypeAlias = Annotated[dict[str, Any], BatchView]


@operation(
    "POST",
    "/v1/batches",
    "submitBatch",
    "Submit a batch",
    body=BatchRequest,
    statuses=(201, 200),
    errors=("conflict", "draining", "not_found", "plugin_failed"),
)
async def submit(
    api: ApiParts, request: web.Request
) -> tuple[Annotated[dict[str, Any], NewBatchView], int]:
    """Create the jobs of a batch. A repeated request creates none."""
    body, template = await _read(request)
    stored = body.body()
    async with api.store.read() as transaction:
        known = await find_batch(transaction, body.id)
    if known is not None:
        return await _replay(api, known, stored)
    items, jobs = await _make_jobs(body, template)
    batch = NewBatch(
        id=body.id,
        owner=_owner_of(jobs),
        body=stored,
        parameters=[one.parameters for one in items],
        job_ids=[_id_of(one) for one in items],
    )
    try:
        results = await api.submissions.submit(jobs, body.mode, batch=batch)
    except BatchExists as there:  # a concurrent request created it
        return await _replay(api, there.record, stored)
    if body.mode == "atomic" or not any(one.accepted for one in results):
        _refuse(results, batch)
    await audit_submitted(request, results)
    return await _with_results(api, body.id), 201


@operation("GET", "/v1/batches", "listBatches", "List batches")
async def find(
    api: ApiParts, _request: web.Request, query: BatchesQuery
) -> Annotated[dict[str, Any], BatchPage]:
    """List batches, newest first, a page at a time."""
    place = read_place(query.after)
    async with api.store.read() as transaction:
        records, last = await newest_batches(
            transaction, user=query.user, project=query.project, after=place, limit=query.limit
        )
        shown = await _views(transaction, records)
    return {"items": shown, "next": None if last is None else str(last)}


@operation("GET", "/v1/batches/{batch}", "getBatch", "Get a batch")
async def show(api: ApiParts, request: web.Request) -> _Shown:
    """Return one batch."""
    async with api.store.read() as transaction:
        (shown,) = await _views(transaction, [await _found(transaction, request)])
    return shown


@operation("GET", "/v1/batches/{batch}/items", "listBatchItems", "List a batch's items")
async def show_items(
    api: ApiParts, request: web.Request, query: ItemsQuery
) -> Annotated[dict[str, Any], BatchItemPage]:
    """Return the items of one batch, in order, a page at a time."""
    after = -1 if query.after is None else query.after
    async with api.store.read() as transaction:
        record = await _found(transaction, request)
        items = await batch_items(
            transaction, record.id, after=min(after, MOST_ITEMS), limit=query.limit + 1
        )
    page = items[: query.limit]
    following = page[-1].index if len(items) > query.limit else None
    return {"items": [_item_view(one) for one in page], "next": following}


@operation(
    "DELETE",
    "/v1/batches/{batch}",
    "endBatch",
    "End the jobs of a batch and keep their records",
    statuses=(200, 202),
)
async def end(api: ApiParts, request: web.Request) -> tuple[_Shown, int]:
    """End the jobs of a batch. A repeated request changes nothing."""
    async with api.store.read() as transaction:
        record = await _found(transaction, request)
    ended = await api.commands.end_batch(record.id)
    turn = LoopTurn()
    for job_id in ended:
        audit(request, "ended", job=job_id, reason="asked")
        await turn.rest()
    shown = await show(api, request)
    return shown, 200 if shown["over"] else 202


async def _found(transaction: Transaction, request: web.Request) -> BatchRecord:
    return or_not_found(await find_batch(transaction, request.match_info["batch"]), "batch")


async def _replay(api: ApiParts, record: BatchRecord, body: str) -> tuple[dict[str, Any], int]:
    if not api.submissions.is_same(record, body):
        details = {"problems": problems_json([Problem("id", "this id belongs to another batch")])}
        text = "This id belongs to another batch; nothing was changed."
        raise ApiError("conflict", text, details)
    return await _with_results(api, record.id, replayed=True), 200


async def _with_results(api: ApiParts, batch_id: str, *, replayed: bool = False) -> dict[str, Any]:
    async with api.store.read() as transaction:
        record = or_not_found(await find_batch(transaction, batch_id), "batch")
        (shown,) = await _views(transaction, [record])
        items = await batch_items(transaction, batch_id, after=-1, limit=MOST_ITEMS)
    return shown | {"results": [_item_view(one, replayed=replayed) for one in items]}


async def _read(request: web.Request) -> tuple[BatchRequest, Template]:
    content = await read_object(request)
    if items_in(content) > MOST_ITEMS:
        raise ApiError("too_large", f"A batch must have at most {MOST_ITEMS} items.")
    try:
        body = BatchRequest.model_validate(content)
        if problems := list(body.data_problems()):
            raise invalid(problems)
        return body, Template(body.template, body.names())
    except ValidationError as error:
        raise invalid(problems_of(error)) from None


async def _make_jobs(
    body: BatchRequest, template: Template
) -> tuple[list[Item], list[Job | JobRejected]]:
    items, jobs, turn = list[Item](), list[Job | JobRejected](), LoopTurn()
    try:
        for item in template.expand(body.id, body.variables()):
            items.append(item)
            jobs.append(read_job(body.inherit(item.job)))
            await turn.rest()
    except TooLarge as error:
        raise ApiError("too_large", str(error)) from None
    return items, jobs


def _owner_of(jobs: Sequence[Job | JobRejected]) -> Owner:
    """Return the common owner of the valid *jobs*.

    Raises:
        ApiError: 422 if they have several owners, or if no job is valid.
    """
    owners = list(dict.fromkeys(one.owner for one in jobs if isinstance(one, Job)))
    if len(owners) > 1:
        raise invalid([Problem("template.owner", "all jobs of a batch must have the same owner")])
    if not owners:
        problems = [one.problems if isinstance(one, JobRejected) else () for one in jobs]
        raise invalid(_named(problems))
    return owners[0]


def _refuse(results: Sequence[SubmissionResult], batch: NewBatch) -> None:
    """Raise the error for a batch of which no job was created.

    Raises:
        ApiError: 422 if a job is invalid, else 409.
    """
    wrong = [one.problems if one.result == "rejected" else () for one in results]
    details = {
        "items": [
            {"index": index, "id": one.id or batch.job_ids[index], "parameters": given}
            for index, (one, given) in enumerate(zip(results, batch.parameters, strict=True))
            if not one.accepted
        ]
    }
    if any(wrong):
        raise invalid(_named(wrong), details)
    refuse_all(results)


def _named(problems: Sequence[Sequence[Problem]]) -> list[Problem]:
    """Return the problems of all items with their paths; a problem of every item only once."""
    shared = set(problems[0]).intersection(*problems) if len(problems) > 1 else set()
    found = [one.under("template") for one in problems[0] if one in shared]
    return found + [
        one.under(f"items[{index}]")
        for index, some in enumerate(problems)
        for one in some
        if one not in shared
    ]


async def _views(transaction: Transaction, records: Sequence[BatchRecord]) -> list[dict[str, Any]]:
    counts = await batch_counts(transaction, [one.id for one in records])
    return [_view_of(one, counts[one.id]) for one in records]


def _view_of(record: BatchRecord, counts: Mapping[str, int]) -> dict[str, Any]:
    return {
        "id": record.id,
        "owner": owner_view(record.owner_user, record.owner_project),
        "mode": record.mode,
        "created_at": record.created_at,
        "size": record.items,
        "jobs": record.jobs,
        "rejected": record.items - record.jobs,
        "counts": dict(sorted(counts.items())),
        "over": counts.keys() <= set(FINAL_STATES),
    }


def _item_view(item: BatchItem, *, replayed: bool = False) -> dict[str, Any]:
    is_job = item.result in ("created", "unchanged")
    shown: dict[str, Any] = {
        "index": item.index,
        "id": item.job_id,
        "parameters": item.parameters,
        "result": "unchanged" if replayed and is_job else item.result,
        "state": item.state,
    }
    return shown | ({"problems": item.problems} if item.problems else {})


def _id_of(item: Item) -> str | None:
    given = item.job.get("id")
    return given if isinstance(given, str) and len(given) <= _LONGEST_ID else None
