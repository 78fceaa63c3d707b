"""``/v1/jobs/{id}/metrics``: the resource usage of a job's ranks and tools, with a short series."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

from aiohttp import web
from pydantic import Field

from controller.api.error_responses import not_found, or_not_found
from controller.api.operations import JSON, operation
from controller.api.parts import ApiParts
from controller.api.requests import WHOLE, Number, Query
from controller.api.resources.tasks import task_views
from controller.api.response_models import (
    JobMetrics,
    MetricSeries,
    MetricValues,
    RankMetrics,
    TaskView,
    ToolMetrics,
)
from controller.jobs.history.job_record import read_known
from controller.loop_turn import LoopTurn
from controller.resource_metrics.sampler import POINTS, Sample, summed
from controller.resource_metrics.sources import METRICS, Metric, Missing, PodKey
from controller.store.database import Transaction
from controller.store.jobs.job_rows import JobRecord, find_job
from controller.store.jobs.progress import pod_records_of
from controller.store.jobs.tools import AttachedTool, runs_of, tools_of

MOST_SAMPLES: Final = 6000
"""The most samples in one response: enough for all samples of a hundred ranks."""


class MetricsQuery(Query):
    """Selects a rank, and the length of the series."""

    rank: Number | None = Field(
        default=None, description="Only this rank and its tools; by default all ranks."
    )
    points: Annotated[int, Field(ge=0, le=POINTS), WHOLE] = Field(
        default=POINTS, description="The most samples in each series."
    )


@operation(
    "GET",
    "/v1/jobs/{id}/metrics",
    "getMetrics",
    "Get the resource usage of a job's ranks and tools",
)
async def show(
    api: ApiParts, request: web.Request, query: MetricsQuery
) -> Annotated[web.Response, JobMetrics]:
    """Return the usage of each running rank and tool, and the reasons for missing values."""
    async with api.store.read() as transaction:
        record = or_not_found(await find_job(transaction, request.match_info["id"]), "job")
        runs = await pod_records_of(transaction, record.id, record.attempt)
        tools = await _tools(transaction, record) if record.tools else []
    tasks = task_views(record, read_known(record), runs)
    if query.rank is not None:
        tasks = [one for one in tasks if one.rank == query.rank]
        if not tasks:
            raise not_found("rank")
        tools = [(tool, task) for tool, task in tools if tool.rank == query.rank]
    points = min(query.points, MOST_SAMPLES // (len(tasks) + len(tools)))
    items, samples, turn = list[RankMetrics](), list[Sample](), LoopTurn()
    for task in tasks:
        found = _samples(api, record.namespace, task, most=max(1, points))
        shown = _shown(api, task, found, points)
        items.append(
            RankMetrics(rank=task.rank, task=task.task, index=task.index, pod=task.pod, **shown)
        )
        samples += found
        await turn.rest()
    together = summed(samples)
    now = _now(api, together)
    response = JobMetrics(
        id=record.id,
        attempt=record.attempt,
        interval_seconds=api.metrics.interval,
        sampled_at=api.metrics.sampled_at,
        values=_values(now),
        missing=_missing(api, now, is_running=any(one.state == "RUNNING" for one in tasks)),
        series=_series(together, points),
        items=items,
        tools=[_tool(api, tool, task, record.namespace, points) for tool, task in tools],
    )
    return web.Response(text=response.model_dump_json(), content_type=JSON)


def _samples(api: ApiParts, namespace: str, task: TaskView, *, most: int) -> list[Sample]:
    if task.pod is None or task.started_at is None:
        return []
    # A pod that Volcano recreated has the name of the previous one; its start tells them apart.
    key = PodKey(namespace, task.pod)
    return api.metrics.history.of(key, since=task.started_at, most=most)


def _now(api: ApiParts, samples: Sequence[Sample]) -> Mapping[Metric, float]:
    """Return the last sample's values, unless the last round of sampling lacks this pod."""
    is_now = bool(samples) and samples[-1].at == api.metrics.sampled_at
    return samples[-1].values if is_now else {}


def _missing(
    api: ApiParts, known: Mapping[Metric, float], *, is_running: bool
) -> dict[Metric, Missing]:
    missing = api.metrics.missing
    return {
        metric: missing.get(metric, "not_measured") if is_running else "not_running"
        for metric in METRICS
        if metric not in known
    }


def _tool(
    api: ApiParts, tool: AttachedTool, task: TaskView | None, namespace: str, points: int
) -> ToolMetrics:
    found = _samples(api, namespace, task, most=max(1, points)) if task is not None else []
    pod = None if task is None else task.pod
    shown = _shown(api, task, found, points)
    return ToolMetrics(tool=tool.name, rank=tool.rank, pod=pod, **shown)


def _shown(
    api: ApiParts, task: TaskView | None, samples: Sequence[Sample], points: int
) -> dict[str, Any]:
    is_running = task is not None and task.state == "RUNNING"
    now = _now(api, samples) if is_running else {}
    return {
        "values": _values(now),
        "missing": _missing(api, now, is_running=is_running),
        "series": _series(samples, points),
    }


async def _tools(
    transaction: Transaction, record: JobRecord
) -> list[tuple[AttachedTool, TaskView | None]]:
    """Return the job's tools, each with the one rank of its last run if there is one."""
    tools = await tools_of(transaction, record.id)
    runs = await runs_of(transaction, tools)
    found = list[tuple[AttachedTool, TaskView | None]]()
    for tool in tools:
        run, task = runs.get(tool.run or ""), None
        if run is not None:
            pods = await pod_records_of(transaction, run.id, run.attempt)
            (task,) = task_views(run, read_known(run), pods)
        found.append((tool, task))
    return found


def _values(known: Mapping[Metric, float]) -> MetricValues:
    return MetricValues.model_validate({metric: known.get(metric) for metric in METRICS})


def _series(samples: Sequence[Sample], points: int) -> MetricSeries:
    samples = samples[max(0, len(samples) - points) :]
    columns = {metric: [one.values.get(metric) for one in samples] for metric in METRICS}
    return MetricSeries.model_validate({"at": [one.at for one in samples], **columns})
