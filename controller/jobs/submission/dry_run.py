"""Asks the API server what it would say to jobs, before they are accepted.

A quota, an admission webhook, a queue that nobody made: only the server knows. It is asked for a
dry run of the VolcanoJob, and what it refuses is answered like any other mistake. Only what is
wrong with the job itself refuses it: what is still to be made (its namespace, our rights there, its
queue) and what passes (a server that is away or busy) says nothing about it. A submission is never
lost because it cannot be asked: then the job is accepted, and is refused later if it must be.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Final, Literal

from controller.jobs.cluster.verdicts import QUEUE_NOT_OPEN, QUEUE_UNSEEN, row_of, verdict_on
from controller.jobs.pipeline.pipeline import Plan
from controller.jobs.spec.model import Job
from controller.jobs.spec.problems import Problem
from controller.jobs.spec.validation import problems_with
from controller.kube.client import Kube
from controller.kube.errors import Forbidden, KubeError, NotFound, Throttled, Unavailable
from controller.kube.kinds import QUEUES, VCJOBS
from controller.volcano.reasons.denials import findings_of

# Webhooks are anybody's, and say as much as they like.
_MOST_PROBLEMS: Final = 100
_LONGEST_TEXT: Final = 2000


def lacks_dry_run(refusal: KubeError) -> bool:
    """Say whether a webhook keeps the server from making dry runs of anything like this.

    ``admissionregistration.k8s.io/v1`` takes only webhooks without side effects; older ones may
    be there still.
    """
    return row_of(refusal).name == "no dry run"


def problems_in(refusal: KubeError, job: Job) -> list[Problem]:
    """Return what is wrong with *job*; nothing where that is not what the refusal is about."""
    if verdict_on(refusal, "dry_run") != "final":
        return []
    found = findings_of(refusal.message, refusal.details)
    kept = [(path, text[:_LONGEST_TEXT]) for path, text in found if not _may_pass(text, job)]
    return problems_with(job, kept[:_MOST_PROBLEMS])


def _may_pass(text: str, job: Job) -> bool:
    if QUEUE_UNSEEN in text:
        # One that the job names is made by operators, before anybody names it.
        return job.queue is None
    return QUEUE_NOT_OPEN.search(text) is not None


AT_ONCE: Final = 16
MOST_SECONDS: Final = 10.0
"""How long one call waits for the server altogether, however many jobs it has."""

REST_SECONDS: Final = 5.0
"""How long a server is left alone that did not answer; who submits meanwhile waits for nothing."""

NO_DRY_RUN_SECONDS: Final = 300.0
"""How long it is left alone when one of its webhooks cannot take part."""

Problems = tuple[Problem, ...]
Answer = Literal["passed", "refused", "unsure", "untried"]
"""``unsure``: the server did not answer, or what it said is not about the job."""

log = logging.getLogger(__name__)


@dataclass(slots=True)
class Allowance:
    """How long one call may still wait for the server."""

    seconds: float = MOST_SECONDS


class DryRun:
    """Has the server try jobs, a few at once.

    Args:
        seconds: How long it has for one answer.
        clock: Monotonic seconds.
        count: Is told how each job was answered.
    """

    def __init__(
        self,
        kube: Kube,
        *,
        seconds: float,
        clock: Callable[[], float],
        count: Callable[[Answer], None] = lambda _: None,
    ) -> None:
        self._kube = kube
        self._seconds = seconds
        self._clock = clock
        self._count = count
        self._places = asyncio.Semaphore(AT_ONCE)
        self._resting_until = 0.0

    async def problems_of(
        self, plans: Sequence[Plan], allowance: Allowance | None = None
    ) -> list[Problems]:
        """Return what the server has against each of *plans*; nothing where it does not say.

        The time that it takes is taken from the *allowance*, which is the call's.
        """
        allowance = allowance or Allowance()
        found: list[Problems] = [() for _ in plans]
        answers: list[Answer] = ["untried" for _ in plans]

        async def ask(index: int) -> None:
            async with self._places:
                if self._clock() >= self._resting_until:
                    answers[index], found[index] = await self._ask(plans[index])

        if allowance.seconds:
            async with self._within(allowance), asyncio.TaskGroup() as tasks:
                for index in range(len(plans)):
                    tasks.create_task(ask(index))
        for answer in answers:
            self._count(answer)
        return found

    @asynccontextmanager
    async def _within(self, allowance: Allowance) -> AsyncIterator[None]:
        """End what takes longer than what is left of *allowance*."""
        began = self._clock()
        try:
            async with asyncio.timeout(allowance.seconds):
                yield
        except TimeoutError:
            log.warning("not every job of a call was tried")
            allowance.seconds = 0.0
        else:
            allowance.seconds = max(0.0, allowance.seconds - (self._clock() - began))

    async def _ask(self, plan: Plan) -> tuple[Answer, Problems]:
        job = plan.volcano_job
        try:
            async with asyncio.timeout(self._seconds):
                await self._kube.try_create(VCJOBS, job.manifest(), job.namespace)
        except TimeoutError:
            self._rest(REST_SECONDS, f"no answer within {self._seconds:g} s")
        except KubeError as refusal:
            is_down = isinstance(refusal, Unavailable | Throttled)
            if is_down and verdict_on(refusal, "dry_run") != "final":
                self._rest(max(REST_SECONDS, refusal.retry_after_seconds or 0.0), str(refusal))
            if lacks_dry_run(refusal):
                self._rest(NO_DRY_RUN_SECONDS, str(refusal))
            problems = tuple(problems_in(refusal, plan.job))
            if not problems and isinstance(refusal, NotFound | Forbidden):
                # Refused before Volcano's webhook was asked: an owner's first job.
                problems = await self._queue_problems(plan)
            return ("refused", problems) if problems else ("unsure", ())
        else:
            return "passed", ()
        return "unsure", ()

    async def _queue_problems(self, plan: Plan) -> Problems:
        """Return that the queue which the job names is not there, if that is sure."""
        queue = plan.job.queue
        if queue is None:
            return ()
        try:
            async with asyncio.timeout(self._seconds):
                await self._kube.get(QUEUES, queue)
        except NotFound as error:
            # Without Volcano there is no such resource, and nobody says which queue is missing.
            if error.details.get("name") == queue:
                return (Problem("queue", f"there is no queue {queue}"),)
        except (KubeError, TimeoutError):
            return ()
        return ()

    def _rest(self, seconds: float, why: str) -> None:
        now = self._clock()
        if now >= self._resting_until:  # told once, not by each job that was under way
            log.warning("jobs are accepted untried", extra={"why": why, "seconds": seconds})
        self._resting_until = max(self._resting_until, now + seconds)
