"""What became of the jobs of one call, and a batch, in the transaction that accepts its jobs.

A batch is there with all of them, or not at all. So whatever dies meanwhile, asking again with the
same id either finds the batch or makes it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal

from controller.jobs.spec.model import Owner
from controller.jobs.spec.problems import Problem
from controller.store.database import Transaction
from controller.store.jobs.batches import (
    BatchItem,
    BatchRecord,
    add_to_batch,
    find_batch,
    insert_batch,
)
from controller.store.jobs.job_rows import JobRecord
from controller.store.vault import Vault
from shared.errors import FumaroleError

Mode = Literal["atomic", "best_effort"]


@dataclass(frozen=True, slots=True)
class Submitted:
    """What became of one job.

    ``unchanged``: it was there already, exactly like this. ``conflict``: one of this id is there
    and is another, or somebody else has what it claims (then ``problems`` say what). ``rejected``:
    it cannot be run as it was asked for.
    """

    id: str | None
    result: Literal["created", "unchanged", "conflict", "rejected"]
    problems: tuple[Problem, ...] = ()

    @property
    def accepted(self) -> bool:
        """Whether the job runs or will."""
        return self.result in ("created", "unchanged")


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
