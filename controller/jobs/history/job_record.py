"""Reads jobs' records, whatever wrote them, and changes them as the leader.

Nothing is changed where somebody has asked for something else meanwhile. A newer version may have
accepted a job, and then been rolled back. Such a job is *parked*: it is followed by what is known
of it, ended when somebody asks or its time is over, and never made anew, since what is not
understood would be left out. The next version that can read it goes on with it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from contextlib import AbstractAsyncContextManager
from typing import Any, Final, get_args

from pydantic import ValidationError

from controller.jobs.history.states import HOW_IT_ENDED, Outcome, State
from controller.jobs.spec.accepted import filled_in, lacks_secrets, model_of, read_spec
from controller.jobs.spec.model import Job
from controller.jobs.spec.problems import TAG, JobRejected
from controller.plain import without_secrets
from controller.store.database import Store, Transaction
from controller.store.jobs.job_rows import Desired, JobRecord, lock_job, move_job
from controller.store.vault import Vault, VaultClosed
from controller.volcano.observed import ObservedPod

_LONGEST_REASON: Final = 500
_MOST_ROUNDS: Final = 20
_STATES: Final = frozenset(State)
_DESIRED: Final = frozenset(get_args(Desired))
_NEEDED: Final = frozenset({"id", "owner"})


def why_parked(record: JobRecord) -> str | None:
    """Return why this version cannot go on with the job; None where it can."""
    if record.state not in _STATES:
        return f"its state {record.state!r} is not known to this version"[:_LONGEST_REASON]
    if record.desired not in _DESIRED:
        return f"{record.desired!r} is asked for, which this version does not know"
    if record.outcome is not None and record.outcome not in HOW_IT_ENDED:
        return f"its end {record.outcome!r} is not known to this version"[:_LONGEST_REASON]
    try:
        read_spec(record.spec, {})
    except JobRejected as rejected:
        return f"this version cannot read it: {rejected}"[:_LONGEST_REASON]
    return None


def read_known(record: JobRecord, secrets: Mapping[str, str] | None = None) -> Job:
    """Return what this version can read of the job: at least whose it is.

    For a job that is not parked, that is all of it.
    """
    return known_of(record.spec, record.id, record.owner_user, record.owner_project, secrets)


def known_of(
    spec: Any,
    job_id: str,
    user: str,
    project: str | None,
    secrets: Mapping[str, str] | None = None,
) -> Job:
    """Return what this version can read of *spec*."""
    try:
        return read_spec(spec, secrets or {})
    except JobRejected:
        pass
    owner = {"user": user} | ({"project": project} if project is not None else {})
    least: dict[str, Any] = {"id": job_id, "owner": owner, "image": "unknown"}
    left = copy.deepcopy(dict(spec)) if isinstance(spec, Mapping) else {}
    for _ in range(_MOST_ROUNDS):
        try:
            return model_of(job_id).model_validate(filled_in(left, secrets or {}) | {"id": job_id})
        except ValidationError as error:
            found = [(one["type"], one["loc"]) for one in error.errors(include_input=False)]
            if not _without(left, found):
                break
        except (AttributeError, TypeError, KeyError, ValueError):
            break
    return model_of(job_id).model_validate(least)


def _without(spec: dict[str, Any], found: list[tuple[str, tuple[int | str, ...]]]) -> bool:
    """Take what is unknown out of *spec*, else the whole field; say whether there was any."""
    changed = False
    for kind, where in found:
        path = [part for part in where if not (isinstance(part, str) and part.startswith(TAG))]
        if kind == "extra_forbidden" and _removed(spec, path):
            changed = True
        elif path and path[0] in spec and path[0] not in _NEEDED:
            del spec[str(path[0])]
            changed = True
    return changed


def _removed(spec: Any, path: list[int | str]) -> bool:
    *before, last = path or [""]
    for part in before:
        try:
            spec = spec[part]
        except (LookupError, TypeError):
            return False
    if isinstance(spec, dict) and last in spec:
        del spec[last]
        return True
    return False


class JobRecords:
    """The leader's way to a job's record.

    Args:
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

    def lead(self) -> AbstractAsyncContextManager[Transaction]:
        """Give a writing transaction of the leader, as :meth:`Store.lead` does."""
        return self._store.lead(self._term)

    def read(self) -> AbstractAsyncContextManager[Transaction]:
        """Give a reading transaction."""
        return self._store.read()

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
