"""``/v1/jobs/{id}/logs``: the logs of a job's ranks and tools, complete or as a stream."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager, nullcontext
from functools import partial
from typing import Annotated, Final, Literal

from aiohttp import web
from pydantic import BeforeValidator, Discriminator, Field, Tag

from controller.api.error_responses import ApiError, invalid, or_not_found
from controller.api.operations import EVENTS, TEXT, operation
from controller.api.parts import ApiParts
from controller.api.requests import WHOLE, Query
from controller.api.resources.log_streams import (
    PLACE,
    LogCursor,
    LogStream,
    SelectedLog,
    read_places,
)
from controller.api.server_sent_events import EventStream, StreamSource
from controller.jobs.history.job_record import read_known
from controller.jobs.spec.field_types import ToolName
from controller.jobs.spec.problems import TAG, Problem
from controller.kube.errors import Forbidden, Invalid, KubeError, NotFound
from controller.logs.live import PodName
from controller.logs.reading import LogText
from controller.logs.storage import StorageUnavailable
from controller.store.database import Transaction
from controller.store.jobs.job_rows import JobRecord, find_job
from controller.store.jobs.progress import PodRecord, pod_records_of
from controller.store.jobs.tools import find_tool, runs_of
from shared.text import whole_number

MOST_FOLLOWED: Final = 64
"""The most ranks in one stream."""

TRUNCATED: Final = "Fumarole-Log-Truncated"

log = logging.getLogger(__name__)


def _rank(raw: object) -> object:
    number = whole_number(raw) if isinstance(raw, str) else None
    if number is None and raw != "all":
        raise ValueError("should be a rank in decimal digits, or `all`")
    return raw if number is None else number


def _which(rank: object) -> str:
    return f"{TAG}all" if rank == "all" else f"{TAG}one"


Rank = Annotated[
    Annotated[Annotated[int, Field(ge=0, le=2**31)], Tag(f"{TAG}one")]
    | Annotated[Literal["all"], Tag(f"{TAG}all")],
    Discriminator(_which),
    BeforeValidator(_rank),
]


class LogsQuery(Query):
    """Selects logs, their beginning, and whether to follow them."""

    rank: Rank = 0
    tool: ToolName | None = Field(
        default=None, description="Read this tool's last run at the rank instead of the rank."
    )
    attempt: Annotated[int, Field(ge=1, le=2**31), WHOLE] | None = None
    pod: Annotated[str, Field(pattern=r"^[-0-9a-zA-Z]{1,64}$")] | None = None
    follow: bool = False
    tail: Annotated[int, Field(ge=0, le=10**6), WHOLE] | None = None


@operation(
    "GET",
    "/v1/jobs/{id}/logs",
    "readLogs",
    "Read the log of a rank or of a tool",
    headers={"Last-Event-ID": f"^({PLACE}(_{PLACE}){{0,{MOST_FOLLOWED - 1}}})?$"},
    media=(TEXT, EVENTS),
    errors=(
        "cluster_unavailable",
        "gone",
        "logs_unavailable",
        "not_offered",
        "not_started",
        "too_many_streams",
    ),
)
async def show(api: ApiParts, request: web.Request, query: LogsQuery) -> web.StreamResponse:
    """Send logs as text, or as events while they are written."""
    places = _places(request)
    chosen = await _find(api, request.match_info["id"], query, places)
    if query.follow:
        opening: AbstractAsyncContextManager[StreamSource] = _followed(api, query, chosen)
    elif query.rank == "all":
        opening = nullcontext(StreamSource(partial(_send_all, api, chosen=chosen, tail=query.tail)))
    else:
        opening = _complete(api, query, chosen[0])
    try:
        return await api.streams.run(request, EVENTS if query.follow else TEXT, opening)
    except (KubeError, StorageUnavailable) as error:
        raise _refused(error) from None


@asynccontextmanager
async def _complete(
    api: ApiParts, query: LogsQuery, chosen: SelectedLog
) -> AsyncIterator[StreamSource]:
    async with api.logs.text(chosen.pod, tail=query.tail) as log:
        lost = {TRUNCATED: ",".join(sorted(log.lost))} if log.lost else {}
        yield StreamSource(partial(_send_text, log=log), lost)


@asynccontextmanager
async def _followed(
    api: ApiParts, query: LogsQuery, chosen: Sequence[SelectedLog]
) -> AsyncIterator[StreamSource]:
    if len(chosen) > MOST_FOLLOWED:
        text = f"one stream can follow at most {MOST_FOLLOWED} ranks"
        raise invalid([Problem("rank", text)])
    stream = LogStream(api.logs, chosen, tail=query.tail, named=query.rank == "all")
    async with stream.opened():
        # Checked before the response begins, while an error can still have its own status.
        if (error := await stream.refused()) is not None:
            raise error
        yield StreamSource(stream.send)


async def _find(
    api: ApiParts, job_id: str, query: LogsQuery, places: Sequence[LogCursor]
) -> list[SelectedLog]:
    async with api.store.read() as transaction:
        record = or_not_found(await find_job(transaction, job_id), "job")
        if query.rank != "all" and read_known(record).task_of(query.rank) is None:
            raise invalid([Problem("rank", "the job has no such rank")])
        if query.tool is not None:
            record = await _run_of_tool(transaction, job_id, query)
            query = query.model_copy(update={"rank": 0})
        runs = await pod_records_of(transaction, record.id)
    if not api.defaults.pods.catalogue.offers(record.product, "logs"):
        raise ApiError("not_offered", "The job's product does not offer logs.")
    chosen = _chosen(record, runs, query, {place.rank: place for place in places})
    if not chosen:
        raise ApiError("not_started")
    return chosen


async def _send_all(
    api: ApiParts, stream: EventStream, *, chosen: Sequence[SelectedLog], tail: int | None
) -> None:
    for one in chosen:
        prefix = f"[{one.place.rank}] ".encode()
        try:
            async with api.logs.text(one.pod, tail=tail) as log:
                await _send_prefixed(stream, log, prefix)
        except (KubeError, StorageUnavailable) as error:
            why = _refused(error).message
            await stream.write(b"%b(no log: %b)\n" % (prefix, why.encode()))


def _places(request: web.Request) -> Sequence[LogCursor]:
    raw = request.headers.get("Last-Event-ID", "").strip()
    try:
        return read_places(raw, most=MOST_FOLLOWED)
    except ValueError:
        raise invalid([Problem("Last-Event-ID", "should be the id of an event")]) from None


async def _run_of_tool(transaction: Transaction, job_id: str, query: LogsQuery) -> JobRecord:
    """Return the tool's last run. It has one rank."""
    problems = []
    if query.attempt is not None:
        problems.append(
            Problem("attempt", "a tool has no attempts; the log of its last run is read")
        )
    if query.rank == "all":
        problems.append(Problem("rank", "the log of a tool is read for one rank at a time"))
    if problems or query.rank == "all" or query.tool is None:
        raise invalid(problems)
    tool = or_not_found(await find_tool(transaction, (job_id, query.tool, query.rank)), "tool")
    run = (await runs_of(transaction, [tool])).get(tool.run or "")
    if run is None:
        raise ApiError("not_started", "The tool has not started yet.")
    return run


def _chosen(
    record: JobRecord, runs: Sequence[PodRecord], query: LogsQuery, places: dict[int, LogCursor]
) -> list[SelectedLog]:
    """Return the pod to read for each rank: the last one that matches the query."""
    if query.pod is not None and all(run.pod_uid != query.pod for run in runs):
        raise invalid([Problem("pod", "the job has no pod with this uid")])
    if query.attempt is not None and query.attempt > record.attempt:
        raise invalid([Problem("attempt", "the job has no such attempt")])
    of_rank: dict[int, list[PodRecord]] = {}
    for run in runs:
        of_rank.setdefault(run.rank, []).append(run)
    found = []
    for rank, every in sorted(of_rank.items()):
        if query.pod is None and query.rank not in ("all", rank):
            continue
        place = places.get(rank)
        if place is not None and place.ordinal < len(every):
            found.append(_choose(record, every[place.ordinal], place))
            continue
        fitting = [run for run in every if run.started_at is not None and _fits(run, query)]
        if fitting:
            last = max(fitting, key=lambda run: (run.attempt, run.seen_at, run.started_at or 0.0))
            found.append(_choose(record, last, LogCursor(rank, every.index(last), None)))
    return found


def _fits(run: PodRecord, query: LogsQuery) -> bool:
    return query.attempt in (None, run.attempt) and query.pod in (None, run.pod_uid)


def _choose(record: JobRecord, run: PodRecord, place: LogCursor) -> SelectedLog:
    return SelectedLog(PodName(record.namespace, run.pod, run.pod_uid, record.id), place)


def _refused(error: KubeError | StorageUnavailable) -> ApiError:
    if isinstance(error, NotFound):
        return ApiError("gone")
    if isinstance(error, Invalid):
        return ApiError("not_started", "This rank's container has not started yet.")
    if isinstance(error, StorageUnavailable):
        return ApiError("logs_unavailable")
    if isinstance(error, Forbidden):
        log.warning("no permission to read pod logs", extra={"why": str(error)})
        return ApiError("cluster_unavailable", "The controller has no permission to read pod logs.")
    return ApiError("cluster_unavailable")


async def _send_text(stream: EventStream, *, log: LogText) -> None:
    try:
        async for piece in log.pieces:
            await stream.write(piece)
    except (KubeError, StorageUnavailable) as error:
        # The response has begun, so the error can only be shown by a reset.
        raise ConnectionError("the log cannot be read to its end") from error


async def _send_prefixed(stream: EventStream, log: LogText, prefix: bytes) -> None:
    """Send a log with *prefix* before each line."""
    at_start = True
    try:
        async for piece in log.pieces:
            if not piece:
                continue
            ends = piece.endswith(b"\n")
            shown = piece.removesuffix(b"\n").replace(b"\n", b"\n" + prefix)
            await stream.write(prefix * at_start + shown + b"\n" * ends)
            at_start = ends
    except (KubeError, StorageUnavailable):
        # The log may end within a line; the error message is a line of its own.
        await stream.write(b"\n" * (not at_start))
        raise
    if not at_start:
        await stream.write(b"\n")
