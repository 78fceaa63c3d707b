"""Changes a job's record as the leader, unless somebody has asked for something else meanwhile."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from controller.jobs.history.states import Outcome
from controller.jobs.history.unreadable import read_known
from controller.jobs.spec.accepted import lacks_secrets, read_spec
from controller.jobs.spec.model import Job
from controller.plain import without_secrets
from controller.store.database import Store, Transaction
from controller.store.jobs.job_rows import JobRecord, lock_job, move_job
from controller.store.vault import Vault, VaultClosed
from controller.volcano.observed import ObservedPod


class JobRecords:
    """The leader's way to a job's record.

    Args:
        store: Where records are.
        term: The leader's.
        vault: Opens the secrets of jobs that are still to run.
        clock: Unix seconds.
    """

    def __init__(
        self, store: Store, *, term: int, vault: Vault, clock: Callable[[], float]
    ) -> None:
        self._store = store
        self._term = term
        self._vault = vault
        self.clock = clock

    @asynccontextmanager
    async def lead(self) -> AsyncIterator[Transaction]:
        """Give a writing transaction of the leader.

        Raises:
            LeadershipLost: If another one leads; nothing was written.
            StoreUnavailable: If the database does not answer; nothing was written.
        """
        async with self._store.lead(self._term) as transaction:
            yield transaction

    @asynccontextmanager
    async def read(self) -> AsyncIterator[Transaction]:
        """Give a reading transaction."""
        async with self._store.read() as transaction:
            yield transaction

    async def move(
        self, transaction: Transaction, record: JobRecord, **values: Any
    ) -> JobRecord | None:
        """Set *values*, and return the record as it is then, once the transaction ends.

        Nothing is set, and None returned, where somebody has asked for something else since
        *record* was read: it was decided for a job that is no longer so, and the next look decides
        anew.
        """
        now = await self.held(transaction, record)
        if now is None:
            return None
        return await move_job(transaction, now, now=self.clock(), **values)

    async def held(self, transaction: Transaction, record: JobRecord) -> JobRecord | None:
        """Return the job as it is now, held, if what *record* was decided for is still so."""
        now = await lock_job(transaction, record.id)
        if now is None or _what_was_decided_for(now) != _what_was_decided_for(record):
            return None
        return now

    async def remember_removed(
        self, transaction: Transaction, job_id: str, uid: str, *, own: bool = False
    ) -> None:
        """Remember that the deletion of the VolcanoJob *uid* was accepted, whatever is wished.

        Its pods count from then on if it is the job's *own*, of its current attempt.
        """
        now = await lock_job(transaction, job_id)
        if now is not None and now.removed_uid != uid:
            values = {"uid": uid} if own and now.uid is None else {}
            await move_job(transaction, now, now=self.clock(), removed_uid=uid, **values)

    async def tell(self, record: JobRecord, **values: Any) -> JobRecord | None:
        """Set *values*, where they are not what *record* says; return it as it is then."""
        if all(getattr(record, name) == value for name, value in values.items()):
            return record
        async with self.lead() as transaction:
            return await self.move(transaction, record, **values)

    def job_of(self, record: JobRecord) -> Job:
        """Return the job with its secrets, so that it can be submitted.

        Raises:
            VaultClosed: If its secrets are not known.
        """
        secrets = self._secrets(record)
        if lacks_secrets(record.spec, secrets):
            raise VaultClosed("its secrets are not known: it was adopted from the cluster")
        return read_spec(record.spec, secrets)

    def readable_job(self, record: JobRecord) -> Job:
        """Return the job, or what can be read of it; an unknown secret is a word of ours."""
        try:
            secrets = self._secrets(record)
        except VaultClosed:
            secrets = {}
        return read_known(record, secrets)

    def hide_secrets(self, record: JobRecord, pod: ObservedPod) -> ObservedPod:
        """Return *pod* without the job's secrets in what it says.

        A program that cannot be started is named by its container's runtime, and a name may be made
        of a secret parameter.
        """
        if record.sealed is None or not pod.says_something:
            return pod
        try:
            secrets = self._secrets(record).values()
        except VaultClosed:
            return pod
        return pod.with_words(lambda text: without_secrets(text, secrets))

    def _secrets(self, record: JobRecord) -> Mapping[str, str]:
        return {} if record.sealed is None else self._vault.open(record.id, record.sealed)


def decided_as(
    outcome: Outcome, reason: str, message: str | None, details: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the values of a record whose end is decided, and will be told when it is over."""
    return {
        "outcome": outcome.value,
        "end_state": outcome.value,
        "end_reason": reason,
        "end_message": message,
        "end_details": None if details is None else dict(details),
    }


def _what_was_decided_for(record: JobRecord) -> tuple[object, ...]:
    return record.desired, record.outcome, record.attempt, record.renewal
