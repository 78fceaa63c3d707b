"""Remembers which companions the tries of a submission have applied.

A submission may be tried many times, because a quota is exhausted, another job's address is awaited
or the API server throttles. A repetition applies only what was not applied yet, or is planned
differently now. Otherwise each try would write all companions again, and add to the load for which
the API server throttles.

No I/O. What others delete meanwhile is found within a few minutes, and restored like the companions
of running jobs.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Final

from controller.jobs.pipeline.builder import Companion
from controller.store.jobs.job_rows import JobRecord
from controller.store.jobs.progress import CompanionRecord

APPLIED_SECONDS: Final = 300.0
"""How long a companion is not applied again."""
MOST_JOBS: Final = 2000

Key = tuple[str, str]
Attempt = tuple[int, float]


@dataclass(frozen=True, slots=True)
class _Applied:
    """A companion as it exists; ``digest`` identifies what was planned."""

    digest: str
    made: CompanionRecord
    until: float


@dataclass(frozen=True, slots=True)
class _OfJob:
    attempt: Attempt
    namespace: str
    applied: dict[Key, _Applied] = field(default_factory=dict)


class AppliedCompanions:
    """The companions of jobs that are being submitted; bounded in time and number.

    Args:
        clock: Monotonic seconds.
    """

    def __init__(self, *, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._jobs: dict[str, _OfJob] = {}

    def find(self, record: JobRecord, companion: Companion) -> CompanionRecord | None:
        """Return the companion if this attempt has applied it recently, exactly as planned now."""
        job = self._jobs.get(record.id)
        if job is None or job.attempt != _attempt_of(record):
            return None
        found = job.applied.get((companion.kind, companion.name))
        if found is None or self._clock() >= found.until or found.digest != _digest(companion):
            return None
        return found.made

    def keep(self, record: JobRecord, companion: Companion, made: CompanionRecord) -> None:
        """Remember that *companion* was applied, and exists as *made*."""
        job = self._jobs.pop(record.id, None)
        if job is None or job.attempt != _attempt_of(record):
            job = _OfJob(_attempt_of(record), record.namespace)
        if len(self._jobs) >= MOST_JOBS:
            del self._jobs[next(iter(self._jobs))]  # of which no companion was applied for longest
        self._jobs[record.id] = job
        until = self._clock() + APPLIED_SECONDS
        key = companion.kind, companion.name
        job.applied[key] = _Applied(_digest(companion), made, until)

    def forget(self, job_id: str) -> None:
        """Forget the job's companions: it is submitted, or never will be."""
        self._jobs.pop(job_id, None)

    def forget_namespace(self, namespace: str) -> None:
        """Forget all companions in *namespace*: they may be gone with it."""
        gone = [job_id for job_id, one in self._jobs.items() if one.namespace == namespace]
        for job_id in gone:
            del self._jobs[job_id]


def _attempt_of(record: JobRecord) -> Attempt:
    return record.attempt, record.created_at


def _digest(companion: Companion) -> str:
    # Of a Secret, no value is kept.
    return hashlib.sha256(json.dumps(asdict(companion), sort_keys=True).encode()).hexdigest()
