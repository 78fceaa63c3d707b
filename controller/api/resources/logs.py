"""``/v1/jobs/{id}/logs``: what a rank's program has written, and what it writes."""

from __future__ import annotations

import codecs
from functools import partial
from typing import Annotated, Final

import aiohttp
from aiohttp import web
from pydantic import Field

from controller.api.error_responses import ApiError, invalid, not_found
from controller.api.operations import EVENTS, TEXT, Operation
from controller.api.query_parameters import Number, Query, read_query
from controller.api.server_sent_events import EventStream, EventStreams
from controller.jobs.history.unreadable import read_known
from controller.jobs.spec.problems import Problem
from controller.kube.client import Kube
from controller.kube.errors import Invalid, KubeError, NotFound
from controller.kube.kinds import PODS
from controller.site.product_list import Catalogue
from controller.store.database import Store
from controller.store.jobs.job_rows import JobRecord, find_job
from controller.store.jobs.pods import PodRecord, pod_records_of
from controller.volcano.names import JOB_CONTAINER

PIECE: Final = 64 << 10
LONGEST_LINE: Final = 64 << 10
"""In characters; a longer one comes in pieces."""

QUIET_SECONDS: Final = 3600.0
ANSWER_SECONDS: Final = 60.0


class LogsQuery(Query):
    """Whose, from where, and whether what follows is waited for."""

    rank: Annotated[Number, Field(le=2**31)] = 0
    follow: bool = False
    tail: Annotated[Number, Field(le=10**6)] | None = None


class Logs:
    """The handlers of the resource."""

    def __init__(
        self, store: Store, kube: Kube, streams: EventStreams, catalogue: Catalogue
    ) -> None:
        self._store = store
        self._kube = kube
        self._streams = streams
        self._catalogue = catalogue

    def operations(self) -> list[Operation]:
        """Return what is offered."""
        return [
            Operation(
                method="GET",
                path="/v1/jobs/{id}/logs",
                summary="Read what a rank's program writes",
                handler=self.show,
                query=LogsQuery,
                media=(TEXT, EVENTS),
            )
        ]

    async def show(self, request: web.Request) -> web.StreamResponse:
        """Send the log of the rank's last pod: as text, or as events while it is written."""
        wanted = read_query(request, LogsQuery)
        record, run = await self._find(request.match_info["id"], wanted.rank)
        query = {"container": JOB_CONTAINER}
        if wanted.tail is not None:
            query["tailLines"] = str(wanted.tail)
        if wanted.follow:
            query["follow"] = "true"
        quiet = QUIET_SECONDS if wanted.follow else ANSWER_SECONDS
        path = PODS.path(record.namespace, run.pod, "log")
        try:
            async with self._kube.stream(path, query, quiet_seconds=quiet) as content:
                kind, send = (EVENTS, _send_events) if wanted.follow else (TEXT, _send_text)
                return await self._streams.run(request, kind, partial(send, content=content))
        except KubeError as error:
            raise _refused(error) from None

    async def _find(self, job_id: str, rank: int) -> tuple[JobRecord, PodRecord]:
        async with self._store.read() as transaction:
            record = await find_job(transaction, job_id)
            if record is None:
                raise not_found("job")
            runs = [run for run in await pod_records_of(transaction, job_id) if run.rank == rank]
        if not self._catalogue.offers(record.product, "logs"):
            raise ApiError(409, "not_offered", "The job's product offers no logs.")
        if read_known(record).task_of(rank) is None:
            raise invalid([Problem("rank", "the job has no such rank")])
        started = [run for run in runs if run.started_at is not None]
        if not started:
            raise ApiError(409, "not_started", "This rank has not run yet.")
        last = max(started, key=lambda run: (run.attempt, run.seen_at, run.started_at or 0.0))
        return record, last


def _refused(error: KubeError) -> ApiError:
    if isinstance(error, NotFound):
        return ApiError(410, "gone", "The pod is gone, and its log with it.")
    if isinstance(error, Invalid):
        return ApiError(409, "not_started", "This rank's container does not run yet.")
    return ApiError(503, "cluster_unavailable", "The cluster does not answer; try again later.")


async def _send_text(stream: EventStream, *, content: aiohttp.StreamReader) -> None:
    async for piece in content.iter_chunked(PIECE):
        await stream.write(piece)


async def _send_events(stream: EventStream, *, content: aiohttp.StreamReader) -> None:
    # A character can come in two pieces; what is none is shown as such, and breaks nothing off.
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    pending = ""
    try:
        async for piece in content.iter_any():
            *lines, pending = (pending + decoder.decode(piece)).split("\n")
            for line in lines:
                await _send_line(stream, line)
            while len(pending) > LONGEST_LINE:
                await stream.event("piece", pending[:LONGEST_LINE])
                pending = pending[LONGEST_LINE:]
    except (aiohttp.ClientError, TimeoutError):
        await stream.event("broken", {"message": "the cluster sends no more"})
        return
    if pending:
        await _send_line(stream, pending)
    await stream.event("end", {})


async def _send_line(stream: EventStream, line: str) -> None:
    while len(line) > LONGEST_LINE:
        await stream.event("piece", line[:LONGEST_LINE])
        line = line[LONGEST_LINE:]
    await stream.event("line", line)
