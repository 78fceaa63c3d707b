"""Takes jobs: all checks at once, then all or each into the store, then the reconciler's turn.

First what pure code finds, then what the API server says to a dry run of what is new and passed.
What is in the store was accepted; what was accepted is submitted, whatever dies meanwhile. The
orchestrator names each job, so asking again after a lost answer does nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final

from controller.jobs.pipeline.border import PluginFailed
from controller.jobs.pipeline.pipeline import Pipeline, Plan
from controller.jobs.spec.accepted import is_as_asked, public_spec
from controller.jobs.spec.model import Job
from controller.jobs.spec.problems import JobRejected, Problem
from controller.jobs.submission.batches import (
    Mode,
    NewBatch,
    Submitted,
    is_same_body,
    keep_batch,
    refuse_known,
)
from controller.jobs.submission.completion import Completion, PredecessorJob, artefacts_named
from controller.jobs.submission.dry_run import Allowance, DryRun
from controller.jobs.submission.reservations import refuse_claims, take_claims
from controller.jobs.tools.plans import ToolPlans
from controller.jobs.usage import charged_by
from controller.kube.loop_turn import LoopTurn
from controller.settings import JobDefaults
from controller.store.database import Store, Transaction
from controller.store.errors import AlreadyThere
from controller.store.instance import read_maintenance
from controller.store.jobs.batches import BatchRecord
from controller.store.jobs.between_jobs.places import HeldPlace
from controller.store.jobs.job_rows import JobRecord, find_jobs, hold_jobs, insert_jobs
from controller.store.jobs.tools import AttachedTool, attach_tools
from controller.store.vault import Vault

MOST_TIMEOUTS: Final = 3
"""Of one plugin within a call; then it is asked about no more jobs: whoever calls waits."""

PLANS_AT_ONCE: Final = 100


class Draining(Exception):
    """New jobs are not taken for the time being; the message is the operator's, or empty."""


class Submissions:
    """Accepts jobs.

    Args:
        pipeline: Says what is wrong with a job.
        vault: Seals their secrets.
        defaults: What they get that they do not say, and what it costs.
        clock: Unix seconds.
        wake: Is told the id of a job that the reconciler should look at.
        dry_run: Asks the API server about new jobs; None where it is not to be asked.
    """

    def __init__(
        self,
        *,
        store: Store,
        pipeline: Pipeline,
        vault: Vault,
        defaults: JobDefaults,
        clock: Callable[[], float],
        random: Callable[[int], bytes],
        wake: Callable[[str], None],
        dry_run: DryRun | None = None,
    ) -> None:
        self._store = store
        self._pipeline = pipeline
        self._vault = vault
        self._defaults = defaults
        self._tools = ToolPlans(pipeline, defaults)
        self._clock = clock
        self._random = random
        self._wake = wake
        self._dry_run = dry_run

    async def submit(
        self, jobs: Sequence[Job | JobRejected], mode: Mode, *, batch: NewBatch | None = None
    ) -> list[Submitted]:
        """Return what became of each of *jobs*, in order; ``atomic`` takes all of them or none.

        Args:
            jobs: The jobs; or, for one that could not be read, why.
            mode: Whether one that is not accepted keeps the others out.
            batch: Is made of those that are accepted; where none is, there is none.

        A plugin that fails with one of them keeps none of the others out in best effort.

        Raises:
            BatchExists: If there is a batch of this id.
            StoreUnavailable: If nothing could be kept; asking again is safe.
            PluginFailed: If a plugin fails with one of them, and *mode* is ``atomic``.
            Draining: If one of them would be new while none are taken. Those that were accepted
                before are told so: a call whose answer was lost can still be made again.
        """
        ids = [job.id for job in jobs if isinstance(job, Job)]
        async with self._store.read() as transaction:
            await self._pipeline.learn_from(transaction)
            known = await find_jobs(transaction, ids)
            named = await find_jobs(transaction, artefacts_named(jobs))
        completion = self._completion(jobs, {**known, **named})
        checked = await self._check_all(jobs, completion, known, mode)
        while True:
            # Again where another call was faster: now this one finds what that one added.
            with suppress(AlreadyThere):
                return await self._accept(jobs, checked, mode, batch)

    def is_same(self, record: BatchRecord, body: str) -> bool:
        """Say whether the batch was made of this *body*."""
        return is_same_body(self._vault, record, body)

    async def _accept(
        self,
        jobs: Sequence[Job | JobRejected],
        checked: Sequence[_Checked],
        mode: Mode,
        batch: NewBatch | None,
    ) -> list[Submitted]:
        """Keep what can be accepted, as *mode* says, in one transaction."""
        turn = LoopTurn()
        async with self._store.write() as transaction:
            ids = [job.id for job in jobs if isinstance(job, Job)]
            if batch is not None:
                await refuse_known(transaction, batch.id)
            # Jobs that are there already become the batch's.
            known = await (find_jobs if batch is None else hold_jobs)(transaction, ids)
            results = list[Submitted]()
            for job, one in zip(jobs, checked, strict=True):
                results.append(self._compare(job, one.problems, known, batch))
                await turn.rest()
            places = {
                job.id: one.places
                for job, one in zip(jobs, checked, strict=True)
                if isinstance(job, Job) and one.places
            }
            results = await self._refuse_claims(transaction, jobs, results, places)
            accepted = [result.accepted for result in results]
            if not all(accepted) and (mode == "atomic" or not any(accepted)):
                return results
            new = await self._make_records(jobs, checked, results, batch)
            if new:
                await _refuse_when_draining(transaction)
            if batch is not None:
                now = self._clock()
                await keep_batch(transaction, batch, mode, results, vault=self._vault, now=now)
            await insert_jobs(transaction, [(record, job.labels) for job, record in new])
            by_job = {one.job_id: one.tools for one in checked if not one.problems}
            if tools := [
                replace(tool, asked_at=record.created_at)
                for _, record in new
                for tool in by_job[record.id]
            ]:
                await attach_tools(transaction, tools)
            for job, record in new:
                await take_claims(
                    transaction,
                    job,
                    places=places.get(job.id, {}).values(),
                    now=record.created_at,
                    random=self._random,
                )
                await turn.rest()
        for job, _ in new:
            self._wake(job.id)
        return results

    async def _make_records(
        self,
        jobs: Sequence[Job | JobRejected],
        checked: Sequence[_Checked],
        results: Sequence[Submitted],
        batch: NewBatch | None,
    ) -> list[tuple[Job, JobRecord]]:
        """Return the jobs that are to be created, with what is kept of each."""
        new, turn = list[tuple[Job, JobRecord]](), LoopTurn()
        for index, (job, one) in enumerate(zip(jobs, checked, strict=True)):
            if not isinstance(job, Job) or results[index].result != "created":
                continue
            record = self._record(one.completed or job, one.namespace)
            record = replace(record, tools=len(one.tools))
            if batch is not None:
                record = replace(record, batch=batch.id, batch_index=index)
            new.append((job, record))
            await turn.rest()
        return new

    async def _refuse_claims(
        self,
        transaction: Transaction,
        jobs: Sequence[Job | JobRejected],
        results: Sequence[Submitted],
        places: Mapping[str, Mapping[str, HeldPlace]],
    ) -> list[Submitted]:
        """Return *results*, with those refused that want what others have or what is not there."""
        new = {
            job.id: job
            for job, result in zip(jobs, results, strict=True)
            if isinstance(job, Job) and result.result == "created"
        }
        places = {id_: named for id_, named in places.items() if id_ in new}
        refused = await refuse_claims(transaction, new, places=places, now=self._clock())
        return [
            Submitted(one.id, refused[one.id].result, refused[one.id].problems)
            if one.id in refused
            else one
            for one in results
        ]

    def _completion(
        self, jobs: Sequence[Job | JobRejected], stored: Mapping[str, JobRecord]
    ) -> Completion:
        """Return what jobs are completed with: of those of this call too, but what is stored."""
        found = {job.id: PredecessorJob.of(job) for job in jobs if isinstance(job, Job)}
        found |= {id_: PredecessorJob.recorded(record) for id_, record in stored.items()}
        return Completion(self._defaults.kinds, found)

    async def _check_all(
        self,
        jobs: Sequence[Job | JobRejected],
        completion: Completion,
        known: Mapping[str, JobRecord],
        mode: Mode,
    ) -> list[_Checked]:
        """Return what is wrong with each; the API server is asked about those that are new.

        A plan is thousands of objects, which each full collection of garbage visits with the loop
        at a stand: so no more than some plans are there at a time.
        """
        checked, timeouts, seen = list[_Checked](), Counter[str](), set[str]()
        allowance = Allowance()
        for start in range(0, len(jobs), PLANS_AT_ONCE):
            some = list[_Checked]()
            for job in jobs[start : start + PLANS_AT_ONCE]:
                one = await self._check_in_time(job, completion, timeouts)
                if one.failure is not None and mode == "atomic" and one.job_id not in known:
                    raise one.failure
                if one.job_id in seen:
                    one.problems += (Problem("id", "is used twice in this call"),)
                seen |= {one.job_id} if one.job_id is not None else set()
                some.append(one)
            # What was accepted before is not asked about again: it was, and its object may be
            # there.
            await self._try_out([one for one in some if one.is_new(known)], allowance)
            for one in some:
                one.forget_plans()
            checked += some
        return checked

    async def _check_in_time(
        self, job: Job | JobRejected, completion: Completion, timeouts: Counter[str]
    ) -> _Checked:
        """Return what is wrong with it; a plugin that was too slow thrice is not asked."""
        slow = next((name for name, n in timeouts.items() if n >= MOST_TIMEOUTS), None)
        if isinstance(job, Job) and slow is not None:
            failure = PluginFailed(slow, "on_create", "it was too slow for others of this call")
            return _Checked.failed(job, failure)
        one = await self._check(job, completion)
        if one.failure is not None and one.failure.slow:
            timeouts[one.failure.plugin] += 1
        return one

    async def _check(self, job: Job | JobRejected, completion: Completion) -> _Checked:
        if isinstance(job, JobRejected):
            return _Checked(job.problems)
        # Here alone: what was accepted is tried again and adopted whatever the lists say by then.
        images = self._defaults.images
        refused = tuple(images.problems(job)) if images is not None else ()
        try:
            self._pipeline.refuse_unclaimed(job)
            job, problems = completion.complete(job)
            refused += (*problems, *self._defaults.kinds.problems(job))
            plan = await self._pipeline.plan(job)
            tools = await self._tools.of_new(job, plan, now=0.0) if job.tools else []
        except JobRejected as rejected:
            return _Checked((*refused, *rejected.problems), job_id=job.id)
        except PluginFailed as failure:
            return _Checked.failed(job, failure)
        return _Checked(
            refused,
            plan,
            job,
            namespace=plan.volcano_job.namespace,
            places=plan.places,
            job_id=job.id,
            tools=tuple(planned.tool for planned in tools),
            tool_plans=tuple(planned.plan for planned in tools),
        )

    async def _try_out(self, checked: Sequence[_Checked], allowance: Allowance) -> None:
        """Add what the API server has against those that nothing is known against.

        Of a job that it takes, it is asked about the tools as well.
        """
        if self._dry_run is None:
            return
        jobs = [(one, "", one.plan) for one in checked if one.plan is not None]
        await _ask(self._dry_run, jobs, allowance)
        tools = [
            (one, f"tools[{index}]", plan)
            for one in checked
            for index, plan in enumerate(one.tool_plans if not one.problems else ())
        ]
        await _ask(self._dry_run, tools, allowance)

    def _compare(
        self,
        job: Job | JobRejected,
        problems: tuple[Problem, ...],
        known: Mapping[str, JobRecord],
        batch: NewBatch | None,
    ) -> Submitted:
        if isinstance(job, JobRejected):
            return Submitted(None, "rejected", problems)
        # What was accepted once stays accepted, also by a version that would refuse it today.
        existing = known.get(job.id)
        if existing is not None:
            is_others = batch is not None and batch.refuses(existing)
            same = not is_others and self._same(job, existing)
            return Submitted(job.id, "unchanged" if same else "conflict")
        return Submitted(job.id, "rejected" if problems else "created", problems)

    def _same(self, job: Job, record: JobRecord) -> bool:
        if not is_as_asked(record.spec, job):
            return False
        secrets = job.secrets()
        if record.fingerprint is None:
            # Adopted from the cluster, where secrets cannot be read: the rest must do.
            return True
        return self._vault.matches(job.id, secrets, record.fingerprint)

    def _record(self, job: Job, namespace: str) -> JobRecord:
        secrets = job.secrets()
        return JobRecord(
            id=job.id,
            owner_user=job.owner.user,
            owner_project=job.owner.project,
            namespace=namespace,
            spec=public_spec(job),
            sealed=self._vault.seal(job.id, secrets, random=self._random) if secrets else None,
            fingerprint=self._vault.fingerprint(job.id, secrets),
            created_at=self._clock(),
            allocated_seconds=job.time_allocation_seconds,
            **charged_by(job, self._defaults),
        )


async def _ask(
    dry_run: DryRun, plans: Sequence[tuple[_Checked, str, Plan]], allowance: Allowance
) -> None:
    """Add what the API server has against *plans*, below a path within the job of each."""
    if plans:
        found = await dry_run.problems_of([plan for _, _, plan in plans], allowance)
        for (one, where, _), problems in zip(plans, found, strict=True):
            one.problems += tuple(each.under(where) for each in problems)


async def _refuse_when_draining(transaction: Transaction) -> None:
    # In the transaction that inserts: once a drain has been answered, nothing is taken any more.
    now = await read_maintenance(transaction)
    if now.mode == "draining":
        raise Draining(now.message or "")


@dataclass(slots=True)
class _Checked:
    """What is wrong with a job by itself.

    ``plan`` is what would be made of it, and ``tool_plans`` of its ``tools``, until the API server
    was asked; ``completed``, the job as it is kept, ``namespace`` and ``places`` are the plan's.
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
    def failed(cls, job: Job, failure: PluginFailed) -> _Checked:
        """Return that it cannot be said, since a plugin failed."""
        text = f"the plugin {failure.plugin} failed; that is no fault of the job's: try again"
        return cls((Problem("", text),), job_id=job.id, failure=failure)

    def forget_plans(self) -> None:
        """Keep what was planned no longer."""
        self.plan, self.tool_plans = None, ()

    def is_new(self, known: Mapping[str, JobRecord]) -> bool:
        """Say whether nothing is wrong with it so far, and it is not among *known*."""
        return self.plan is not None and not self.problems and self.plan.job.id not in known
