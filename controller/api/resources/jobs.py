"""``/v1/jobs``: submit, look, end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Annotated, Any, Literal, TypeAlias, get_args

from aiohttp import web
from pydantic import ConfigDict, Field, ValidationError

from controller.api.audit import AUDIT, audit
from controller.api.error_responses import ApiError, invalid, or_not_found, problems_json
from controller.api.operations import offered
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
    PolicyView,
    ResponseModel,
    Retry,
    read_details,
)
from controller.jobs.history.job_record import State, read_known
from controller.jobs.history.pod_records import exits_of
from controller.jobs.history.retries import explain_retry, used_retries
from controller.jobs.spec.model import Job, JobId, Name
from controller.jobs.spec.parameters import Strict
from controller.jobs.spec.problems import JobRejected, Problem, problems_of
from controller.jobs.submission.accept import Draining
from controller.jobs.submission.checking import Submitted
from controller.jobs.submission.commands import asked_by
from controller.kube.loop_turn import LoopTurn
from controller.settings import JobDefaults
from controller.store.database import Transaction
from controller.store.jobs.batches import find_item
from controller.store.jobs.job_lists import JobFilter, Order, list_jobs
from controller.store.jobs.job_rows import Desired, JobRecord, find_job
from controller.store.jobs.progress import hook_failures_of, pod_records_of, retries_within
from controller.store.jobs.totals import QueuePlace, queue_place
from controller.store.paging import Key


class SubmitRequest(Strict):
    """Jobs to be run: all or none (``atomic``), or each for itself (``best_effort``)."""

    mode: Literal["atomic", "best_effort"] = "atomic"
    # Each item is read by itself, so that in best effort one that is wrong keeps none out.
    items: Annotated[list[Any], Field(min_length=1, max_length=MOST_ITEMS)]


class TerminateRequest(Strict):
    """Jobs to be ended."""

    items: Annotated[list[JobId], Field(min_length=1, max_length=MOST_ITEMS)]
    by: Name | None = Field(default=None, description="Who wants that: shown, and kept.")


class EndQuery(Query, extra="ignore"):
    """On whose behalf a job is ended; whatever else stands there has never kept one from ending."""

    by: Name | None = Field(default=None, description="Who wants that: shown, and kept.")


class JobsQuery(Query):
    """Which jobs, and which page of them."""

    user: Word | None = None
    project: Word | None = None
    state: list[State] = Field(default_factory=list)
    label: list[Annotated[str, Field(pattern=r"^[^=\x00]+=[^\x00]*$")]] = Field(
        default_factory=list
    )
    kind: Word | None = None
    batch: Word | None = None
    since: Time | None = Field(default=None, description="Submitted then or later.")
    order: Order = Field(default="id", description="`newest`: those submitted last come first.")
    after: Word = Field(default="", description="`next` of the page before, of the same order.")
    limit: Limit = DEFAULT_LIMIT

    def place(self) -> Key | None:
        """Return after which job the page begins.

        Raises:
            ApiError: 422 if it is no place of this order.
        """
        if self.order == "newest":
            return read_place(self.after)
        return Key(0.0, self.after) if self.after else None

    def filter(self) -> JobFilter:
        """Return what is asked of the store."""
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
    """The job as it was asked for, without secret values, and how it is."""

    model_config = ConfigDict(extra="allow", frozen=True)

    id: str = Field(description="The orchestrator's name for it.")
    owner: dict[str, str] = Field(description="Whose job it is.")
    labels: dict[str, str] = Field(description="To find it by.")


class QueueEstimate(ResponseModel):
    """The job's place in its queue, as far as is known: by priority, and then by age."""

    ahead: int = Field(description="Jobs that are likely to begin before it.")
    ahead_of_higher_priority: int = Field(description="Those of them with a higher priority.")
    waiting: int = Field(description="All that wait in the queue, itself included.")


class BatchPlace(ResponseModel):
    """Which item of its batch a job is, and the variables that it was made with."""

    index: int
    parameters: dict[str, Any]


class JobDetails(JobView):
    """A job, why it waits, and what decides whether it is started again."""

    queue_position: int | None = Field(description="1 is next; None where that is not known.")
    queue_estimate: QueueEstimate | None = Field(default=None, description="What is ahead of it.")
    exits: list[Exit] = Field(description="How its ranks ended, once it is over.")
    retry: Retry
    batch_item: BatchPlace | None = Field(default=None, description="None outside of a batch.")
    plugin_failures: list[PluginFailure] = Field(
        default_factory=list, description="Hooks of plugins that failed, and have not run since."
    )


class JobPage(ResponseModel):
    """A page of jobs."""

    items: list[JobView]
    next: str | None = Field(
        description="To be given as `after` for what follows, also where a page is not full."
    )


class ProblemView(ResponseModel):
    """One thing that is wrong, and where."""

    path: str
    message: str


class SubmitResult(ResponseModel):
    """What became of one job of a call."""

    id: str | None
    result: Literal["created", "unchanged", "conflict", "rejected"]
    problems: list[ProblemView] | None = None


class TerminateResult(ResponseModel):
    """How one job of a call is now."""

    id: str
    result: Literal["not_found"] | State


_Shown: TypeAlias = Annotated[dict[str, Any], JobView]


@offered(
    "POST",
    "/v1/jobs",
    "submitJobs",
    "Submit jobs",
    errors=("conflict", "draining", "plugin_failed"),
)
async def submit(
    api: ApiParts, request: web.Request, asked: SubmitRequest
) -> list[Annotated[dict[str, Any], SubmitResult]]:
    """Take jobs; one result for each, in order."""
    jobs, turn = list[Job | JobRejected](), LoopTurn()
    for item in asked.items:
        jobs.append(read_job(item))
        await turn.rest()
    with draining():
        results = await api.submissions.submit(jobs, asked.mode)
    if asked.mode == "atomic":
        refuse_all(results)
    await audit_submitted(request, results)
    return [_result(item, one) for item, one in zip(asked.items, results, strict=True)]


async def audit_submitted(request: web.Request, results: Sequence[Submitted]) -> None:
    """Write which jobs are new, and which were refused."""
    turn = LoopTurn()
    for one in results:
        if one.result == "created":
            audit(request, "created", job=one.id)
        elif not one.accepted:
            request.app[AUDIT].refused(request, one.result, job=one.id)
        await turn.rest()


@offered("GET", "/v1/jobs", "listJobs", "Find jobs")
async def find(
    api: ApiParts, _request: web.Request, wanted: JobsQuery
) -> Annotated[dict[str, Any], JobPage]:
    """List jobs, in the order of their ids or from the newest on, a page at a time."""
    order, place = wanted.order, wanted.place()
    async with api.store.read() as transaction:
        records, last = await list_jobs(
            transaction, wanted.filter(), after=place, limit=wanted.limit, order=order
        )
    following = None if last is None else str(last) if order == "newest" else last.id
    return {"items": [view(one) for one in records], "next": following}


@offered("POST", "/v1/jobs/terminate", "terminateJobs", "End many jobs")
async def terminate(
    api: ApiParts, request: web.Request, asked: TerminateRequest
) -> list[Annotated[dict[str, Any], TerminateResult]]:
    """End many jobs; one result for each, in order."""
    ended = await api.commands.end_all(asked.items, asked_by(asked.by))
    for job_id in ended:
        audit(request, "ended", job=job_id, reason="asked")
    return [
        {"id": job_id, "result": ended[job_id].state if job_id in ended else "not_found"}
        for job_id in asked.items
    ]


@offered("GET", "/v1/jobs/{id}", "getJob", "Look at a job")
async def show(api: ApiParts, request: web.Request) -> Annotated[dict[str, Any], JobDetails]:
    """Show one job, why it waits, and what decides whether it is started again."""
    async with api.store.read() as transaction:
        record = or_not_found(await find_job(transaction, request.match_info["id"]), "job")
        place = await queue_place(transaction, record)
        runs = await pod_records_of(transaction, record.id, record.attempt)
        failures = await hook_failures_of(transaction, record.id)
        item = await _batch_place(transaction, record)
        volcanos = await retries_within(transaction, record.id, record.attempt)
    # With the next attempt's beginning they are counted in the record.
    used = used_retries(volcanos, runs) + (record.renewal == "retried")
    shown = [PluginFailure.model_validate(one).model_dump(mode="json") for one in failures]
    return view(record) | {
        "plugin_failures": shown,
        "batch_item": item,
        "queue_position": None if place is None else place.position,
        "queue_estimate": _estimate(place),
        "exits": exits_of(runs) if record.is_final else [],
        "retry": _retry(record, api.defaults, used).model_dump(mode="json"),
    }


@offered(
    "DELETE",
    "/v1/jobs/{id}",
    "endJob",
    "End a job, whose record stays",
    statuses=(200, 202),
)
async def end(api: ApiParts, request: web.Request, asked: EndQuery) -> tuple[_Shown, int]:
    """End one job; again, and after its end, this changes nothing."""
    ended = await api.commands.end(request.match_info["id"], asked_by(asked.by))
    record = or_not_found(ended, "job")
    audit(request, "ended", job=record.id, reason="asked")
    return view(record), 200 if record.is_final else 202


@contextmanager
def draining() -> Iterator[None]:
    """Answer 503 where no new jobs are taken."""
    try:
        yield
    except Draining as error:
        raise ApiError("draining", str(error)) from None


def read_job(item: Any) -> Job | JobRejected:
    """Return the job, or what is wrong with it."""
    try:
        return Job.model_validate(item)
    except ValidationError as error:
        return JobRejected(problems_of(error))


def refuse_all(results: Sequence[Submitted]) -> None:
    """Do nothing where all jobs of a call were accepted.

    Raises:
        ApiError: 422 where one cannot be run, else 409.
    """
    if any(one.result == "rejected" for one in results):
        raise invalid(_problems_of(results, "rejected"))
    conflicts = list(_problems_of(results, "conflict"))
    if conflicts:
        raise ApiError("conflict", details={"problems": problems_json(conflicts)})


def _problems_of(results: Sequence[Submitted], result: str) -> Iterator[Problem]:
    for index, one in enumerate(results):
        if one.result == result:
            for problem in one.problems or (Problem("id", "another job has this id"),):
                yield problem.under(f"items[{index}]")


def _result(item: Any, submitted: Submitted) -> dict[str, Any]:
    given = item.get("id") if isinstance(item, dict) else None
    name = given if isinstance(given, str) else None
    shown: dict[str, Any] = {"id": submitted.id or name, "result": submitted.result}
    if submitted.problems:
        shown["problems"] = problems_json(submitted.problems)
    return shown


def view(record: JobRecord) -> dict[str, Any]:
    """Return a job as the orchestrator sees it: what it asked for, and how it is."""
    # One that a newer version has accepted is shown as far as it is known.
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
    project = {"project": record.owner_project} if record.owner_project is not None else {}
    return {
        "id": record.id,
        "owner": {"user": record.owner_user} | project,
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
    explained = explain_retry(read_known(record))
    return Retry(
        max_retry=explained.max_retry,
        # Volcano counts the one that it refuses, too.
        retries_used=min(explained.max_retry, record.retries_used + used),
        policies=[PolicyView.model_validate(one) for one in explained.policies],
        evictions=record.evictions,
        max_evictions=defaults.eviction_retries,
        explanation=explained.explanation,
    )
