"""Tries jobs on the API server before they are accepted.

Only the server knows about quotas, admission webhooks and missing queues. The controller requests a
dry run of the VolcanoJob, and a refusal is reported as any other problem. Only a problem of the job
itself rejects the job. A missing prerequisite (the namespace, the permissions there, the queue) and
a temporary failure (an unavailable or busy server) are no problems of the job. An unavailable
server never prevents a submission: the job is then accepted, and may be refused later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import KW_ONLY, dataclass, field
from typing import Final, Literal

from prometheus_client import CollectorRegistry, Counter

from controller.jobs.cluster.verdicts import QUEUE_NOT_OPEN, QUEUE_UNSEEN, row_of, verdict_on
from controller.jobs.pipeline.pipeline import Plan
from controller.jobs.spec.job_paths import problems_with
from controller.jobs.spec.model import Job
from controller.jobs.spec.problems import Problem
from controller.kube.client import Kube
from controller.kube.errors import Forbidden, KubeError, NotFound, Throttled, Unavailable
from controller.kube.kinds import QUEUES, VCJOBS
from controller.volcano.reasons.denials import findings_of

# Anybody can write a webhook, so its messages are bounded.
_MOST_PROBLEMS: Final = 100
_LONGEST_TEXT: Final = 2000


def lacks_dry_run(refusal: KubeError) -> bool:
    """Return whether a webhook prevents dry runs of any such object.

    ``admissionregistration.k8s.io/v1`` allows only webhooks without side effects, but older ones
    may exist.
    """
    return row_of(refusal).name == "no dry run"


def problems_in(refusal: KubeError, job: Job) -> list[Problem]:
    """Return what is wrong with *job*; nothing if the refusal is not about the job."""
    if verdict_on(refusal, "dry_run") != "final":
        return []
    found = findings_of(refusal.message, refusal.details)
    kept = [(path, text[:_LONGEST_TEXT]) for path, text in found if not _may_pass(text, job)]
    return problems_with(job, kept[:_MOST_PROBLEMS])


def _may_pass(text: str, job: Job) -> bool:
    if QUEUE_UNSEEN in text:
        # Operators create a queue before a job may name it.
        return job.queue is None
    return QUEUE_NOT_OPEN.search(text) is not None


AT_ONCE: Final = 16
MOST_SECONDS: Final = 10.0
"""The longest time for which one call waits for the server, whatever the number of its jobs."""

REST_SECONDS: Final = 5.0
"""The pause after a server did not respond; submissions do not wait meanwhile."""

NO_DRY_RUN_SECONDS: Final = 300.0
"""The pause after a webhook did not support dry runs."""

Problems = tuple[Problem, ...]
DryRunResult = Literal["passed", "refused", "unsure", "untried"]
"""``unsure``: the server did not respond, or its refusal is not about the job."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class TimeBudget:
    """The time for which one call may still wait for the server."""

    seconds: float = MOST_SECONDS


def count_dry_runs(registry: CollectorRegistry) -> Callable[[DryRunResult], None]:
    """Return a function that counts dry runs of new jobs by their result."""
    results = Counter(
        "fumarole_controller_dry_runs",
        "Dry runs of new jobs, by result",
        ["answer"],
        registry=registry,
    )
    return lambda result: results.labels(result).inc()


@dataclass(slots=True, eq=False, repr=False)
class DryRun:
    """Has the API server try jobs, a few at a time."""

    kube: Kube
    _: KW_ONLY
    seconds: float
    """The timeout of one request."""
    clock: Callable[[], float]
    """Monotonic seconds."""
    count: Callable[[DryRunResult], None] = lambda _: None
    _places: asyncio.Semaphore = field(
        default_factory=lambda: asyncio.Semaphore(AT_ONCE), init=False
    )
    _resting_until: float = field(default=0.0, init=False)

    async def problems_of(
        self, plans: Sequence[Plan], allowance: TimeBudget | None = None
    ) -> list[Problems]:
        """Return the server's problems with each of *plans*; none without a clear response.

        The time is taken from the *allowance* of the call.
        """
        allowance = allowance or TimeBudget()
        found: list[Problems] = [() for _ in plans]
        results: list[DryRunResult] = ["untried" for _ in plans]

        async def try_one(index: int) -> None:
            async with self._places:
                if self.clock() >= self._resting_until:
                    results[index], found[index] = await self._try(plans[index])

        if allowance.seconds:
            async with self._within(allowance), asyncio.TaskGroup() as tasks:
                for index in range(len(plans)):
                    tasks.create_task(try_one(index))
        for result in results:
            self.count(result)
        return found

    @asynccontextmanager
    async def _within(self, allowance: TimeBudget) -> AsyncIterator[None]:
        """Cancel requests that take longer than the rest of *allowance*."""
        began = self.clock()
        try:
            async with asyncio.timeout(allowance.seconds):
                yield
        except TimeoutError:
            log.warning("the dry runs of a call took too long")
            allowance.seconds = 0.0
        else:
            allowance.seconds = max(0.0, allowance.seconds - (self.clock() - began))

    async def _try(self, plan: Plan) -> tuple[DryRunResult, Problems]:
        job = plan.volcano_job
        try:
            async with asyncio.timeout(self.seconds):
                await self.kube.try_create(VCJOBS, job.manifest(), job.namespace)
        except TimeoutError:
            self._rest(REST_SECONDS, f"no response within {self.seconds:g} s")
        except KubeError as refusal:
            is_down = isinstance(refusal, Unavailable | Throttled)
            if is_down and verdict_on(refusal, "dry_run") != "final":
                self._rest(max(REST_SECONDS, refusal.retry_after_seconds or 0.0), str(refusal))
            if lacks_dry_run(refusal):
                self._rest(NO_DRY_RUN_SECONDS, str(refusal))
            problems = tuple(problems_in(refusal, plan.job))
            if not problems and isinstance(refusal, NotFound | Forbidden):
                # Refused before Volcano's webhook was called: the first job of an owner.
                problems = await self._queue_problems(plan)
            return ("refused", problems) if problems else ("unsure", ())
        else:
            return "passed", ()
        return "unsure", ()

    async def _queue_problems(self, plan: Plan) -> Problems:
        """Return a problem if the job's queue is known not to exist."""
        queue = plan.job.queue
        if queue is None:
            return ()
        try:
            async with asyncio.timeout(self.seconds):
                await self.kube.get(QUEUES, queue)
        except NotFound as error:
            # Without Volcano there is no such resource, and the response names no queue.
            if error.details.get("name") == queue:
                return (Problem("queue", f"there is no queue {queue}"),)
        except (KubeError, TimeoutError):
            return ()
        return ()

    def _rest(self, seconds: float, why: str) -> None:
        now = self.clock()
        if now >= self._resting_until:  # logged once, not for each job that was under way
            log.warning(
                "jobs are accepted without a dry run", extra={"why": why, "seconds": seconds}
            )
        self._resting_until = max(self._resting_until, now + seconds)
