"""Accepts jobs: checks the jobs of a call, stores all or each, and enqueues them.

A stored job is accepted, and an accepted job is submitted, even if a process stops meanwhile. The
orchestrator names each job, so a call that is repeated after a lost response changes nothing.

A batch is stored with all of its jobs, or not at all. So a repetition with the same id either finds
the batch or creates it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import InitVar, asdict, dataclass, field, replace
from typing import Any, Final

from controller.jobs.pipeline.pipeline import Pipeline
from controller.jobs.spec.accepted import Vault, is_as_requested, public_spec
from controller.jobs.spec.model import Job, Owner
from controller.jobs.spec.problems import JobRejected, Problem
from controller.jobs.submission.checking import (
    CheckResult,
    JobChecks,
    Mode,
    SubmissionResult,
    artefacts_named,
)
from controller.jobs.submission.dry_run import DryRun
from controller.jobs.submission.reservations import refuse_claims, take_claims
from controller.loop_turn import LoopTurn
from controller.site.job_defaults import JobDefaults
from controller.store.database import Store, Transaction
from controller.store.errors import AlreadyThere
from controller.store.instance import read_maintenance
from controller.store.jobs.batches import (
    BatchItem,
    BatchRecord,
    add_to_batch,
    find_batch,
    insert_batch,
)
from controller.store.jobs.folders import HeldPlace
from controller.store.jobs.job_rows import JobRecord, find_jobs, insert_jobs, lock_jobs
from controller.store.jobs.tools import attach_tools
from shared.errors import FumaroleError

_BOUND_TO: Final = "batch/"
"""No job's id has this prefix: a batch's fingerprint is never a job's."""


class BatchExists(FumaroleError):
    """There is a batch with this id."""

    def __init__(self, record: BatchRecord) -> None:
        super().__init__(f"there is a batch {record.id}")
        self.record = record


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBatch:
    """A requested batch.

    ``body`` is the whole request as one text. For each item there are its ``parameters`` and its
    job id, which is None if it cannot be read.
    """

    id: str
    owner: Owner
    body: str
    parameters: Sequence[Mapping[str, Any]]
    job_ids: Sequence[str | None]

    def refuses(self, record: JobRecord) -> bool:
        """Return whether an existing job belongs to another batch."""
        return record.batch not in (None, self.id)


async def refuse_known(transaction: Transaction, batch_id: str) -> None:
    """Check that there is no such batch.

    Raises:
        BatchExists: If there is one.
    """
    record = await find_batch(transaction, batch_id)
    if record is not None:
        raise BatchExists(record)


async def keep_batch(
    transaction: Transaction,
    batch: NewBatch,
    mode: Mode,
    results: Sequence[SubmissionResult],
    *,
    vault: Vault,
    now: float,
) -> None:
    """Store the batch, and the result of each of its items.

    Existing jobs without a batch, which this transaction has locked, join it: their batch was lost
    with the store, or consists of jobs that were submitted singly.

    Raises:
        AlreadyThere: If another call was faster.
    """
    record = BatchRecord(
        id=batch.id,
        owner_user=batch.owner.user,
        owner_project=batch.owner.project,
        mode=mode,
        fingerprint=vault.fingerprint(_BOUND_TO + batch.id, {"body": batch.body}),
        created_at=now,
        items=len(results),
        jobs=sum(one.accepted for one in results),
    )
    items = [
        BatchItem(
            index=index,
            job_id=one.id or batch.job_ids[index],
            result=one.result,
            parameters=batch.parameters[index],
            problems=[asdict(problem) for problem in one.problems] or None,
        )
        for index, one in enumerate(results)
    ]
    await insert_batch(transaction, record, items)
    joining = {
        one.id: index
        for index, one in enumerate(results)
        if one.id is not None and one.result == "unchanged"
    }
    await add_to_batch(transaction, batch.id, joining)


class Draining(Exception):
    """New jobs are not accepted now; the message is the operator's, or empty."""


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class Submissions:
    """Accepts jobs."""

    store: Store
    pipeline: Pipeline
    """Checks jobs."""
    vault: Vault
    """Seals their secrets."""
    defaults: JobDefaults
    """Resources and prices of jobs that name none."""
    clock: Callable[[], float]
    """Unix seconds."""
    random: Callable[[int], bytes]
    enqueue: Callable[[str], None]
    """Called with the id of a job to reconcile."""
    dry_run: InitVar[DryRun | None] = None
    """Tries new jobs on the API server; None: no dry runs."""
    _checks: JobChecks = field(init=False)

    def __post_init__(self, dry_run: DryRun | None) -> None:
        self._checks = JobChecks(self.pipeline, self.defaults, dry_run)

    async def submit(
        self, jobs: Sequence[Job | JobRejected], mode: Mode, *, batch: NewBatch | None = None
    ) -> list[SubmissionResult]:
        """Return the result of each of *jobs*, in order; ``atomic`` accepts all of them or none.

        In best effort, the other jobs are accepted although a plugin fails with one.

        Args:
            jobs: The jobs, or the problems of a job that could not be read.
            mode: Whether one rejected job rejects all.
            batch: The batch of the accepted jobs, if any.

        Raises:
            BatchExists: If there is a batch with this id.
            StoreUnavailable: If nothing could be stored; a repetition is safe.
            PluginFailed: If a plugin fails with one of them, and *mode* is ``atomic``.
            Draining: If one of them is new, and no new jobs are accepted. Jobs that were accepted
                before are still reported, so that a call whose response was lost can be repeated.
        """
        ids = [job.id for job in jobs if isinstance(job, Job)]
        async with self.store.read() as transaction:
            await self.pipeline.learn_from(transaction)
            known = await find_jobs(transaction, ids)
            named = await find_jobs(transaction, artefacts_named(jobs))
        checked = await self._checks.check_all(jobs, known, named, mode)
        while True:
            # Repeated if another call was faster: the repetition finds the jobs of that call.
            with suppress(AlreadyThere):
                return await self._accept(jobs, checked, mode, batch)

    def is_same(self, record: BatchRecord, body: str) -> bool:
        """Return whether the batch was created from this *body*."""
        return self.vault.matches(_BOUND_TO + record.id, {"body": body}, record.fingerprint)

    async def _accept(
        self,
        jobs: Sequence[Job | JobRejected],
        checked: Sequence[CheckResult],
        mode: Mode,
        batch: NewBatch | None,
    ) -> list[SubmissionResult]:
        """Store the jobs that *mode* accepts, in one transaction."""
        turn = LoopTurn()
        async with self.store.write() as transaction:
            ids = [job.id for job in jobs if isinstance(job, Job)]
            if batch is not None:
                await refuse_known(transaction, batch.id)
            # Existing jobs join the batch.
            known = await (find_jobs if batch is None else lock_jobs)(transaction, ids)
            results = list[SubmissionResult]()
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
                now = self.clock()
                await keep_batch(transaction, batch, mode, results, vault=self.vault, now=now)
            await insert_jobs(transaction, [(record, job.labels) for job, record in new])
            by_job = {one.job_id: one.tools for one in checked if not one.problems}
            if tools := [
                replace(tool, asked_at=record.created_at)
                for _, record in new
                for tool in by_job[record.id]
            ]:
                await attach_tools(transaction, tools)
            claiming = [one for one in new if _has_claims(one[0]) or one[0].id in places]
            for job, record in claiming:
                await take_claims(
                    transaction,
                    job,
                    places=places.get(job.id, {}).values(),
                    now=record.created_at,
                    random=self.random,
                )
                await turn.rest()
        for job, _ in new:
            self.enqueue(job.id)
        return results

    async def _make_records(
        self,
        jobs: Sequence[Job | JobRejected],
        checked: Sequence[CheckResult],
        results: Sequence[SubmissionResult],
        batch: NewBatch | None,
    ) -> list[tuple[Job, JobRecord]]:
        """Return the jobs to create, each with its record."""
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
        results: Sequence[SubmissionResult],
        places: Mapping[str, Mapping[str, HeldPlace]],
    ) -> list[SubmissionResult]:
        """Return *results*, in which jobs are refused whose claims conflict or name nothing."""
        new = {
            job.id: job
            for job, result in zip(jobs, results, strict=True)
            if isinstance(job, Job) and result.result == "created"
        }
        places = {id_: named for id_, named in places.items() if id_ in new}
        if not places and not any(map(_has_claims, new.values())):
            return list(results)
        refused = await refuse_claims(transaction, new, places=places, now=self.clock())
        return [refused.get(one.id or "", one) for one in results]

    def _compare(
        self,
        job: Job | JobRejected,
        problems: tuple[Problem, ...],
        known: Mapping[str, JobRecord],
        batch: NewBatch | None,
    ) -> SubmissionResult:
        if isinstance(job, JobRejected):
            return SubmissionResult(None, "rejected", problems)
        # An accepted job stays accepted, even if this version would reject it.
        existing = known.get(job.id)
        if existing is not None:
            is_others = batch is not None and batch.refuses(existing)
            same = not is_others and self._same(job, existing)
            return SubmissionResult(job.id, "unchanged" if same else "conflict")
        return SubmissionResult(job.id, "rejected" if problems else "created", problems)

    def _same(self, job: Job, record: JobRecord) -> bool:
        if not is_as_requested(record.spec, job):
            return False
        secrets = job.secrets()
        if record.fingerprint is None:
            # Adopted from the cluster, which does not show secrets: the rest is compared.
            return True
        return self.vault.matches(job.id, secrets, record.fingerprint)

    def _record(self, job: Job, namespace: str) -> JobRecord:
        secrets = job.secrets()
        return JobRecord(
            id=job.id,
            owner_user=job.owner.user,
            owner_project=job.owner.project,
            namespace=namespace,
            spec=public_spec(job),
            sealed=self.vault.seal(job.id, secrets, random=self.random) if secrets else None,
            fingerprint=self.vault.fingerprint(job.id, secrets),
            created_at=self.clock(),
            allocated_seconds=job.time_allocation_seconds,
            **self.defaults.charged_by(job, self.defaults.pods.catalogue),
        )


def _has_claims(job: Job) -> bool:
    """Return whether the job claims public names, sessions or connections to other jobs."""
    return bool(job.links or job.after or job.peers() or job.endpoints_with_url())


async def _refuse_when_draining(transaction: Transaction) -> None:
    # In the inserting transaction: once a drain is confirmed, no more jobs are accepted.
    now = await read_maintenance(transaction)
    if now.mode == "draining":
        raise Draining(now.message or "")
