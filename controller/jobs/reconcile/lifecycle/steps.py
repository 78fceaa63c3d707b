"""What may be the next step for a job: decided by ``next_step``, carried out by ``actions``."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeAlias

from controller.jobs.history.job_record import Happening, Outcome, State
from controller.jobs.tools.runs import DueRun
from controller.store.jobs.job_rows import RequestedEnd
from controller.store.jobs.progress import Hook, Timer
from controller.volcano.observed import ObservedPod

Details: TypeAlias = Mapping[str, Any] | None
"""What is known of a reason, for programs."""


@dataclass(frozen=True, slots=True)
class Rest:
    """Nothing to do until something changes, or until then."""

    until: float | None = None


@dataclass(frozen=True, slots=True)
class RecordPods:
    """Write down what is seen of the job's pods, before they are gone."""


@dataclass(frozen=True, slots=True)
class Submit:
    """Make the VolcanoJob, or find that it was made."""


@dataclass(frozen=True, slots=True)
class Expose:
    """Make the companions that come after the VolcanoJob, and have it own all of them."""


@dataclass(frozen=True, slots=True)
class Restore:
    """Make what people reach the job by once more: somebody has removed it, it seems."""


@dataclass(frozen=True, slots=True)
class Note:
    """Remember what happened, and tell the orchestrator."""

    happening: Literal[Happening.WAITS, Happening.STARTED, Happening.SUSPENDED]
    reason: str | None
    message: str | None
    details: Details = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class RunHooks:
    """Run one hook of every plugin that has not done it."""

    hook: Hook


@dataclass(frozen=True, slots=True)
class KeepForRecovery:
    """Keep beside the VolcanoJob what a store that knows nothing would need to go on with it."""

    what: str


@dataclass(frozen=True, slots=True)
class Stop:
    """Have Volcano abort the VolcanoJob, and keep it."""

    uid: str


@dataclass(frozen=True, slots=True)
class StartNextAttempt:
    """Decide that another attempt follows this one."""

    why: Literal["evicted", "forbidden", "resumed", "retried"]
    message: str
    details: Details = field(default=None, compare=False)


@dataclass(frozen=True, slots=True)
class Replace:
    """Begin the next attempt: what was made for the last one is gone."""


@dataclass(frozen=True, slots=True)
class AdoptNewerAttempt:
    """Go on with an attempt that the store has never heard of: it was restored from before it."""


@dataclass(frozen=True, slots=True)
class Conclude:
    """Decide how the job ends."""

    outcome: Outcome
    reason: str
    message: str | None = None
    details: Details = field(default=None, compare=False)


SUSPENDED: Final = Note(Happening.SUSPENDED, "asked", "suspended as asked")
LOST: Final = Conclude(State.FAILURE, "lost", "its VolcanoJob is no longer in the cluster")


@dataclass(frozen=True, slots=True)
class Confirm:
    """Ask the cluster itself whether the VolcanoJob is gone: the cache may be behind."""

    then: Conclude | StartNextAttempt = LOST


@dataclass(frozen=True, slots=True)
class Order:
    """Have Volcano do what a policy says that we time."""

    action: str
    why: str


@dataclass(frozen=True, slots=True)
class SetTimers:
    """Have exactly these timers run."""

    timers: tuple[Timer, ...]


@dataclass(frozen=True, slots=True)
class ConfirmPods:
    """Do what follows from the job's pods, if the cluster itself shows them as they were seen."""

    then: Conclude | StartNextAttempt | Order


@dataclass(frozen=True, slots=True)
class Remove:
    """Delete the VolcanoJob, and remember that its deletion was accepted."""

    uid: str


@dataclass(frozen=True, slots=True)
class RemovePods:
    """Delete pods of VolcanoJobs that are gone: the cluster's collector may take minutes."""

    pods: tuple[ObservedPod, ...]


@dataclass(frozen=True, slots=True)
class Park:
    """Remember why this version cannot go on with the job; None: it can again."""

    why: str | None


@dataclass(frozen=True, slots=True)
class EndOverdue:
    """Ask for the job's end: its time is over, and no plugin does."""


@dataclass(frozen=True, slots=True)
class StartTool:
    """Have a tool of the job run: its run is reconciled as a job is."""

    due: DueRun


@dataclass(frozen=True, slots=True)
class EndTool:
    """Ask for the end of a tool's run."""

    how: RequestedEnd


@dataclass(frozen=True, slots=True)
class Finish:
    """Take the outcome as the state, and drop what was kept for the job."""


Step: TypeAlias = (
    Rest
    | RecordPods
    | Submit
    | Expose
    | Restore
    | Note
    | RunHooks
    | KeepForRecovery
    | Stop
    | StartNextAttempt
    | Replace
    | AdoptNewerAttempt
    | Conclude
    | Confirm
    | Order
    | SetTimers
    | ConfirmPods
    | Remove
    | RemovePods
    | Finish
    | Park
    | EndOverdue
    | StartTool
    | EndTool
)
