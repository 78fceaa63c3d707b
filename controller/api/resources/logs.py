"""``/v1/jobs/{id}/logs``: what programs of ranks and of tools have written, and what they write."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import partial
from typing import Annotated, Final, Literal

from aiohttp import web
from pydantic import BeforeValidator, Discriminator, Field, Tag

from controller.api.error_responses import ApiError, invalid, or_not_found
from controller.api.operations import EVENTS, TEXT, offered
from controller.api.parts import ApiParts
from controller.api.requests import WHOLE, Query
from controller.api.resources.log_streams import PLACE, Chosen, LogCursor, LogStream, read_places
from controller.api.server_sent_events import EventStream
from controller.jobs.history.job_record import read_known
from controller.jobs.spec.model import ToolName
from controller.jobs.spec.problems import TAG, Problem
from controller.kube.errors import Forbidden, Invalid, KubeError, NotFound
from controller.logs.live import PodName
from controller.logs.reading import LogText
from controller.logs.storage import StorageUnavailable
from controller.store.database import Transaction
from controller.store.jobs.job_rows import JobRecord, find_job
from controller.store.jobs.progress import PodRecord, pod_records_of
from controller.store.jobs.tools import find_tool, runs_of
from shared.numbers import whole_number

MOST_FOLLOWED: Final = 64
"""Ranks of one stream."""

TRUNCATED: Final = "Fumarole-Log-Truncated"

log = logging.getLogger(__name__)


def _rank(raw: object) -> object:
    number = whole_number(raw) if isinstance(raw, str) else None
    if number is None and raw != "all":
        raise ValueError("should be a rank, in decimal digits, or all")
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
    """Whose, from where, and whether what follows is waited for."""

    rank: Rank = 0
    tool: ToolName | None = Field(
        default=None, description="The last run of this tool beside the rank, not the rank itself."
    )
    attempt: Annotated[int, Field(ge=1, le=2**31), WHOLE] | None = None
    pod: Annotated[str, Field(pattern=r"^[-0-9a-zA-Z]{1,64}$")] | None = None
    follow: bool = False
    tail: Annotated[int, Field(ge=0, le=10**6), WHOLE] | None = None


@offered(
    "GET",
    "/v1/jobs/{id}/logs",
    "readLogs",
    "Read what the program of a rank, or of a tool, writes",
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
async def show(api: ApiParts, request: web.Request, wanted: LogsQuery) -> web.StreamResponse:
    """Send logs: as text, or as events while they are written."""
    places = _places(request)
    chosen = await _find(api, request.match_info["id"], wanted, places)
    try:
        if wanted.follow:
            return await _follow(api, request, wanted, chosen)
        if wanted.rank == "all":
            send = partial(_send_all, api, chosen=chosen, tail=wanted.tail)
            return await api.streams.run(request, TEXT, send)
        async with api.logs.text(chosen[0].pod, tail=wanted.tail) as log:
            lost = {TRUNCATED: ",".join(sorted(log.lost))} if log.lost else None
            send = partial(_send_text, log=log)
            return await api.streams.run(request, TEXT, send, lost)
    except (KubeError, StorageUnavailable) as error:
        raise _refused(error) from None


async def _follow(
    api: ApiParts, request: web.Request, wanted: LogsQuery, chosen: Sequence[Chosen]
) -> web.StreamResponse:
    if len(chosen) > MOST_FOLLOWED:
        text = f"at most {MOST_FOLLOWED} ranks can be followed at once, by one stream"
        raise invalid([Problem("rank", text)])
    every = wanted.rank == "all"
    stream = LogStream(api.logs, chosen, tail=wanted.tail, named=every)
    async with stream.opened():
        # Before the answer begins: what is wrong with it has a status of its own.
        if (error := await stream.refused()) is not None:
            raise error
        return await api.streams.run(request, EVENTS, stream.send)


async def _find(
    api: ApiParts, job_id: str, wanted: LogsQuery, places: Sequence[LogCursor]
) -> list[Chosen]:
    async with api.store.read() as transaction:
        record = or_not_found(await find_job(transaction, job_id), "job")
        if wanted.rank != "all" and read_known(record).task_of(wanted.rank) is None:
            raise invalid([Problem("rank", "the job has no such rank")])
        if wanted.tool is not None:
            record = await _run_of_tool(transaction, job_id, wanted)
            wanted = wanted.model_copy(update={"rank": 0})
        runs = await pod_records_of(transaction, record.id)
    if not api.defaults.pods.catalogue.offers(record.product, "logs"):
        raise ApiError("not_offered", "The product offers no logs.")
    chosen = _chosen(record, runs, wanted, {place.rank: place for place in places})
    if not chosen:
        raise ApiError("not_started")
    return chosen


async def _send_all(
    api: ApiParts, stream: EventStream, *, chosen: Sequence[Chosen], tail: int | None
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


async def _run_of_tool(transaction: Transaction, job_id: str, wanted: LogsQuery) -> JobRecord:
    """Return the last run of the tool, which has one rank."""
    problems = []
    if wanted.attempt is not None:
        problems.append(Problem("attempt", "a tool has no attempts: its last run is read"))
    if wanted.rank == "all":
        problems.append(Problem("rank", "the logs of tools are read one at a time"))
    if problems or wanted.rank == "all" or wanted.tool is None:
        raise invalid(problems)
    tool = or_not_found(await find_tool(transaction, (job_id, wanted.tool, wanted.rank)), "tool")
    run = (await runs_of(transaction, [tool])).get(tool.run or "")
    if run is None:
        raise ApiError("not_started", "The tool has not run yet.")
    return run


def _chosen(
    record: JobRecord, runs: Sequence[PodRecord], wanted: LogsQuery, places: dict[int, LogCursor]
) -> list[Chosen]:
    """Return the pod of each rank whose log is read: the last one that fits."""
    if wanted.pod is not None and all(run.pod_uid != wanted.pod for run in runs):
        raise invalid([Problem("pod", "the job has had no such pod")])
    if wanted.attempt is not None and wanted.attempt > record.attempt:
        raise invalid([Problem("attempt", "there is no such attempt")])
    of_rank: dict[int, list[PodRecord]] = {}
    for run in runs:
        of_rank.setdefault(run.rank, []).append(run)
    found = []
    for rank, every in sorted(of_rank.items()):
        if wanted.pod is None and wanted.rank not in ("all", rank):
            continue
        place = places.get(rank)
        if place is not None and place.ordinal < len(every):
            found.append(_choose(record, every[place.ordinal], place))
            continue
        fitting = [run for run in every if run.started_at is not None and _fits(run, wanted)]
        if fitting:
            last = max(fitting, key=lambda run: (run.attempt, run.seen_at, run.started_at or 0.0))
            found.append(_choose(record, last, LogCursor(rank, every.index(last), None)))
    return found


def _fits(run: PodRecord, wanted: LogsQuery) -> bool:
    return wanted.attempt in (None, run.attempt) and wanted.pod in (None, run.pod_uid)


def _choose(record: JobRecord, run: PodRecord, place: LogCursor) -> Chosen:
    return Chosen(PodName(record.namespace, run.pod, run.pod_uid, record.id), place)


def _refused(error: KubeError | StorageUnavailable) -> ApiError:
    if isinstance(error, NotFound):
        return ApiError("gone")
    if isinstance(error, Invalid):
        return ApiError("not_started", "This rank's container does not run yet.")
    if isinstance(error, StorageUnavailable):
        return ApiError("logs_unavailable")
    if isinstance(error, Forbidden):
        log.warning("a log may not be read", extra={"why": str(error)})
        return ApiError("cluster_unavailable", "The cluster does not let the controller read logs.")
    return ApiError("cluster_unavailable")


async def _send_text(stream: EventStream, *, log: LogText) -> None:
    try:
        async for piece in log.pieces:
            await stream.write(piece)
    except (KubeError, StorageUnavailable) as error:
        # The response has begun: that it breaks off is all that can be said.
        raise ConnectionError("the log cannot be read to its end") from error


async def _send_prefixed(stream: EventStream, log: LogText, prefix: bytes) -> None:
    """Send a log, each of its lines behind *prefix*."""
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
        # It broke off within a line, perhaps: what is said of that is a line of its own.
        await stream.write(b"\n" * (not at_start))
        raise
    if not at_start:
        await stream.write(b"\n")
