"""Attaches tools to jobs, and removes them; the reconciler runs them.

The plugins check a tool as they check a job, with the tools that the deployment declares. So a tool
that cannot run is refused when it is requested.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import Final

from controller.jobs.history.job_record import CommandRefused, read_known, refuse_ending
from controller.jobs.spec.model import Job
from controller.jobs.spec.problems import JobRejected, Problem
from controller.jobs.tools.plans import ToolPlans, endpoint_of, make_attached
from controller.jobs.tools.runs import REMOVED, RunOf, ShownTool, show_tool
from controller.site.job_defaults import JobDefaults
from controller.store.database import Store, Transaction
from controller.store.instance import read_maintenance
from controller.store.jobs.job_rows import (
    JobRecord,
    find_job,
    lock_job,
    lock_jobs,
    request_end,
    update_and_notify,
)
from controller.store.jobs.tools import (
    AttachedTool,
    ask_again,
    attach_tools,
    detach_tool,
    find_tool,
    runs_of,
    set_run,
    tools_of,
)
from controller.store.sessions.session_rows import end_sessions_at

_REMOVED_SESSION: Final = "tool_removed"
_CHARGED: Final = ("product", "price", "cpu", "memory", "gpu")


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolView:
    """A tool of a job as the API shows it."""

    tool: AttachedTool
    run: JobRecord | None
    shown: ShownTool


@dataclass(slots=True, eq=False, repr=False)
class Tools:
    """Tools as the API offers them."""

    store: Store
    _: KW_ONLY
    plans: ToolPlans
    clock: Callable[[], float]
    """Unix seconds."""
    enqueue: Callable[[str], None]
    """Called with the id of a job or a run to reconcile."""
    routes: Callable[[str], None]
    """Called with the id of a job whose sessions have changed."""

    async def attach(self, job_id: str, name: str, *, rank: int) -> tuple[ToolView, bool] | None:
        """Attach the tool; return it, and whether it is new. None if there is no such job.

        A tool that is attached already stays as it is, unless it has ended by itself: then it runs
        again.

        Raises:
            JobRejected: If there is no such tool or rank, or it cannot be run.
            CommandRefused: If the job is over, or about to be, or no jobs are accepted now.
            StoreUnavailable: If it could not be stored.
        """
        async with self.store.read() as transaction:
            record = await find_job(transaction, job_id)
            known = await find_tool(transaction, (job_id, name, rank))
            view = None
            if record is not None and known is not None:
                view = await _view(transaction, known, record)
        if record is None:
            return None
        refuse_ending(record)
        if view is None:
            self._check(record, name, rank)
        elif view.shown.state != "ENDED":
            return view, False
        made = None
        if name in self.plans.declared.tools:
            job, plan = await self.plans.plan_of(record)
            try:
                made = await self.plans.make(job, plan, name, rank=rank, now=self.clock())
            except JobRejected as rejected:
                # The declaration of the tool is wrong, and not the job or the call.
                raise JobRejected(one.under("tool") for one in rejected.problems) from None
        async with self.store.write() as transaction:
            view, new = await self._keep(transaction, job_id, (job_id, name, rank), made)
        self.enqueue(job_id)
        return view, new

    def _check(self, record: JobRecord, name: str, rank: int) -> None:
        job = read_known(record)
        problems = []
        if name not in self.plans.declared.tools:
            problems.append(Problem("tool", "there is no such tool"))
        if not 0 <= rank < job.ranks:
            problems.append(Problem("rank", f"the job has ranks 0 to {job.ranks - 1}"))
        if problems:
            raise JobRejected(problems)

    async def _keep(
        self,
        transaction: Transaction,
        job_id: str,
        place: tuple[str, str, int],
        made: AttachedTool | None,
    ) -> tuple[ToolView, bool]:
        record = await lock_job(transaction, job_id)
        if record is None:
            raise CommandRefused("over", "the job is over")
        refuse_ending(record)
        tools = await tools_of(transaction, job_id)
        there = next((one for one in tools if one.place == place), None)
        if there is not None:
            view = await _view(transaction, there, record)
            if view.shown.state != "ENDED" or made is None:
                return view, False
        elif made is None:
            raise JobRejected([Problem("tool", "there is no such tool")])
        elif len(tools) >= self.plans.declared.most_per_job:
            raise JobRejected([Problem("tool", f"the job has {len(tools)} tools already")])
        if (await read_maintenance(transaction)).mode == "draining":
            raise CommandRefused("draining", "no tools are taken for the time being")
        if there is not None:
            await ask_again(transaction, made)
            made = replace(made, run=there.run)
        else:
            await attach_tools(transaction, [made])
        # The leader notices the tool by the job's revision.
        count = len(tools) + (there is None)
        record = await update_and_notify(transaction, record, now=self.clock(), tools=count)
        return await _view(transaction, made, record), True

    async def list(self, job_id: str) -> list[ToolView] | None:
        """Return the tools of the job; None if there is no such job."""
        async with self.store.read() as transaction:
            record = await find_job(transaction, job_id)
            if record is None:
                return None
            tools = await tools_of(transaction, job_id)
            runs = await runs_of(transaction, tools)
        return [
            ToolView(tool=one, run=_run(one, runs), shown=show_tool(one, _run(one, runs), record))
            for one in tools
        ]

    async def find(self, job_id: str, name: str, *, rank: int) -> ToolView | None:
        """Return the tool; None if it is not attached."""
        views = await self.list(job_id) or []
        return next((one for one in views if (one.tool.name, one.tool.rank) == (name, rank)), None)

    async def remove(self, job_id: str, name: str, *, rank: int) -> bool | None:
        """Remove the tool, and end its run and its sessions; return whether it was attached.

        None if there is no such job.

        Raises:
            StoreUnavailable: If it could not be stored; a repetition is safe.
        """
        place = job_id, name, rank
        async with self.store.write() as transaction:
            known = await find_tool(transaction, place)
            if known is None:
                return False if await find_job(transaction, job_id) is not None else None
            # Lock order: jobs before the revision, and in the order of their ids.
            held = await lock_jobs(transaction, {job_id, known.run or job_id})
            # Read after the lock: on PostgreSQL another call may have removed it while this one
            # waited.
            tools = await tools_of(transaction, job_id)
            tool = next((one for one in tools if one.place == place), None)
            if job_id not in held or tool is None:
                return False if job_id in held else None
            await self._detach(transaction, tool, held, left=len(tools) - 1)
        for one in sorted({job_id, tool.run or job_id}):
            self.enqueue(one)
        self.routes(job_id)
        return True

    async def _detach(
        self,
        transaction: Transaction,
        tool: AttachedTool,
        held: Mapping[str, JobRecord],
        *,
        left: int,
    ) -> None:
        """Remove the tool and end its sessions; *held* has the records of its job and run."""
        now = self.clock()
        await detach_tool(transaction, tool)
        # A run that began after the tool was read is not locked: its own reconcile ends it.
        run = held.get(tool.run or "")
        if run is not None and not run.is_final:
            await request_end(transaction, run, now=now, how=REMOVED)
        await update_and_notify(transaction, held[tool.job_id], now=now, tools=left)
        await end_sessions_at(
            transaction,
            tool.job_id,
            endpoint=endpoint_of(tool.name),
            rank=tool.rank,
            reason=_REMOVED_SESSION,
            now=now,
        )


def adopted_tools(job: Job, defaults: JobDefaults, *, now: float) -> list[AttachedTool]:
    """Return the tools that an adopted job requested when it was accepted.

    The files of the job that these tools do not see are not known any more.
    """
    declared = defaults.pods.tools
    found = [name for name in job.tools if name in declared.tools]
    return [make_attached(job, name, 0, defaults, now=now) for name in found]


async def adopt_run(transaction: Transaction, run: JobRecord, of: RunOf) -> None:
    """Attach an adopted run to its tool, if the tool's job is known.

    Otherwise it ends. It also ends if its tool has a later run, or if its owner is not the job's.
    """
    record = await lock_job(transaction, of.job)
    if record is None or _whose(record) != _whose(run):
        return
    place = of.job, of.name, of.rank
    there = await find_tool(transaction, place)
    known = {} if there is None else await runs_of(transaction, [there])
    if any(one.created_at >= run.created_at for one in known.values()):
        return
    tool = AttachedTool(
        job_id=of.job,
        name=of.name,
        rank=of.rank,
        spec={field: value for field, value in run.spec.items() if field != "id"},
        shape={"near": of.near, "ready_path": of.ready_path},
        charged={field: getattr(run, field) for field in _CHARGED},
        unshared=of.unshared,
        asked_at=of.asked_at,
    )
    await attach_tools(transaction, [tool])
    if there is not None:
        await ask_again(transaction, tool)
    await set_run(transaction, tool, run.id)
    count = len(await tools_of(transaction, of.job))
    await update_and_notify(transaction, record, now=run.created_at, tools=count)


def _whose(record: JobRecord) -> tuple[str, str, str | None]:
    return record.namespace, record.owner_user, record.owner_project


async def _view(transaction: Transaction, tool: AttachedTool, record: JobRecord) -> ToolView:
    run = _run(tool, await runs_of(transaction, [tool]))
    return ToolView(tool=tool, run=run, shown=show_tool(tool, run, record))


def _run(tool: AttachedTool, runs: dict[str, JobRecord]) -> JobRecord | None:
    return runs.get(tool.run) if tool.run is not None else None
