"""A job's states as a table; reading, changing and recovering the record of a job.

A change is dropped if another request has changed the job since the record was read. A newer
version may have accepted a job, and then been rolled back. Such a job is *parked*: this version
observes the job as far as the record is readable, and ends the job on request or when its time is
over. The job is never submitted again, since unknown fields would be left out. The next version
that can read the job continues it.

The cluster keeps the data of a record that a lost store would need. A VolcanoJob is never updated
after its
creation: an update makes Volcano process the job at once, and Volcano may then take a failure for
the end of the job before it applies the policies. So the data that is known at the creation is in
the VolcanoJob's annotations. The first start is read from its pods. A ConfigMap beside the
VolcanoJob holds the rest.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final, Literal, get_args

from pydantic import ValidationError

from controller.jobs.spec.accepted import (
    Vault,
    VaultClosed,
    filled_in,
    lacks_secrets,
    model_of,
    read_spec,
)
from controller.jobs.spec.model import Job
from controller.jobs.spec.problems import TAG, JobRejected
from controller.store.database import FencedStore, Transaction
from controller.store.jobs.job_rows import Desired, JobRecord, lock_job, update_job
from controller.volcano.names import (
    ALLOCATION_ANNOTATION,
    CREATED_ANNOTATION,
    EVICTIONS_ANNOTATION,
    FIRST_START_ANNOTATION,
    RETRIES_USED_ANNOTATION,
    TOOL_ANNOTATION,
    companion_name,
)
from controller.volcano.observed import ObservedJob, ObservedPod
from shared.errors import FumaroleError
from shared.text import decimal_number, whole_number, without_secrets


class State(StrEnum):
    """The state that is reported to the orchestrator."""

    IN_QUEUE = "IN_QUEUE"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    CANCELING = "CANCELING"
    SUCCESS = "SUCCESS"
    FAILURE = "FAILURE"
    EXPIRED = "EXPIRED"


class JobEvent(StrEnum):
    """An event of the state machine."""

    WAITS = "waits"
    STARTED = "started"
    SUSPENDED = "suspended"
    END_REQUESTED = "asked to end"
    SUCCEEDED = "ended well"
    FAILED = "ended badly"
    EXPIRED = "time over"


TRANSITIONS: Final[Mapping[tuple[State, JobEvent], State]] = MappingProxyType(
    {
        (State.IN_QUEUE, JobEvent.WAITS): State.IN_QUEUE,
        (State.IN_QUEUE, JobEvent.STARTED): State.RUNNING,
        (State.IN_QUEUE, JobEvent.SUSPENDED): State.SUSPENDED,
        (State.IN_QUEUE, JobEvent.END_REQUESTED): State.CANCELING,
        # A job can end between two observations.
        (State.IN_QUEUE, JobEvent.SUCCEEDED): State.SUCCESS,
        (State.IN_QUEUE, JobEvent.FAILED): State.FAILURE,
        # Its time runs from its first start, also while another attempt waits.
        (State.IN_QUEUE, JobEvent.EXPIRED): State.EXPIRED,
        # Volcano restarts the job, or too few of its pods are left to call it running.
        (State.RUNNING, JobEvent.WAITS): State.IN_QUEUE,
        (State.RUNNING, JobEvent.STARTED): State.RUNNING,
        (State.RUNNING, JobEvent.SUSPENDED): State.SUSPENDED,
        (State.RUNNING, JobEvent.END_REQUESTED): State.CANCELING,
        (State.RUNNING, JobEvent.SUCCEEDED): State.SUCCESS,
        (State.RUNNING, JobEvent.FAILED): State.FAILURE,
        (State.RUNNING, JobEvent.EXPIRED): State.EXPIRED,
        # The job was resumed, and waits as any other job.
        (State.SUSPENDED, JobEvent.WAITS): State.IN_QUEUE,
        (State.SUSPENDED, JobEvent.STARTED): State.RUNNING,
        (State.SUSPENDED, JobEvent.SUSPENDED): State.SUSPENDED,
        (State.SUSPENDED, JobEvent.END_REQUESTED): State.CANCELING,
        (State.SUSPENDED, JobEvent.SUCCEEDED): State.SUCCESS,
        (State.SUSPENDED, JobEvent.FAILED): State.FAILURE,
        (State.SUSPENDED, JobEvent.EXPIRED): State.EXPIRED,
        # The phase of the VolcanoJob until its removal no longer matters.
        (State.CANCELING, JobEvent.WAITS): State.CANCELING,
        (State.CANCELING, JobEvent.STARTED): State.CANCELING,
        (State.CANCELING, JobEvent.SUSPENDED): State.CANCELING,
        (State.CANCELING, JobEvent.END_REQUESTED): State.CANCELING,
        (State.CANCELING, JobEvent.SUCCEEDED): State.SUCCESS,
        (State.CANCELING, JobEvent.FAILED): State.FAILURE,
        (State.CANCELING, JobEvent.EXPIRED): State.EXPIRED,
    }
)
"""A pair that is not here is no transition; a final state has none."""

Outcome = Literal[State.SUCCESS, State.FAILURE, State.EXPIRED]
EVENT_OF_OUTCOME: Final[Mapping[str, JobEvent]] = MappingProxyType(
    {
        State.SUCCESS.value: JobEvent.SUCCEEDED,
        State.FAILURE.value: JobEvent.FAILED,
        State.EXPIRED.value: JobEvent.EXPIRED,
    }
)


def next_state(state: str, event: JobEvent) -> str:
    """Return the state after *event*; a final or unknown state does not change."""
    try:
        return TRANSITIONS[State(state), event]
    except (KeyError, ValueError):
        return state


_LONGEST_REASON: Final = 500
_MOST_ROUNDS: Final = 20
_STATES: Final = frozenset(State)
_DESIRED: Final = frozenset(get_args(Desired))
_NEEDED: Final = frozenset({"id", "owner"})


class CommandRefused(FumaroleError):
    """The job is not in a state in which the command applies; ``code`` is machine-readable."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def refuse_ending(record: JobRecord) -> None:
    """Check that the job is neither over nor about to end.

    Raises:
        CommandRefused: If it is.
    """
    if record.is_final:
        raise CommandRefused("over", f"the job is over: {record.state}")
    if record.desired == "ended" or record.outcome is not None:
        raise CommandRefused("ending", "the job is about to end")


def why_parked(record: JobRecord) -> str | None:
    """Return why this version cannot process the job; None if it can."""
    if record.state not in _STATES:
        return f"its state {record.state!r} is not known to this version"[:_LONGEST_REASON]
    if record.desired not in _DESIRED:
        return f"{record.desired!r} is asked for, which this version does not know"
    if record.outcome is not None and record.outcome not in EVENT_OF_OUTCOME:
        return f"its end {record.outcome!r} is not known to this version"[:_LONGEST_REASON]
    try:
        read_spec(record.spec, {})
    except JobRejected as rejected:
        return f"this version cannot read it: {rejected}"[:_LONGEST_REASON]
    return None


def read_known(record: JobRecord, secrets: Mapping[str, str] | None = None) -> Job:
    """Return the part of the job that this version can read: at least its owner.

    The job is complete unless it is parked.
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
    """Remove unknown fields from *spec*, or else the whole field; return whether there were any."""
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


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class JobRecords:
    """Changes jobs' records, as the leader."""

    store: FencedStore
    vault: Vault
    """Opens the secrets of jobs that are not over."""
    clock: Callable[[], float]
    """Unix seconds."""

    async def update(
        self, transaction: Transaction, record: JobRecord, **values: Any
    ) -> JobRecord | None:
        """Set *values*; return the record as it is once the transaction ends.

        Nothing is set, and None is returned, if another request has changed the job since *record*
        was read: the values were decided for an earlier state. The next observation decides anew.
        """
        now = await self.lock_if_unchanged(transaction, record)
        if now is None:
            return None
        return await update_job(transaction, now, now=self.clock(), **values)

    async def lock_if_unchanged(
        self, transaction: Transaction, record: JobRecord
    ) -> JobRecord | None:
        """Lock the job; return it if decisions for *record* still hold, else None."""
        now = await lock_job(transaction, record.id)
        if now is None or _what_was_decided_for(now) != _what_was_decided_for(record):
            return None
        return now

    async def record_deletion(
        self, transaction: Transaction, job_id: str, uid: str, *, own: bool
    ) -> None:
        """Record the accepted deletion of the VolcanoJob *uid*, whatever was requested.

        If it is the job's *own*, of its current attempt, its uid is recorded, so that its pods
        count.
        """
        now = await lock_job(transaction, job_id)
        if now is not None and now.removed_uid != uid:
            values = {"uid": uid} if own and now.uid is None else {}
            await update_job(transaction, now, now=self.clock(), removed_uid=uid, **values)

    async def update_if_changed(self, record: JobRecord, **values: Any) -> JobRecord | None:
        """Set *values* where they differ from *record*; return the record as it is then."""
        if all(getattr(record, name) == value for name, value in values.items()):
            return record
        async with self.store.write() as transaction:
            return await self.update(transaction, record, **values)

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
        """Return the job, or what can be read of it; unknown secrets have a placeholder."""
        try:
            secrets = self._secrets(record)
        except VaultClosed:
            secrets = {}
        return read_known(record, secrets)

    def hide_secrets(self, record: JobRecord, pod: ObservedPod) -> ObservedPod:
        """Return *pod* without the job's secrets in its messages.

        The container runtime names a program that it cannot start, and its name may contain a
        secret parameter.
        """
        if record.sealed is None or not pod.says_something:
            return pod
        try:
            secrets = self._secrets(record).values()
        except VaultClosed:
            return pod
        return pod.with_words(lambda text: without_secrets(text, secrets))

    def _secrets(self, record: JobRecord) -> Mapping[str, str]:
        return {} if record.sealed is None else self.vault.open(record.id, record.sealed)


def decided_as(
    outcome: Outcome, reason: str, message: str | None, details: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Return the values that record an outcome; it is reported once the job is over."""
    return {
        "outcome": outcome.value,
        "end_state": outcome.value,
        "end_reason": reason,
        "end_message": message,
        "end_details": None if details is None else dict(details),
    }


def _what_was_decided_for(record: JobRecord) -> tuple[object, ...]:
    return record.desired, record.outcome, record.attempt, record.renewal


# Recovery data


_FIRST_START: Final = "first-start"
_ALLOCATION: Final = "allocated-seconds"
_MOST: Final = 10**6
_A_MOMENT_SECONDS: Final = 1.0
"""Kubernetes' times are whole seconds."""


def recovery_name(job_id: str) -> str:
    """Return the name of the ConfigMap with the recovery data."""
    return companion_name(job_id, "recovery")


def annotations_of(record: JobRecord) -> dict[str, str]:
    """Return the annotations of the VolcanoJob that describe the earlier attempts.

    The VolcanoJob of a tool's run also names its tool.
    """
    found: dict[str, str] = {}
    if record.started_at is not None:
        found[FIRST_START_ANNOTATION] = repr(record.started_at)
        if record.allocated_seconds is not None:
            found[ALLOCATION_ANNOTATION] = repr(record.allocated_seconds)
    if record.retries_used:
        found[RETRIES_USED_ANNOTATION] = str(record.retries_used)
    if record.tool is not None:
        found[TOOL_ANNOTATION] = json.dumps(record.tool, sort_keys=True)
    if record.evictions:
        found[EVICTIONS_ANNOTATION] = str(record.evictions)
    return found


def to_keep(record: JobRecord, job: ObservedJob, pods: Iterable[ObservedPod]) -> str | None:
    """Return the recovery data to save beside the VolcanoJob, as JSON; None if there is none.

    Saved data stays, since pods are deleted.
    """
    if record.started_at is None:
        return None
    past = recovered(job, pods, {}, allocated=record.spec.get("time_allocation_seconds"))
    late = past.started_at is None or abs(past.started_at - record.started_at) > _A_MOMENT_SECONDS
    if not late and past.allocated_seconds == record.allocated_seconds and record.kept is None:
        return None
    kept = {_FIRST_START: repr(record.started_at)}
    if record.allocated_seconds is not None:
        kept[_ALLOCATION] = repr(record.allocated_seconds)
    return json.dumps(kept, sort_keys=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class RecoveredHistory:
    """The past of a job according to the cluster."""

    started_at: float | None
    allocated_seconds: float | None
    retries_used: int
    evictions: int


def recovered(
    job: ObservedJob,
    pods: Iterable[ObservedPod],
    kept: Mapping[str, Any],
    *,
    allocated: float | None,
) -> RecoveredHistory:
    """Return the past of a job according to the cluster.

    Args:
        job: Its VolcanoJob; an older version has written more annotations than needed.
        pods: Pods of the job.
        kept: The data of the ConfigMap beside it, if there is one.
        allocated: The time allocation with which it was accepted.
    """
    created = decimal_of(job.annotations.get(CREATED_ANNOTATION)) or job.created_at
    starts = [pod.started_at for pod in pods if pod.owner_uid == job.uid and pod.started_at]
    known = [
        decimal_of(job.annotations.get(FIRST_START_ANNOTATION)),
        decimal_of(kept.get(_FIRST_START)),
        max(created, min(starts)) if starts else None,
    ]
    return RecoveredHistory(
        started_at=min((at for at in known if at is not None), default=None),
        allocated_seconds=decimal_of(kept.get(_ALLOCATION))
        or decimal_of(job.annotations.get(ALLOCATION_ANNOTATION))
        or allocated,
        retries_used=_count(job.annotations.get(RETRIES_USED_ANNOTATION)),
        evictions=_count(job.annotations.get(EVICTIONS_ANNOTATION)),
    )


def decimal_of(text: object) -> float | None:
    """Return the number in *text*; None if it has none."""
    return decimal_number(text) if isinstance(text, str) else None


def _count(text: str | None) -> int:
    return whole_number(text or "", most=_MOST) or 0
