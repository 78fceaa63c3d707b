"""Checks jobs before they are accepted, and completes what is stored with them.

First come the checks without I/O, then a dry run on the API server for new jobs that passed them. A
job is completed with the defaults of its kind, and with the folders of its predecessors' artefacts.
Both are stored, since settings change and records of predecessors are deleted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Literal

from controller.jobs.pipeline.border import PluginFailed
from controller.jobs.pipeline.pipeline import Pipeline, Plan
from controller.jobs.spec.accepted import output_of, owner_of
from controller.jobs.spec.model import MOST_PARAMETERS, Job, OwnerKey, owner_key
from controller.jobs.spec.parameters import LONGEST_PATH, ArtefactsParameter, Parameter
from controller.jobs.spec.problems import JobRejected, Problem, make_path
from controller.jobs.submission.dry_run import DryRun, TimeBudget
from controller.jobs.tools.plans import ToolPlans
from controller.site.job_defaults import JobDefaults
from controller.site.kinds import Kinds
from controller.store.jobs.folders import HeldPlace
from controller.store.jobs.job_rows import JobRecord
from controller.store.jobs.tools import AttachedTool

Mode = Literal["atomic", "best_effort"]
Result = Literal["created", "unchanged", "conflict", "rejected"]

MOST_TIMEOUTS: Final = 3
"""The maximum number of timeouts of one plugin in a call; after that, the plugin is not called for
the other jobs of the call.
"""

PLANS_AT_ONCE: Final = 100
ARTEFACTS: Final = "artefacts"
"""The folder in a job's output that other jobs may read."""


@dataclass(frozen=True, slots=True)
class PredecessorJob:
    """A job that may be a predecessor: its owner and its output."""

    owner: OwnerKey
    output: str | None


def artefacts_named(jobs: Sequence[Job | JobRejected]) -> set[str]:
    """Return the ids of jobs whose artefacts *jobs* read."""
    accepted = (job for job in jobs if isinstance(job, Job))
    return {one.job for job in accepted for _, one in _artefacts(job)}


class Completion:
    """Completes jobs.

    Args:
        kinds: The declared kinds of jobs.
        predecessors: The jobs whose artefacts may be read, by id.
    """

    def __init__(self, kinds: Kinds, predecessors: Mapping[str, PredecessorJob]) -> None:
        self._kinds = kinds
        self._predecessors = predecessors

    def complete(self, job: Job) -> tuple[Job, list[Problem]]:
        """Return the completed *job*, and why something cannot be completed."""
        problems: list[Problem] = []
        update: dict[str, Any] = {}
        filled: list[str] = []
        parameters: dict[str, Parameter] = {}
        kind = self._kinds.kinds.get(job.kind or "")
        if kind is not None:
            parameters |= kind.defaults(job)
            filled += [f"parameters.{name}" for name in parameters]
            if job.framework is None and kind.framework is not None:
                update["framework"] = kind.framework
                filled.append("framework")
        for name, parameter in _artefacts(job):
            found = self._folder(job, name, parameter)
            if isinstance(found, Problem):
                problems.append(found)
            else:
                parameters[name] = parameter.model_copy(update={"path": found})
                filled.append(f"parameters.{name}.path")
        parameters = {**job.parameters, **parameters}
        if len(parameters) > MOST_PARAMETERS:
            text = f"with those of its kind, it has more than {MOST_PARAMETERS}"
            return job, [*problems, Problem("parameters", text)]
        if not filled:
            return job, problems
        update |= {"parameters": parameters, "filled": sorted(filled)}
        return job.model_copy(update=update), problems

    def _folder(self, job: Job, name: str, parameter: ArtefactsParameter) -> str | Problem:
        where = make_path(["parameters", name, "job"])
        if parameter.path is not None:
            return Problem(make_path(["parameters", name, "path"]), "unknown field")
        if parameter.job not in job.after:
            return Problem(where, "is not listed in after")
        one = self._predecessors.get(parameter.job)
        # Another owner's job is reported as a missing one.
        if one is None or one.owner != owner_key(job.owner):
            return Problem(where, "there is no such job")
        if one.output is None:
            return Problem(where, "has no output, and so no artefacts")
        path = f"{one.output}/{ARTEFACTS}"
        if len(path) > LONGEST_PATH:
            return Problem(where, "has artefacts whose path is too long")
        return path


def _artefacts(job: Job) -> Iterator[tuple[str, ArtefactsParameter]]:
    for name, parameter in job.parameters.items():
        if isinstance(parameter, ArtefactsParameter):
            yield name, parameter


@dataclass(slots=True)
class CheckResult:
    """The result of checking one job by itself.

    ``plan`` and ``tool_plans`` are the plans of the job and its ``tools``, until the dry run is
    done. ``completed`` is the job as it is stored; ``namespace`` and ``places`` are the plan's.
    """

    problems: tuple[Problem, ...]
    plan: Plan | None = None
    completed: Job | None = None
    namespace: str = ""
    places: Mapping[str, HeldPlace] = field(default_factory=dict)
    job_id: str | None = None
    failure: PluginFailed | None = None
    tools: tuple[AttachedTool, ...] = ()
    tool_plans: tuple[Plan, ...] = ()

    @classmethod
    def failed(cls, job: Job, failure: PluginFailed) -> CheckResult:
        """Return the result for a job that could not be checked, since a plugin failed."""
        text = f"the plugin {failure.plugin} failed; that is no fault of the job's: try again"
        return cls((Problem("", text),), job_id=job.id, failure=failure)

    def forget_plans(self) -> None:
        """Drop the plans."""
        self.plan, self.tool_plans = None, ()

    def is_new(self, known: Mapping[str, JobRecord]) -> bool:
        """Return whether it has no problems so far, and is not among *known*."""
        return self.plan is not None and not self.problems and self.plan.job.id not in known


@dataclass(frozen=True, slots=True)
class SubmissionResult:
    """The result of submitting one job.

    - ``created``: the job is new and accepted.
    - ``unchanged``: exactly this job exists.
    - ``conflict``: another job with this id exists, or another job or owner holds a claimed
      resource (see ``problems``).
    - ``rejected``: the job cannot be run as requested.
    """

    id: str | None
    result: Result
    problems: tuple[Problem, ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether the job is accepted."""
        return self.result in ("created", "unchanged")


class JobChecks:
    """Checks jobs.

    Args:
        dry_run: Tries new jobs on the API server; None: no dry runs.
    """

    def __init__(self, pipeline: Pipeline, defaults: JobDefaults, dry_run: DryRun | None) -> None:
        self._pipeline = pipeline
        self._defaults = defaults
        self._tools = ToolPlans(pipeline, defaults)
        self._dry_run = dry_run

    async def check_all(
        self,
        jobs: Sequence[Job | JobRejected],
        known: Mapping[str, JobRecord],
        named: Mapping[str, JobRecord],
        mode: Mode,
    ) -> list[CheckResult]:
        """Return the result of each check; new jobs are tried on the API server.

        A plan is thousands of objects, and each full garbage collection visits them while the event
        loop stands still. So only some plans exist at a time.

        Args:
            jobs: The jobs, or the problems of a job that could not be read.
            known: The stored jobs among them, by id.
            named: Stored jobs whose artefacts the jobs read, by id.
            mode: Whether one rejected job rejects all.

        Raises:
            PluginFailed: If a plugin fails with one of them, and *mode* is ``atomic``.
        """
        completion = self._completion(jobs, {**known, **named})
        checked, timeouts, seen = list[CheckResult](), Counter[str](), set[str]()
        allowance = TimeBudget()
        for start in range(0, len(jobs), PLANS_AT_ONCE):
            some = list[CheckResult]()
            for job in jobs[start : start + PLANS_AT_ONCE]:
                one = await self._check_in_time(job, completion, timeouts)
                if one.failure is not None and mode == "atomic" and one.job_id not in known:
                    raise one.failure
                if one.job_id in seen:
                    one.problems += (Problem("id", "is used twice in this call"),)
                seen |= {one.job_id} if one.job_id is not None else set()
                some.append(one)
            # Jobs that were accepted before are not tried again: their objects may exist.
            await self._dry_run_new([one for one in some if one.is_new(known)], allowance)
            for one in some:
                one.forget_plans()
            checked += some
        return checked

    async def _check_in_time(
        self, job: Job | JobRejected, completion: Completion, timeouts: Counter[str]
    ) -> CheckResult:
        """Return the result; a plugin that timed out three times is not called."""
        slow = next((name for name, n in timeouts.items() if n >= MOST_TIMEOUTS), None)
        if isinstance(job, Job) and slow is not None:
            failure = PluginFailed(slow, "on_create", "it was too slow for others of this call")
            return CheckResult.failed(job, failure)
        one = await self._check(job, completion)
        if one.failure is not None and one.failure.slow:
            timeouts[one.failure.plugin] += 1
        return one

    async def _check(self, job: Job | JobRejected, completion: Completion) -> CheckResult:
        if isinstance(job, JobRejected):
            return CheckResult(job.problems)
        # Checked here only: an accepted job is retried and adopted even if the lists have changed
        # by then.
        images = self._defaults.images
        refused = tuple(images.problems(job)) if images is not None else ()
        wrong_tools = tuple(self._tools.problems(job)) if job.tools else ()
        refused += wrong_tools
        try:
            self._pipeline.refuse_unclaimed(job)
            job, problems = completion.complete(job)
            refused += tuple(problems)
            if job.kind is not None:
                refused += tuple(self._defaults.kinds.problems(job))
            plan = await self._pipeline.plan(job)
            asks_for_tools = job.tools and not wrong_tools
            tools = await self._tools.of_new(job, plan, now=0.0) if asks_for_tools else []
        except JobRejected as rejected:
            return CheckResult((*refused, *rejected.problems), job_id=job.id)
        except PluginFailed as failure:
            return CheckResult.failed(job, failure)
        return CheckResult(
            refused,
            plan,
            job,
            namespace=plan.volcano_job.namespace,
            places=plan.places,
            job_id=job.id,
            tools=tuple(planned.tool for planned in tools),
            tool_plans=tuple(planned.plan for planned in tools),
        )

    async def _dry_run_new(self, checked: Sequence[CheckResult], allowance: TimeBudget) -> None:
        """Add the API server's problems with jobs that have none so far, and with their tools."""
        if self._dry_run is None:
            return
        jobs = [(one, "", one.plan) for one in checked if one.plan is not None]
        await _add_problems(self._dry_run, jobs, allowance)
        tools = [
            (one, f"tools[{index}]", plan)
            for one in checked
            for index, plan in enumerate(one.tool_plans if not one.problems else ())
        ]
        await _add_problems(self._dry_run, tools, allowance)

    def _completion(
        self, jobs: Sequence[Job | JobRejected], stored: Mapping[str, JobRecord]
    ) -> Completion:
        """Return what completes jobs: from those of this call, and from stored ones."""
        found = {
            job.id: PredecessorJob(owner_key(job.owner), job.output)
            for job in jobs
            if isinstance(job, Job)
        }
        found |= {
            id_: PredecessorJob(owner_of(record), output_of(record.spec))
            for id_, record in stored.items()
        }
        return Completion(self._defaults.kinds, found)


async def _add_problems(
    dry_run: DryRun, plans: Sequence[tuple[CheckResult, str, Plan]], allowance: TimeBudget
) -> None:
    """Add the API server's problems with *plans*, each below a path within its job."""
    if plans:
        found = await dry_run.problems_of([plan for _, _, plan in plans], allowance)
        for (one, where, _), problems in zip(plans, found, strict=True):
            one.problems += tuple(each.under(where) for each in problems)
