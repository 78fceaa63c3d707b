"""Plans of a job's tools: plugins and the API server check them as they check a job."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from controller.jobs.history.unreadable import read_known
from controller.jobs.pipeline.pipeline import Pipeline, Plan
from controller.jobs.spec.model import Job
from controller.jobs.spec.problems import JobRejected, Problem
from controller.jobs.tools.shape import is_bound_to_node, make_tool_job, tool_spec, unshared_folders
from controller.jobs.usage.demand import charged_by
from controller.settings import JobDefaults
from controller.store.jobs.job_rows import JobRecord
from controller.store.jobs.tools import AttachedTool

TryOut = Callable[[Sequence[Plan]], Awaitable[Sequence[Sequence[Problem]]]]
"""Returns what the API server has against plans."""


@dataclass(frozen=True, slots=True)
class PlannedTool:
    """A tool that a job asks for, and what would be made of a run of it."""

    tool: AttachedTool
    plan: Plan


class ToolPlans:
    """Says what would be run for tools.

    Args:
        pipeline: The plugins.
        defaults: The deployment's tools, and what jobs get that they do not say.
        try_out: Asks the API server; None where it is not to be asked.
    """

    def __init__(
        self, pipeline: Pipeline, defaults: JobDefaults, *, try_out: TryOut | None = None
    ) -> None:
        self._pipeline = pipeline
        self._try_out = try_out
        self._defaults = defaults
        self.declared = defaults.pods.tools

    async def of_new(self, job: Job, plan: Plan, *, now: float) -> list[PlannedTool]:
        """Return the tools that a job which is being submitted asks for, in its order.

        The API server is not asked: a submission asks it about all of its jobs at once.

        Raises:
            JobRejected: With what is wrong with them.
            PluginFailed: If a plugin fails.
        """
        problems = list(self._problems(job.tools))
        made = list[PlannedTool]()
        for index, name in enumerate(job.tools if not problems else ()):
            try:
                made.append(await self._plan(job, plan, name, rank=0, now=now))
            except JobRejected as rejected:
                problems += [one.under(f"tools[{index}]") for one in rejected.problems]
        if problems:
            raise JobRejected(problems)
        return made

    def _problems(self, names: Sequence[str]) -> list[Problem]:
        found = [
            Problem(f"tools[{index}]", "there is no such tool")
            for index, name in enumerate(names)
            if name not in self.declared.tools
        ]
        found += [
            Problem(f"tools[{index}]", "is there twice")
            for index, name in enumerate(names)
            if name in names[:index]
        ]
        if len(names) > self.declared.most_per_job:
            found.append(Problem("tools", f"at most {self.declared.most_per_job} here"))
        return found

    async def make(self, job: Job, plan: Plan, name: str, *, rank: int, now: float) -> AttachedTool:
        """Return the tool *name*, which is declared, at a rank that the job has.

        Raises:
            JobRejected: If it cannot be run, with what a plugin or the API server has against it.
            PluginFailed: If a plugin fails.
        """
        planned = await self._plan(job, plan, name, rank=rank, now=now)
        for problems in await self._try_out([planned.plan]) if self._try_out is not None else ():
            if problems:
                raise JobRejected(problems)
        return planned.tool

    async def _plan(self, job: Job, plan: Plan, name: str, *, rank: int, now: float) -> PlannedTool:
        tool_job = make_tool_job(job, name, self.declared.tools[name])
        namespace = plan.volcano_job.namespace
        made = await self._pipeline.plan(tool_job)
        if made.volcano_job.namespace != namespace:
            # A run is where its job is, which stays where it was accepted, whatever settings say.
            made = await self._pipeline.plan(tool_job, accepted_in=namespace)
        unshared = unshared_folders(plan, job.task_of(rank) or "")
        tool = make_attached(job, name, rank, self._defaults, now=now, unshared=unshared)
        return PlannedTool(tool, made)

    async def plan_of(self, record: JobRecord) -> tuple[Job, Plan]:
        """Return a job that was accepted, and what is made of it.

        Raises:
            JobRejected: If nothing can be made of it any more.
            PluginFailed: If a plugin fails.
        """
        job = read_known(record)
        plan = await self._pipeline.plan(job, accepted_in=record.namespace, submitted=True)
        return job, plan


def make_attached(
    job: Job,
    name: str,
    rank: int,
    defaults: JobDefaults,
    *,
    now: float,
    unshared: Sequence[str] = (),
) -> AttachedTool:
    """Return the tool *name*, which is declared, as it is attached to a rank of the job."""
    declared = defaults.pods.tools
    tool = declared.tools[name]
    made = make_tool_job(job, name, tool)
    near = is_bound_to_node(made, frozenset(declared.shared_volumes))
    return AttachedTool(
        job_id=job.id,
        name=name,
        rank=rank,
        spec=tool_spec(made),
        shape={"near": near, "ready_path": tool.ready_path},
        charged=charged_by(made, defaults),
        unshared=list(unshared),
        asked_at=now,
    )
