"""``/v1/jobs``: submit, look, end."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated, Any, Final, Literal

from aiohttp import web
from pydantic import Field, ValidationError

from controller.api.answers import ApiError, invalid, not_found, problems_json
from controller.api.bodies import MOST_ITEMS, read_model
from controller.jobs.lifecycle import State
from controller.jobs.model import Job, JobId
from controller.jobs.parameters import Strict
from controller.jobs.problems import JobRejected, Problem, problems_of
from controller.jobs.submission import Submissions, Submitted
from controller.jobs.wishes import Wishes
from controller.store.database import Store
from controller.store.jobs import JobFilter, JobRecord, find_job, list_jobs

DEFAULT_LIMIT: Final = 100
MOST_LIMIT: Final = 1000


class SubmitRequest(Strict):
    """Jobs to be run: all or none (``atomic``), or each for itself (``best_effort``)."""

    mode: Literal["atomic", "best_effort"] = "atomic"
    # Each item is read by itself, so that in best effort one that is wrong keeps none out.
    items: Annotated[list[Any], Field(min_length=1, max_length=MOST_ITEMS)]


class TerminateRequest(Strict):
    """Jobs to be ended."""

    items: Annotated[list[JobId], Field(min_length=1, max_length=MOST_ITEMS)]


class Jobs:
    """The handlers of the resource."""

    def __init__(self, store: Store, submissions: Submissions, wishes: Wishes) -> None:
        self._store = store
        self._submissions = submissions
        self._wishes = wishes

    def routes(self) -> list[web.RouteDef]:
        """Return what is served."""
        return [
            web.post("/v1/jobs", self.submit),
            web.get("/v1/jobs", self.find),
            web.post("/v1/jobs/terminate", self.terminate),
            web.get("/v1/jobs/{id}", self.show),
            web.delete("/v1/jobs/{id}", self.end),
        ]

    async def submit(self, request: web.Request) -> web.Response:
        """Take jobs; one result for each, in order."""
        asked = await read_model(request, SubmitRequest)
        jobs = [_read_job(item) for item in asked.items]
        results = await self._submissions.submit(jobs, asked.mode)
        if asked.mode == "atomic":
            _refuse_all(results)
        named = zip(asked.items, results, strict=True)
        return web.json_response({"items": [_result(item, one) for item, one in named]})

    async def find(self, request: web.Request) -> web.Response:
        """List jobs, in the order of their ids, a page at a time."""
        wanted, after, limit = _read_query(request)
        async with self._store.read() as transaction:
            # One more than asked for tells whether there is another page.
            records = await list_jobs(transaction, wanted, after=after, limit=limit + 1)
        page = records[:limit]
        following = page[-1].id if len(records) > limit else None
        return web.json_response({"items": [view(one) for one in page], "next": following})

    async def show(self, request: web.Request) -> web.Response:
        """Show one job."""
        async with self._store.read() as transaction:
            record = await find_job(transaction, request.match_info["id"])
        if record is None:
            raise not_found("job")
        return web.json_response(view(record))

    async def end(self, request: web.Request) -> web.Response:
        """End one job; again, and after its end, this changes nothing."""
        record = await self._wishes.end(request.match_info["id"])
        if record is None:
            raise not_found("job")
        return web.json_response(view(record), status=200 if record.is_final else 202)

    async def terminate(self, request: web.Request) -> web.Response:
        """End many jobs; one result for each, in order."""
        asked = await read_model(request, TerminateRequest)
        records = [(job_id, await self._wishes.end(job_id)) for job_id in asked.items]
        items = [
            {"id": job_id, "result": "not_found" if record is None else record.state}
            for job_id, record in records
        ]
        return web.json_response({"items": items})


def _read_job(item: Any) -> Job | JobRejected:
    try:
        return Job.model_validate(item)
    except ValidationError as error:
        return JobRejected(problems_of(error))


def _refuse_all(results: Sequence[Submitted]) -> None:
    problems = list(_problems_of(results, "rejected"))
    if problems:
        raise invalid(problems)
    conflicts = list(_problems_of(results, "conflict"))
    if conflicts:
        details = {"problems": problems_json(conflicts)}
        text = "Others have these ids or links; nothing was done."
        raise ApiError(409, "conflict", text, details)


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


def _read_query(request: web.Request) -> tuple[JobFilter, str, int]:
    query, problems = request.query, []
    unknown = set(query) - {"user", "project", "state", "label", "after", "limit"}
    problems += [Problem(name, "unknown parameter") for name in sorted(unknown)]
    states = tuple(query.getall("state", []))
    problems += [Problem("state", f"should be one of {', '.join(State)}")
                 for state in states if state not in list(State)]  # fmt: skip
    labels = [tuple(label.partition("=")[::2]) for label in query.getall("label", [])]
    if any(not name for name, _ in labels):
        problems.append(Problem("label", "should be name=value"))
    limit = query.get("limit", str(DEFAULT_LIMIT))
    if not (limit.isascii() and limit.isdigit() and 1 <= int(limit) <= MOST_LIMIT):
        problems.append(Problem("limit", f"should be a number from 1 to {MOST_LIMIT}"))
    if problems:
        raise invalid(problems)
    wanted = JobFilter(
        user=query.get("user"),
        project=query.get("project"),
        states=states,
        labels=tuple((name, value) for name, value in labels),
    )
    return wanted, query.get("after", ""), int(limit)


def view(record: JobRecord) -> dict[str, Any]:
    """Return a job as the orchestrator sees it: what it asked for, and how it is."""
    return {
        **record.spec,
        "labels": record.spec.get("labels", {}),
        "state": record.state,
        "reason": record.reason,
        "message": record.message,
        "attempt": record.attempt,
        "submitted_at": record.created_at,
        "started_at": record.started_at,
        "finished_at": record.finished_at,
    }
