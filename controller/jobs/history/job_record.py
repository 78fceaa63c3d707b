"""A job's states as a table; how jobs' records are read, whatever wrote them, and recovered.

Nothing is changed where somebody has asked for something else meanwhile. A newer version may have
accepted a job, and then been rolled back. Such a job is *parked*: it is followed by what is known
of it, ended when somebody asks or its time is over, and never made anew, since what is not
understood would be left out. The next version that can read it goes on with it.

Of a record, the cluster keeps what a store that knows nothing of the job would lack. Nothing is
written to a VolcanoJob once it is made: an update has Volcano look at it at once, and what it sees
then it may take for the job's end, before it asks the job's policies. So what is known at its
making is in its annotations; its first start is read from its pods; and only what neither of them
say is in a ConfigMap beside it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager
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
from controller.plain import without_secrets
from controller.store.database import Store, Transaction
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
from shared.numbers import decimal_number, whole_number


class State(StrEnum):
    """What the orchestrator is told."""

    IN_QUEUE = "IN_QUEUE"
    RUNNING = "RUNNING"
    SUSPENDED = "SUSPENDED"
    CANCELING = "CANCELING"
    SUCCESS = "SUCCESS"
    FAILURE = "FAILURE"
    EXPIRED = "EXPIRED"


class Happening(StrEnum):
    """What may happen to a job."""

    WAITS = "waits"
    STARTED = "started"
    SUSPENDED = "suspended"
    ASKED_TO_END = "asked to end"
    ENDED_WELL = "ended well"
    ENDED_BADLY = "ended badly"
    RAN_OUT = "time over"


TRANSITIONS: Final[Mapping[tuple[State, Happening], State]] = MappingProxyType(
    {
        (State.IN_QUEUE, Happening.WAITS): State.IN_QUEUE,
        (State.IN_QUEUE, Happening.STARTED): State.RUNNING,
        (State.IN_QUEUE, Happening.SUSPENDED): State.SUSPENDED,
        (State.IN_QUEUE, Happening.ASKED_TO_END): State.CANCELING,
        # A job can end between two looks at it.
        (State.IN_QUEUE, Happening.ENDED_WELL): State.SUCCESS,
        (State.IN_QUEUE, Happening.ENDED_BADLY): State.FAILURE,
        # Its time goes on from its first start, also while another attempt waits.
        (State.IN_QUEUE, Happening.RAN_OUT): State.EXPIRED,
        # Volcano starts a job over, or has lost too many of its pods to call it running.
        (State.RUNNING, Happening.WAITS): State.IN_QUEUE,
        (State.RUNNING, Happening.STARTED): State.RUNNING,
        (State.RUNNING, Happening.SUSPENDED): State.SUSPENDED,
        (State.RUNNING, Happening.ASKED_TO_END): State.CANCELING,
        (State.RUNNING, Happening.ENDED_WELL): State.SUCCESS,
        (State.RUNNING, Happening.ENDED_BADLY): State.FAILURE,
        (State.RUNNING, Happening.RAN_OUT): State.EXPIRED,
        # It was resumed, and waits for its turn like any other.
        (State.SUSPENDED, Happening.WAITS): State.IN_QUEUE,
        (State.SUSPENDED, Happening.STARTED): State.RUNNING,
        (State.SUSPENDED, Happening.SUSPENDED): State.SUSPENDED,
        (State.SUSPENDED, Happening.ASKED_TO_END): State.CANCELING,
        (State.SUSPENDED, Happening.ENDED_WELL): State.SUCCESS,
        (State.SUSPENDED, Happening.ENDED_BADLY): State.FAILURE,
        (State.SUSPENDED, Happening.RAN_OUT): State.EXPIRED,
        # What it does until it is gone no longer matters.
        (State.CANCELING, Happening.WAITS): State.CANCELING,
        (State.CANCELING, Happening.STARTED): State.CANCELING,
        (State.CANCELING, Happening.SUSPENDED): State.CANCELING,
        (State.CANCELING, Happening.ASKED_TO_END): State.CANCELING,
        (State.CANCELING, Happening.ENDED_WELL): State.SUCCESS,
        (State.CANCELING, Happening.ENDED_BADLY): State.FAILURE,
        (State.CANCELING, Happening.RAN_OUT): State.EXPIRED,
    }
)
"""Everything else is no transition: a final state has none."""

Outcome = Literal[State.SUCCESS, State.FAILURE, State.EXPIRED]
HOW_IT_ENDED: Final[Mapping[str, Happening]] = MappingProxyType(
    {
        State.SUCCESS.value: Happening.ENDED_WELL,
        State.FAILURE.value: Happening.ENDED_BADLY,
        State.EXPIRED.value: Happening.RAN_OUT,
    }
)


def next_state(state: str, happening: Happening) -> str:
    """Return the state after *happening*; one that is final, or not known here, stays."""
    try:
        return TRANSITIONS[State(state), happening]
    except (KeyError, ValueError):
        return state


_LONGEST_REASON: Final = 500
_MOST_ROUNDS: Final = 20
_STATES: Final = frozenset(State)
_DESIRED: Final = frozenset(get_args(Desired))
_NEEDED: Final = frozenset({"id", "owner"})


class CommandRefused(FumaroleError):
    """The job is not one for which what is asked can be; ``code`` is a word for programs."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def refuse_ending(record: JobRecord) -> None:
    """Do nothing with a job that goes on.

    Raises:
        CommandRefused: If it is over, or about to be.
    """
    if record.is_final:
        raise CommandRefused("over", f"the job is over: {record.state}")
    if record.desired == "ended" or record.outcome is not None:
        raise CommandRefused("ending", "the job is about to end")


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
        return await update_job(transaction, now, now=self.clock(), **values)

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
            await update_job(transaction, now, now=self.clock(), removed_uid=uid, **values)

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


# What the cluster keeps of a record


_FIRST_START: Final = "first-start"
_ALLOCATION: Final = "allocated-seconds"
_MOST: Final = 10**6
_A_MOMENT_SECONDS: Final = 1.0
"""Kubernetes' times are whole seconds."""


def recovery_name(job_id: str) -> str:
    """Return the name of the ConfigMap that keeps what nothing else in the cluster says."""
    return companion_name(job_id, "recovery")


def annotations_of(record: JobRecord) -> dict[str, str]:
    """Return what the VolcanoJob of a further attempt says of those before it.

    That of a tool's run says whose it is.
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
    """Return what is to be kept beside the VolcanoJob, as JSON; None where nothing is.

    What was once kept stays: pods come and go.
    """
    if record.started_at is None:
        return None
    told = recovered(job, pods, {}, allocated=record.spec.get("time_allocation_seconds"))
    late = told.started_at is None or abs(told.started_at - record.started_at) > _A_MOMENT_SECONDS
    if not late and told.allocated_seconds == record.allocated_seconds and record.kept is None:
        return None
    kept = {_FIRST_START: repr(record.started_at)}
    if record.allocated_seconds is not None:
        kept[_ALLOCATION] = repr(record.allocated_seconds)
    return json.dumps(kept, sort_keys=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovered:
    """What the cluster says of a job's past."""

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
) -> Recovered:
    """Return what the cluster says of a job's past.

    Args:
        job: Its VolcanoJob; those that an older version has written to say more than is needed.
        pods: Pods of the job.
        kept: The data of the ConfigMap beside it, if there is one.
        allocated: The time that it was given when it was accepted.
    """
    created = decimal_of(job.annotations.get(CREATED_ANNOTATION)) or job.created_at
    starts = [pod.started_at for pod in pods if pod.owner_uid == job.uid and pod.started_at]
    known = [
        decimal_of(job.annotations.get(FIRST_START_ANNOTATION)),
        decimal_of(kept.get(_FIRST_START)),
        max(created, min(starts)) if starts else None,
    ]
    return Recovered(
        started_at=min((at for at in known if at is not None), default=None),
        allocated_seconds=decimal_of(kept.get(_ALLOCATION))
        or decimal_of(job.annotations.get(ALLOCATION_ANNOTATION))
        or allocated,
        retries_used=_count(job.annotations.get(RETRIES_USED_ANNOTATION)),
        evictions=_count(job.annotations.get(EVICTIONS_ANNOTATION)),
    )


def decimal_of(text: object) -> float | None:
    """Return the number that *text* is; None where it is none."""
    return decimal_number(text) if isinstance(text, str) else None


def _count(text: str | None) -> int:
    return whole_number(text or "", most=_MOST) or 0
