"""The possible steps for a job: ``next_step`` decides one, ``actions`` does it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from controller.jobs.history.job_record import JobEvent, Outcome, State
from controller.jobs.tools.runs import DueRun
from controller.store.jobs.job_rows import RequestedEnd
from controller.store.jobs.progress import Hook, Timer
from controller.volcano.observed import ObservedJob, ObservedPod

Details: TypeAlias = Mapping[str, Any] | None
"""The machine-readable part of a reason."""


@dataclass(frozen=True, slots=True)
class Wait:
    """Do nothing until something changes, or until the unix time ``until``."""

    until: float | None = None


# Submission


@dataclass(frozen=True, slots=True)
class Submit:
    """Create the VolcanoJob, or find that it was created.

    *made*: the VolcanoJob of this attempt, if an earlier try has created it.
    """

    made: ObservedJob | None = None


@dataclass(frozen=True, slots=True)
class ApplyCompanions:
    """Apply the companions that follow the VolcanoJob, and make it the owner of all companions."""


@dataclass(frozen=True, slots=True)
class RestoreCompanions:
    """Apply the companions again: the cache does not show a Service of a rank."""


# Records


@dataclass(frozen=True, slots=True)
class RecordPods:
    """Record the observations of the job's pods, before the pods are gone."""


@dataclass(frozen=True, slots=True)
class UpdateStatus:
    """Record a new state or reason, and send it to the orchestrator."""

    event: Literal[JobEvent.WAITS, JobEvent.STARTED, JobEvent.SUSPENDED]
    reason: str | None
    message: str | None
    details: Details = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class SaveRecoveryData:
    """Save the data for the recovery of a lost store in a ConfigMap beside the VolcanoJob.

    ``what`` is JSON.
    """

    what: str


@dataclass(frozen=True, slots=True)
class SetTimers:
    """Replace the job's timers by these."""

    timers: tuple[Timer, ...]


@dataclass(frozen=True, slots=True)
class Park:
    """Record why this version cannot process the job; None: it can again."""

    why: str | None


@dataclass(frozen=True, slots=True)
class RunHooks:
    """Run one hook of every plugin that has not completed it."""

    hook: Hook


# Attempts


@dataclass(frozen=True, slots=True)
class AbortVolcanoJob:
    """Have Volcano abort the VolcanoJob ``uid`` and keep it: the job is suspended."""

    uid: str


@dataclass(frozen=True, slots=True)
class IssueCommand:
    """Issue the Volcano command of a policy whose timeout this controller times."""

    action: str
    why: str


@dataclass(frozen=True, slots=True)
class StartNextAttempt:
    """End this attempt: another one follows, once the VolcanoJob is removed."""

    why: Literal["evicted", "forbidden", "resumed", "retried"]
    message: str
    details: Details = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class ResetForNextAttempt:
    """Remove the companions of the ended attempt, and begin the next one."""


@dataclass(frozen=True, slots=True)
class AdoptNewerAttempt:
    """Continue with the attempt that the cluster shows: the restored store is older."""


# The end


@dataclass(frozen=True, slots=True)
class SetOutcome:
    """Decide the outcome of the job."""

    outcome: Outcome
    reason: str
    message: str | None = None
    details: Details = field(default=None, compare=False)


SUSPENDED: Final = UpdateStatus(JobEvent.SUSPENDED, "asked", "suspended as asked")
SUCCEEDED: Final = SetOutcome(State.SUCCESS, "completed")
LOST: Final = SetOutcome(State.FAILURE, "lost", "its VolcanoJob is no longer in the cluster")


@dataclass(frozen=True, slots=True)
class ConfirmGone:
    """Do ``then`` if the API server confirms that the VolcanoJob is gone: the cache may lag."""

    then: SetOutcome | StartNextAttempt = LOST


@dataclass(frozen=True, slots=True)
class ConfirmPods:
    """Do ``then`` if the API server shows the pods as they are recorded: the cache may lag."""

    then: SetOutcome | StartNextAttempt | IssueCommand


@dataclass(frozen=True, slots=True)
class ConfirmNotRefused:
    """Do ``then``, unless an event after ``since`` says that the job's pods were refused.

    The event is recorded as the reason, and the job is decided anew. The regular reads of events
    may be late: they take turns among all jobs that wait.
    """

    then: SetOutcome
    since: float = 0.0


@dataclass(frozen=True, slots=True)
class ConfirmGivenUp:
    """Do ``then`` if Volcano has given the VolcanoJob up because its pods were refused.

    Do ``otherwise`` if an event says that a client's command has terminated it.
    """

    then: StartNextAttempt
    otherwise: SetOutcome


@dataclass(frozen=True, slots=True)
class DeleteVolcanoJob:
    """Delete the VolcanoJob ``uid``, and record that the API server accepted the deletion."""

    uid: str


@dataclass(frozen=True, slots=True)
class DeleteRevivedJob:
    """Delete the VolcanoJob ``uid`` of an ended job or attempt, if the API server confirms it.

    An etcd that was restored from a backup shows it as it was before the end. An administrator can
    resume an aborted one.
    """

    uid: str


@dataclass(frozen=True, slots=True)
class DeletePods:
    """Delete pods of deleted VolcanoJobs: the cluster's garbage collector may take minutes."""

    pods: tuple[ObservedPod, ...]


@dataclass(frozen=True, slots=True)
class ExpireJob:
    """Request the end of a parked job whose time is over: plugins do not see parked jobs."""


@dataclass(frozen=True, slots=True)
class Finish:
    """Make the outcome the job's final state, and drop the data that was kept for the job."""


# Tools


@dataclass(frozen=True, slots=True)
class StartTool:
    """Start a tool of the job: its run is then reconciled as a job is."""

    due: DueRun


@dataclass(frozen=True, slots=True)
class EndTool:
    """Request the end of a tool's run."""

    how: RequestedEnd


Step: TypeAlias = (
    Wait
    | Submit
    | ApplyCompanions
    | RestoreCompanions
    | RecordPods
    | UpdateStatus
    | SaveRecoveryData
    | SetTimers
    | Park
    | RunHooks
    | AbortVolcanoJob
    | IssueCommand
    | StartNextAttempt
    | ResetForNextAttempt
    | AdoptNewerAttempt
    | SetOutcome
    | ConfirmGone
    | ConfirmPods
    | ConfirmNotRefused
    | ConfirmGivenUp
    | DeleteVolcanoJob
    | DeleteRevivedJob
    | DeletePods
    | ExpireJob
    | Finish
    | StartTool
    | EndTool
)

PUBLISHED_STEPS: Final = {
    "AbortVolcanoJob": "Stop",
    "AdoptNewerAttempt": "CatchUp",
    "ApplyCompanions": "Expose",
    "ConfirmGone": "Confirm",
    "DeletePods": "RemovePods",
    "DeleteVolcanoJob": "Remove",
    "ExpireJob": "EndOverdue",
    "IssueCommand": "Order",
    "RecordPods": "WriteDown",
    "ResetForNextAttempt": "Replace",
    "RestoreCompanions": "Restore",
    "SaveRecoveryData": "KeepForRecovery",
    "SetOutcome": "Conclude",
    "StartNextAttempt": "Renew",
    "UpdateStatus": "Note",
}
"""The published label of each step whose class has another name: dashboards read labels."""
