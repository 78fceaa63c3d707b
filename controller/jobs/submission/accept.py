"""Takes jobs: all checks at once, then all or each into the store, then the reconciler's turn.

What is in the store was accepted; what was accepted is submitted, whatever dies meanwhile. The
orchestrator names each job, so asking again after a lost answer does nothing.

A batch is there with all of its jobs, or not at all. So whatever dies meanwhile, asking again with
the same id either finds the batch or makes it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

from controller.jobs.pipeline.pipeline import Pipeline
from controller.jobs.spec.accepted import Vault, is_as_asked, public_spec
from controller.jobs.spec.endpoints import has_claims
from controller.jobs.spec.model import Job, Owner
from controller.jobs.spec.problems import JobRejected, Problem
from controller.jobs.spec.validation import charged_by
from controller.jobs.submission.checking import Checked, JobChecks, Mode, Submitted, artefacts_named
from controller.jobs.submission.dry_run import DryRun
from controller.jobs.submission.reservations import refuse_claims, take_claims
from controller.kube.loop_turn import LoopTurn
from controller.settings import JobDefaults
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
from controller.store.jobs.between_jobs import HeldPlace
from controller.store.jobs.job_rows import JobRecord, find_jobs, insert_jobs, lock_jobs
from controller.store.jobs.tools import attach_tools
from shared.errors import FumaroleError

_BOUND_TO: Final = "batch/"
"""No job's id begins so: a fingerprint of a batch is none of a job."""


class BatchExists(FumaroleError):
    """There is a batch of this id."""

    def __init__(self, record: BatchRecord) -> None:
        super().__init__(f"there is a batch {record.id}")
        self.record = record


@dataclass(frozen=True, slots=True, kw_only=True)
class NewBatch:
    """A batch that is asked for.

    ``body`` is all that was said, as one text; of each item there are its ``parameters``, and what
    its job is called, None where nothing readable says so.
    """

    id: str
    owner: Owner
    body: str
    parameters: Sequence[Mapping[str, Any]]
    job_ids: Sequence[str | None]

    def refuses(self, record: JobRecord) -> bool:
        """Say whether a job that is there cannot be one of the batch: it is another batch's."""
        return record.batch not in (None, self.id)


def is_same_body(vault: Vault, record: BatchRecord, body: str) -> bool:
    """Say whether the batch was made of this *body*."""
    return vault.matches(_BOUND_TO + record.id, {"body": body}, record.fingerprint)


async def refuse_known(transaction: Transaction, batch_id: str) -> None:
    """Do nothing where there is no such batch.

    Raises:
        BatchExists: If there is.
    """
    record = await find_batch(transaction, batch_id)
    if record is not None:
        raise BatchExists(record)


async def keep_batch(
    transaction: Transaction,
    batch: NewBatch,
    mode: Mode,
    results: Sequence[Submitted],
    *,
    vault: Vault,
    now: float,
) -> None:
    """Keep the batch, and what became of each of its items.

    Jobs that are there already and in no batch, which this transaction holds, become its own: their
    batch was lost with the store, or is made of jobs that were sent one by one.

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
    """New jobs are not taken for the time being; the message is the operator's, or empty."""


class Submissions:
    """Accepts jobs.

    Args:
        pipeline: Says what is wrong with a job.
        vault: Seals their secrets.
        defaults: What they get that they do not say, and what it costs.
        clock: Unix seconds.
        enqueue: Is told the id of a job that the reconciler should look at.
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
        enqueue: Callable[[str], None],
        dry_run: DryRun | None = None,
    ) -> None:
        self._store = store
        self._pipeline = pipeline
        self._vault = vault
        self._defaults = defaults
        self._checks = JobChecks(pipeline, defaults, dry_run)
        self._clock = clock
        self._random = random
        self._enqueue = enqueue

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
        checked = await self._checks.check_all(jobs, known, named, mode)
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
        checked: Sequence[Checked],
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
            known = await (find_jobs if batch is None else lock_jobs)(transaction, ids)
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
            claiming = [one for one in new if has_claims(one[0]) or one[0].id in places]
            for job, record in claiming:
                await take_claims(
                    transaction,
                    job,
                    places=places.get(job.id, {}).values(),
                    now=record.created_at,
                    random=self._random,
                )
                await turn.rest()
        for job, _ in new:
            self._enqueue(job.id)
        return results

    async def _make_records(
        self,
        jobs: Sequence[Job | JobRejected],
        checked: Sequence[Checked],
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
        if not places and not any(map(has_claims, new.values())):
            return list(results)
        refused = await refuse_claims(transaction, new, places=places, now=self._clock())
        return [refused.get(one.id or "", one) for one in results]

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


async def _refuse_when_draining(transaction: Transaction) -> None:
    # In the transaction that inserts: once a drain has been answered, nothing is taken any more.
    now = await read_maintenance(transaction)
    if now.mode == "draining":
        raise Draining(now.message or "")
