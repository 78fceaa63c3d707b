"""``/v1/jobs``: submit, show, list and end jobs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Annotated, Any, Literal, TypeAlias, get_args

from aiohttp import web
from pydantic import ConfigDict, Field, ValidationError

from controller.api.audit import AUDIT, audit
from controller.api.error_responses import ApiError, invalid, or_not_found, problems_json
from controller.api.operations import operation
from controller.api.parts import ApiParts
from controller.api.requests import (
    DEFAULT_LIMIT,
    MOST_ITEMS,
    Limit,
    Query,
    Time,
    Word,
    read_place,
)
from controller.api.response_models import (
    Exit,
    JobState,
    PluginFailure,
    ResponseModel,
    Retry,
    owner_view,
    read_details,
)
from controller.jobs.history.job_record import State, read_known
from controller.jobs.history.pod_records import exits_of
from controller.jobs.history.retries import explain_retries, policies_of, used_retries
from controller.jobs.spec.field_types import JobId, Name
from controller.jobs.spec.model import Job
from controller.jobs.spec.parameters import Strict
from controller.jobs.spec.problems import JobRejected, Problem, problems_of
from controller.jobs.submission.checking import Mode, Result, SubmissionResult
from controller.jobs.submission.commands import asked_by
from controller.loop_turn import LoopTurn
from controller.site.job_defaults import JobDefaults
from controller.store.database import Transaction
from controller.store.jobs.batches import find_item
from controller.store.jobs.hook_failures import hook_failures_of
from controller.store.jobs.job_lists import JobFilter, Order, list_jobs
from controller.store.jobs.job_rows import Desired, JobRecord, find_job
from controller.store.jobs.progress import pod_records_of, retries_within
from controller.store.jobs.totals import QueuePlace, queue_place
from controller.store.paging import Key


class SubmitRequest(Strict):
    """Jobs to run: all or none (``atomic``), or each independently (``best_effort``)."""

    mode: Mode = "atomic"
    # Validated one by one, so that an invalid item of a best-effort request affects no other.
    items: Annotated[list[Any], Field(min_length=1, max_length=MOST_ITEMS)]


class TerminateRequest(Strict):
    """Jobs to end."""

    items: Annotated[list[JobId], Field(min_length=1, max_length=MOST_ITEMS)]
    by: Name | None = Field(default=None, description="Who ends the jobs: shown and stored.")


class EndQuery(Query, extra="ignore"):
    """On whose behalf a job is ended. Unknown parameters never prevent a job from ending."""

    by: Name | None = Field(default=None, description="Who ends the job: shown and stored.")


class JobsQuery(Query):
    """Selects jobs, and a page of them."""

    user: Word | None = None
    project: Word | None = None
    state: list[State] = Field(default_factory=list)
    label: list[Annotated[str, Field(pattern=r"^[^=\x00]+=[^\x00]*$")]] = Field(
        default_factory=list
    )
    kind: Word | None = None
    batch: Word | None = None
    since: Time | None = Field(
        default=None, description="Only jobs submitted at or after this time."
    )
    order: Order = Field(default="id", description="`newest`: by submission time, latest first.")
    after: Word = Field(default="", description="`next` of the previous page in the same order.")
    limit: Limit = DEFAULT_LIMIT

    def place(self) -> Key | None:
        """Return the job after which the page begins.

        Raises:
            ApiError: 422 if ``after`` is not a position in this order.
        """
        if self.order == "newest":
            return read_place(self.after)
        return Key(0.0, self.after) if self.after else None

    def filter(self) -> JobFilter:
        """Return the filter for the store."""
        pairs = [label.partition("=") for label in self.label]
        return JobFilter(
            user=self.user,
            project=self.project,
            states=tuple(self.state),
            labels=tuple((name, value) for name, _, value in pairs),
            kind=self.kind,
            batch=self.batch,
            since=self.since,
        )


class JobView(JobState):
    """The job as it was submitted, without secret values, and its state."""

    model_config = ConfigDict(extra="allow", frozen=True)

    id: str = Field(description="The job's id, chosen by the orchestrator.")
    owner: dict[str, str] = Field(description="The job's owner.")
    labels: dict[str, str] = Field(description="Labels that jobs can be selected by.")


class QueueEstimate(ResponseModel):
    """The job's estimated position in its queue: by priority, then by age."""

    ahead: int = Field(description="Jobs that are likely to start earlier.")
    ahead_of_higher_priority: int = Field(description="Those of them with a higher priority.")
    waiting: int = Field(description="All jobs that wait in the queue, including this one.")


class BatchPlace(ResponseModel):
    """The job's item in its batch, and the variables of that item."""

    index: int
    parameters: dict[str, Any]


class JobDetails(JobView):
    """A job with its queue position, its retry policies and its failed hooks."""

    queue_position: int | None = Field(description="1 is next; None if it is not known.")
    queue_estimate: QueueEstimate | None = Field(default=None, description="The jobs ahead.")
    exits: list[Exit] = Field(description="How each rank ended, once the job is final.")
    retry: Retry
    batch_item: BatchPlace | None = Field(default=None, description="None if the job has no batch.")
    plugin_failures: list[PluginFailure] = Field(
        default_factory=list, description="Plugin hooks that failed and have not succeeded since."
    )


class JobPage(ResponseModel):
    """A page of jobs."""

    items: list[JobView]
    next: str | None = Field(
        description="`after` of the next page; None on the last one. A page need not be full."
    )


class ProblemView(ResponseModel):
    """One problem, and its path."""

    path: str
    message: str


class SubmitResult(ResponseModel):
    """The result of one job of the request."""

    id: str | None
    result: Result
    problems: list[ProblemView] | None = None


class TerminateResult(ResponseModel):
    """The state of one job of the request."""

    id: str
    result: Literal["not_found"] | State


_Shown: TypeAlias = Annotated[dict[str, Any], JobView]


@operation(
    "POST",
    "/v1/jobs",
    "submitJobs",
    "Submit jobs",
    errors=("conflict", "draining", "plugin_failed"),
)
async def submit(
    api: ApiParts, request: web.Request, body: SubmitRequest
) -> list[Annotated[dict[str, Any], SubmitResult]]:
    """Accept jobs; one result for each, in order."""
    jobs, turn = list[Job | JobRejected](), LoopTurn()
    for item in body.items:
        jobs.append(read_job(item))
        await turn.rest()
    results = await api.submissions.submit(jobs, body.mode)
    if body.mode == "atomic":
        refuse_all(results)
    await audit_submitted(request, results)
    return [_result(item, one) for item, one in zip(body.items, results, strict=True)]


async def audit_submitted(request: web.Request, results: Sequence[SubmissionResult]) -> None:
    """Write audit records of the created and the refused jobs."""
    turn = LoopTurn()
    for one in results:
        if one.result == "created":
            audit(request, "created", job=one.id)
        elif not one.accepted:
            request.app[AUDIT].refused(request, one.result, job=one.id)
        await turn.rest()


@operation("GET", "/v1/jobs", "listJobs", "List jobs")
async def find(
    api: ApiParts, _request: web.Request, query: JobsQuery
) -> Annotated[dict[str, Any], JobPage]:
    """List jobs by id or newest first, a page at a time."""
    order, place = query.order, query.place()
    async with api.store.read() as transaction:
        records, last = await list_jobs(
            transaction, query.filter(), after=place, limit=query.limit, order=order
        )
    following = None if last is None else str(last) if order == "newest" else last.id
    return {"items": [view(one) for one in records], "next": following}


@operation("POST", "/v1/jobs/terminate", "terminateJobs", "End several jobs")
async def terminate(
    api: ApiParts, request: web.Request, body: TerminateRequest
) -> list[Annotated[dict[str, Any], TerminateResult]]:
    """End several jobs; one result for each, in order."""
    ended = await api.commands.end_all(body.items, asked_by(body.by))
    for job_id in ended:
        audit(request, "ended", job=job_id, reason="asked")
    return [
        {"id": job_id, "result": ended[job_id].state if job_id in ended else "not_found"}
        for job_id in body.items
    ]


@operation("GET", "/v1/jobs/{id}", "getJob", "Get a job")
async def show(api: ApiParts, request: web.Request) -> Annotated[dict[str, Any], JobDetails]:
    """Return one job with its queue position, its retry policies and its failed hooks."""
    async with api.store.read() as transaction:
        record = or_not_found(await find_job(transaction, request.match_info["id"]), "job")
        place = await queue_place(transaction, record)
        runs = await pod_records_of(transaction, record.id, record.attempt)
        failures = await hook_failures_of(transaction, record.id)
        item = await _batch_place(transaction, record)
        volcanos = await retries_within(transaction, record.id, record.attempt)
    # Once the next attempt begins, the record itself counts them.
    used = used_retries(volcanos, runs, policies=policies_of(record))
    used += record.renewal == "retried"
    shown = [PluginFailure.model_validate(one).model_dump(mode="json") for one in failures]
    return view(record) | {
        "plugin_failures": shown,
        "batch_item": item,
        "queue_position": None if place is None else place.position,
        "queue_estimate": _estimate(place),
        "exits": exits_of(runs) if record.is_final else [],
        "retry": _retry(record, api.defaults, used).model_dump(mode="json"),
    }


@operation(
    "DELETE",
    "/v1/jobs/{id}",
    "endJob",
    "End a job and keep its record",
    statuses=(200, 202),
)
async def end(api: ApiParts, request: web.Request, query: EndQuery) -> tuple[_Shown, int]:
    """End one job. A repeated request, or one after the end, changes nothing."""
    ended = await api.commands.end(request.match_info["id"], asked_by(query.by))
    record = or_not_found(ended, "job")
    audit(request, "ended", job=record.id, reason="asked")
    return view(record), 200 if record.is_final else 202


def read_job(item: Any) -> Job | JobRejected:
    """Return the job, or its problems."""
    try:
        return Job.model_validate(item)
    except ValidationError as error:
        return JobRejected(problems_of(error))


def refuse_all(results: Sequence[SubmissionResult]) -> None:
    """Raise the error for an atomic request, unless all of its jobs were accepted.

    Raises:
        ApiError: 422 if a job is invalid, else 409.
    """
    if any(one.result == "rejected" for one in results):
        raise invalid(_problems_of(results, "rejected"))
    conflicts = list(_problems_of(results, "conflict"))
    if conflicts:
        raise ApiError("conflict", details={"problems": problems_json(conflicts)})


def _problems_of(results: Sequence[SubmissionResult], result: str) -> Iterator[Problem]:
    for index, one in enumerate(results):
        if one.result == result:
            for problem in one.problems or (Problem("id", "this id belongs to another job"),):
                yield problem.under(f"items[{index}]")


def _result(item: Any, submitted: SubmissionResult) -> dict[str, Any]:
    given = item.get("id") if isinstance(item, dict) else None
    name = given if isinstance(given, str) else None
    shown: dict[str, Any] = {"id": submitted.id or name, "result": submitted.result}
    if submitted.problems:
        shown["problems"] = problems_json(submitted.problems)
    return shown


def view(record: JobRecord) -> dict[str, Any]:
    """Return a job as the API shows it: its spec and its state."""
    # The spec of a job that a newer version accepted is shown as it is stored.
    spec = record.spec if isinstance(record.spec, Mapping) else {}
    state = JobState(
        state=_known_state(record),
        reason=record.reason,
        message=record.message,
        details=read_details(record.details),
        desired=record.desired if record.desired in get_args(Desired) else "run",
        attempt=record.attempt,
        submitted_at=record.created_at,
        started_at=record.started_at,
        finished_at=record.finished_at,
        time_allocation_seconds=record.allocated_seconds,
        expires_at=record.expires_at,
        queue=record.queue or spec.get("queue"),
        product=record.product,
        parked=record.parked,
        batch=record.batch,
    )
    return {
        "id": record.id,
        "owner": owner_view(record.owner_user, record.owner_project),
        **spec,
        "labels": spec.get("labels", {}),
        **state.model_dump(mode="json"),
    }


async def _batch_place(transaction: Transaction, record: JobRecord) -> dict[str, Any] | None:
    if record.batch is None or record.batch_index is None:
        return None
    item = await find_item(transaction, record.batch, record.batch_index)
    return None if item is None else {"index": item.index, "parameters": item.parameters}


def _estimate(place: QueuePlace | None) -> dict[str, int] | None:
    if place is None:
        return None
    ahead = {"ahead": place.position - 1, "ahead_of_higher_priority": place.of_higher_priority}
    return QueueEstimate(**ahead, waiting=place.waiting).model_dump(mode="json")


def _known_state(record: JobRecord) -> State:
    try:
        return State(record.state)
    except ValueError:
        return State.RUNNING if record.started_at is not None else State.IN_QUEUE


def _retry(record: JobRecord, defaults: JobDefaults, used: int) -> Retry:
    policies, most, explanation = explain_retries(read_known(record))
    return Retry(
        max_retry=most,
        # Volcano also counts the restart that it refuses.
        retries_used=min(most, record.retries_used + used),
        policies=policies,
        evictions=record.evictions,
        max_evictions=defaults.eviction_retries,
        explanation=explanation,
    )
