"""What the cluster keeps of a job, for a store that knows nothing of it. No I/O.

Nothing is written to a VolcanoJob once it is made: an update has Volcano look at it at once, and
what it sees then it may take for the job's end, before it asks the job's policies. So what is
known at its making is in its annotations; its first start is read from its pods; and only what
neither of them say is in a ConfigMap beside it.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from controller.store.jobs.job_rows import JobRecord
from controller.volcano.names import (
    ALLOCATION_ANNOTATION,
    CREATED_ANNOTATION,
    EVICTIONS_ANNOTATION,
    FIRST_START_ANNOTATION,
    RETRIES_USED_ANNOTATION,
    TOOL_ANNOTATION,
    companion_name,
)
from controller.volcano.observed import ObservedJob, ObservedPod
from shared.numbers import decimal_number, whole_number

_FIRST_START: Final = "first-start"
_ALLOCATION: Final = "allocated-seconds"
_MOST: Final = 10**6
_A_MOMENT_SECONDS: Final = 1.0
"""Kubernetes' times are whole seconds."""


def recovery_name(job_id: str) -> str:
    """Return the name of the ConfigMap that keeps what nothing else in the cluster says."""
    return companion_name(job_id, "recovery")


def annotations_of(record: JobRecord) -> dict[str, str]:
    """Return what the VolcanoJob of a further attempt says of those before it.

    That of a tool's run says whose it is.
    """
    found: dict[str, str] = {}
    if record.started_at is not None:
        found[FIRST_START_ANNOTATION] = repr(record.started_at)
        if record.allocated_seconds is not None:
            found[ALLOCATION_ANNOTATION] = repr(record.allocated_seconds)
    if record.retries_used:
        found[RETRIES_USED_ANNOTATION] = str(record.retries_used)
    if record.tool is not None:
        found[TOOL_ANNOTATION] = json.dumps(record.tool, sort_keys=True)
    if record.evictions:
        found[EVICTIONS_ANNOTATION] = str(record.evictions)
    return found


def to_keep(record: JobRecord, job: ObservedJob, pods: Iterable[ObservedPod]) -> str | None:
    """Return what is to be kept beside the VolcanoJob, as JSON; None where nothing is.

    What was once kept stays: pods come and go.
    """
    if record.started_at is None:
        return None
    told = recovered(job, pods, {}, allocated=record.spec.get("time_allocation_seconds"))
    late = told.started_at is None or abs(told.started_at - record.started_at) > _A_MOMENT_SECONDS
    if not late and told.allocated_seconds == record.allocated_seconds and record.kept is None:
        return None
    kept = {_FIRST_START: repr(record.started_at)}
    if record.allocated_seconds is not None:
        kept[_ALLOCATION] = repr(record.allocated_seconds)
    return json.dumps(kept, sort_keys=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What the cluster says of a job's past."""

    started_at: float | None
    allocated_seconds: float | None
    retries_used: int
    evictions: int


def recovered(
    job: ObservedJob,
    pods: Iterable[ObservedPod],
    kept: Mapping[str, Any],
    *,
    allocated: float | None,
) -> Recovered:
    """Return what the cluster says of a job's past.

    Args:
        job: Its VolcanoJob; those that an older version has written to say more than is needed.
        pods: Pods of the job.
        kept: The data of the ConfigMap beside it, if there is one.
        allocated: The time that it was given when it was accepted.
    """
    created = decimal_of(job.annotations.get(CREATED_ANNOTATION)) or job.created_at
    starts = [pod.started_at for pod in pods if pod.owner_uid == job.uid and pod.started_at]
    known = [
        decimal_of(job.annotations.get(FIRST_START_ANNOTATION)),
        decimal_of(kept.get(_FIRST_START)),
        max(created, min(starts)) if starts else None,
    ]
    return Recovered(
        started_at=min((at for at in known if at is not None), default=None),
        allocated_seconds=decimal_of(kept.get(_ALLOCATION))
        or decimal_of(job.annotations.get(ALLOCATION_ANNOTATION))
        or allocated,
        retries_used=_count(job.annotations.get(RETRIES_USED_ANNOTATION)),
        evictions=_count(job.annotations.get(EVICTIONS_ANNOTATION)),
    )


def decimal_of(text: object) -> float | None:
    """Return the number that *text* is; None where it is none."""
    return decimal_number(text) if isinstance(text, str) else None


def _count(text: str | None) -> int:
    return whole_number(text or "", most=_MOST) or 0
