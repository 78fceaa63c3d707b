from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest

from controller.jobs.history.explanations import explain_waiting
from controller.jobs.history.job_record import JobEvent, State
from controller.jobs.reconcile.lifecycle.next_step import decide
from controller.jobs.reconcile.lifecycle.steps import (
    SUSPENDED,
    AbortVolcanoJob,
    ApplyCompanions,
    ConfirmGone,
    RestoreCompanions,
    RunHooks,
    SaveRecoveryData,
    SetOutcome,
    StartNextAttempt,
    Step,
    UpdateStatus,
    Wait,
)
from controller.store.jobs.job_rows import JobRecord
from controller.volcano.names import FIRST_START_ANNOTATION
from controller.volcano.observed import Ended, ObservedPod, Stuck
from tests.controller.jobs.history.test_retries import job, step_of
from tests.controller.jobs.reconcile.lifecycle.records import (
    KEPT,
    RUNS,
    SUBMITTED,
    confirmed,
    gone,
)
from tests.controller.samples import (
    UID,
    make_observed,
    make_observed_state,
    make_pod,
    make_record,
    recorded_pods,
)


def test_companions_are_created_before_an_update_that_keeps_the_state() -> None:
    for phase in ("Pending", "Restarting"):
        seen = make_observed_state(SUBMITTED, make_observed(phase), companions_applied=False)
        assert decide(seen) == ApplyCompanions()


def test_a_job_whose_companions_are_refused_starts_and_keeps_the_reason() -> None:
    seen = make_observed_state(SUBMITTED, make_observed(), companions_applied=False)
    assert decide(seen) == UpdateStatus(JobEvent.STARTED, None, None)
    refused = replace(SUBMITTED, state="RUNNING", reason="forbidden", message="no Service")
    dead = make_pod(node_unready_since=0.0)
    for pods in ((), (dead,)):
        seen = make_observed_state(refused, make_observed(), *pods, companions_applied=False)
        assert decide(replace(seen, started=False)) == RunHooks("start")
        assert decide(seen) == ApplyCompanions()
    seen = make_observed_state(refused, make_observed())
    assert decide(seen) == UpdateStatus(JobEvent.STARTED, None, None)


def test_a_waiting_job_states_its_reason() -> None:
    assert decide(make_observed_state(SUBMITTED, make_observed("Pending"))) == UpdateStatus(
        JobEvent.WAITS, "queued", "waiting in the queue"
    )


@pytest.mark.parametrize(
    ("pod", "reason"),
    [
        (make_pod(running=False, node="", phase="Pending"), "queued"),
        (make_pod(running=False, waiting="ContainerCreating"), "preparing"),
        (make_pod(running=False, waiting="ImagePullBackOff"), "image"),
        (make_pod(running=False, waiting="ImageInspectError"), "image"),
        (make_pod(running=False, waiting="CreateContainerConfigError"), "configuration"),
        (make_pod(waiting="ErrImagePull", owner_uid="of another"), "queued"),
        (make_pod(waiting="ErrImagePull", deleting=True), "queued"),
    ],
)
def test_the_waiting_reason_is_read_from_own_pods(pod: object, reason: str) -> None:
    step = decide(make_observed_state(SUBMITTED, make_observed("Pending"), pod))  # type: ignore[arg-type]  # parametrized
    assert isinstance(step, UpdateStatus)
    assert step.reason == reason


NO_NODE = "0/4 nodes are unavailable: 4 node(s) didn't match Pod's node affinity/selector."


@pytest.mark.parametrize(
    ("pods", "kept", "told"),
    [
        ((make_pod(running=False, node="", unscheduled=NO_NODE),), None,
         ("unschedulable", NO_NODE)),
        # In a gang, the same pod always decides.
        ((make_pod(1, node="", unscheduled="b"), make_pod(0, node="", unscheduled="a")), None,
         ("unschedulable", "a")),
        ((), {"uid": UID, "reason": "forbidden", "message": "exceeded quota"},
         ("forbidden", "exceeded quota")),
        # The existing pods wait for the one whose creation is refused.
        ((make_pod(node="", unscheduled="gang"),),
         {"uid": UID, "reason": "forbidden", "message": "exceeded quota"},
         ("forbidden", "exceeded quota")),
        ((make_pod(node="", unscheduled=NO_NODE),),
         {"uid": UID, "reason": "queued", "message": "waiting in the queue: full"},
         ("unschedulable", NO_NODE)),
        ((make_pod(running=False, waiting="ImagePullBackOff"),),
         {"uid": UID, "reason": "forbidden", "message": "exceeded quota"},
         ("image", "the image cannot be pulled")),
        ((), {"uid": "of another", "reason": "forbidden", "message": "exceeded quota"},
         ("queued", "waiting in the queue")),
        ((), {"uid": UID, "reason": "queued", "message": "waiting in the queue: full"},
         ("queued", "waiting in the queue: full")),
    ],
)  # fmt: skip
def test_the_waiting_reason_is_that_of_the_cluster(
    pods: tuple[ObservedPod, ...], kept: dict[str, str] | None, told: tuple[str, str]
) -> None:
    found = explain_waiting(make_observed("Pending"), pods, kept)
    assert (found.reason, found.message) == told
    record = replace(SUBMITTED, explained=kept)
    runs = recorded_pods(record, *pods)
    step = decide(make_observed_state(record, make_observed("Pending"), *pods, runs=runs))
    assert step == UpdateStatus(JobEvent.WAITS, *told)


def told_with(at: object, message: str, reason: str = "queued") -> JobRecord:
    details: Mapping[str, Any] | None = None if at is None else {"at": at}
    explained = {"uid": UID, "reason": "queued", "message": "waiting in the queue: 4 of 9"}
    return replace(SUBMITTED, reason=reason, message=message, details=details, explained=explained)


NEWS = UpdateStatus(JobEvent.WAITS, "queued", "waiting in the queue: 4 of 9")


@pytest.mark.parametrize(
    ("record", "now", "step"),
    [
        # Counts change with every job, so they are updated only after a while.
        (told_with(1000, "waiting in the queue: 3 of 9"), 1299.9, Wait()),
        (told_with(1000.0, "waiting in the queue: 3 of 9"), 1300.0, NEWS),
        (told_with(None, "waiting in the queue: 3 of 9"), 1000.0, NEWS),
        (told_with("soon", "waiting in the queue: 3 of 9"), 1000.0, NEWS),
        (told_with(1000, "waiting in the queue: 4 of 9"), 2000.0, Wait()),
        # Any other change is reported at once.
        (told_with(1000, "waiting in the queue: it is full"), 1000.0, NEWS),
        (told_with(1000, "waiting in the queue: 3 of 9", "paused"), 1000.0, NEWS),
        (replace(told_with(1000, "waiting in the queue: 3 of 9"), state="RUNNING"), 1000.0, NEWS),
    ],
)
def test_a_reason_that_differs_only_in_numbers_is_not_reported_again(
    record: JobRecord, now: float, step: Step
) -> None:
    assert decide(make_observed_state(record, make_observed("Pending"), now=now)) == step


def test_an_image_error_stays_reported_during_back_off() -> None:
    def pulls(message: str) -> ObservedPod:
        stuck = Stuck(container="job", reason="ImagePullBackOff", message=message, image="nope:1")
        return make_pod(running=False, node="n1", stuck=stuck)

    waits = make_observed("Pending")
    step = decide(make_observed_state(SUBMITTED, waits, pulls("not found")))
    assert isinstance(step, UpdateStatus)
    assert step.message == "the image cannot be pulled: nope:1: not found"
    record = replace(SUBMITTED, reason=step.reason, message=step.message, details=step.details)
    pauses = pulls('Back-off pulling image "nope:1"')
    assert decide(make_observed_state(record, waits, pauses)) == Wait()


def test_a_job_that_waits_again_is_not_reported_as_started() -> None:
    waits = replace(SUBMITTED, reason="restarting", message="starting again")
    assert decide(make_observed_state(waits, make_observed("Restarting", ran=True))) == Wait()


def test_a_running_job_is_reported_before_its_start_hooks() -> None:
    assert decide(make_observed_state(SUBMITTED, make_observed())) == UpdateStatus(
        JobEvent.STARTED, None, None
    )
    assert decide(make_observed_state(RUNS, make_observed(), started=False)) == RunHooks("start")
    assert decide(make_observed_state(RUNS, make_observed(), make_pod())) == Wait()


@pytest.mark.parametrize("phase", ["Completed", "Failed", "Aborted", "Terminated"])
@pytest.mark.parametrize("ran", [True, False])
def test_a_job_that_ended_unobserved_is_reported_as_having_run(phase: str, ran: bool) -> None:
    started = UpdateStatus(JobEvent.STARTED, None, None)
    over = make_observed(phase, ran=ran)
    step = decide(make_observed_state(SUBMITTED, over))
    assert (step == started) is ran
    assert isinstance(confirmed(decide(make_observed_state(RUNS, over))), SetOutcome)
    # If Volcano has removed the VolcanoJob, its last observed state decides.
    step = decide(make_observed_state(SUBMITTED, None, last=over))
    assert (step == started) is ran
    assert isinstance(decide(make_observed_state(RUNS, None, last=over)), ConfirmGone)
    other = replace(over, uid="of another attempt")
    assert isinstance(decide(make_observed_state(SUBMITTED, None, last=other)), ConfirmGone)
    ended = replace(SUBMITTED, desired="ended", state="CANCELING")
    assert isinstance(decide(make_observed_state(ended, over)), SetOutcome)


def test_recovery_data_is_annotated_once_no_other_step_is_due() -> None:
    # The pods determine the start only while they are the pods that started.
    restarted = make_pod(started_at=900.0)
    step = decide(make_observed_state(RUNS, make_observed(), restarted))
    assert step == SaveRecoveryData('{"first-start": "2.0"}')
    assert (
        decide(make_observed_state(replace(RUNS, kept=step.what), make_observed(), restarted))
        == Wait()
    )
    assert decide(make_observed_state(RUNS, make_observed("Aborting"))) == step
    # The VolcanoJob of a later attempt was created with the first start.
    annotations = {FIRST_START_ANNOTATION: "2.0"}
    assert (
        decide(make_observed_state(RUNS, make_observed(annotations=annotations), restarted))
        == Wait()
    )
    # An extension is written to the cluster in any case.
    extended = replace(RUNS, allocated_seconds=90.0)
    more = decide(make_observed_state(extended, make_observed(), make_pod()))
    assert more == SaveRecoveryData('{"allocated-seconds": "90.0", "first-start": "2.0"}')
    given = {**RUNS.spec, "time_allocation_seconds": 90}
    assert (
        decide(make_observed_state(replace(extended, spec=given), make_observed(), make_pod()))
        == Wait()
    )


def test_rank_services_are_recreated_after_all_other_steps() -> None:
    observed = make_observed()
    assert decide(make_observed_state(RUNS, observed, service_missing=True)) == RestoreCompanions()
    # The VolcanoJob was just created and its Service not yet observed; nothing waits for it.
    waits = decide(make_observed_state(SUBMITTED, make_observed(), service_missing=True))
    assert waits == UpdateStatus(JobEvent.STARTED, None, None)
    assert decide(
        make_observed_state(RUNS, observed, started=False, service_missing=True)
    ) == RunHooks("start")


def test_a_restarted_job_waits_again() -> None:
    step = decide(make_observed_state(RUNS, make_observed("Restarting")))
    assert step == UpdateStatus(JobEvent.WAITS, "restarting", "starting again")


def test_a_missing_volcano_job_is_confirmed_by_a_read() -> None:
    assert decide(make_observed_state(RUNS)) == ConfirmGone()
    assert decide(make_observed_state(RUNS, make_observed(uid="of another"))) == ConfirmGone()


def test_a_job_deleted_in_the_cluster_has_failed() -> None:
    step = decide(make_observed_state(RUNS, make_observed(deleting=True)))
    assert isinstance(step, SetOutcome)
    assert (step.outcome, step.reason) == (State.FAILURE, "deleted")


def test_a_deleted_volcano_job_is_reported() -> None:
    step = decide(make_observed_state(KEPT, make_observed(deleting=True)))
    text = "its VolcanoJob was deleted by somebody else"
    assert step == SetOutcome(State.FAILURE, "deleted", text)


@pytest.mark.parametrize(
    ("phase", "outcome", "reason"),
    [
        ("Completed", State.SUCCESS, "completed"),
        ("Failed", State.FAILURE, "exit_code"),
        ("Running", State.FAILURE, "lost"),
        ("Terminating", State.FAILURE, "lost"),
    ],
)
def test_a_job_that_ended_before_its_deletion_keeps_its_outcome(
    phase: str, outcome: State, reason: str
) -> None:
    failed = make_pod(phase="Failed", ended=Ended(exit_code=3, signal=0, reason="Error",
                                                  finished_at=8.0))  # fmt: skip
    gone = decide(make_observed_state(RUNS, None, failed, last=make_observed(phase, deleting=True)))
    assert isinstance(gone, ConfirmGone)
    assert isinstance(gone.then, SetOutcome)
    assert (gone.then.outcome, gone.then.reason) == (outcome, reason)
    if phase in ("Completed", "Failed"):
        going = decide(make_observed_state(RUNS, make_observed(phase, deleting=True), failed))
        assert going == gone.then


@pytest.mark.parametrize(
    ("phase", "outcome", "reason"),
    [
        ("Completed", State.SUCCESS, "completed"),
        ("Failed", State.FAILURE, "failed"),
        ("Aborted", State.FAILURE, "stopped"),
        ("Terminated", State.FAILURE, "stopped"),
    ],
)
def test_the_outcome_of_the_volcano_job_is_the_outcome_of_the_job(
    phase: str, outcome: State, reason: str
) -> None:
    step = confirmed(decide(make_observed_state(RUNS, make_observed(phase))))
    assert isinstance(step, SetOutcome)
    assert (step.outcome, step.reason) == (outcome, reason)


@pytest.mark.parametrize("phase", ["Aborting", "Completing", "Terminating"])
def test_no_step_is_due_while_a_volcano_job_is_terminating(phase: str) -> None:
    assert decide(make_observed_state(RUNS, make_observed(phase), make_pod())) == Wait()


@pytest.mark.parametrize(
    ("phase", "outcome", "reason"),
    [
        ("Aborting", State.FAILURE, "stopped"),
        ("Completing", State.SUCCESS, "completed"),
        ("Terminating", State.FAILURE, "stopped"),
    ],
)
def test_a_terminating_volcano_job_has_ended_once_only_lost_pods_are_left(
    phase: str, outcome: State, reason: str
) -> None:
    lost, done = make_pod(deleting=True, lost=True), make_pod(1, phase="Succeeded", running=False)
    observed = make_observed(phase)
    step = confirmed(decide(make_observed_state(RUNS, observed, lost, done)))
    assert isinstance(step, SetOutcome)
    assert (step.outcome, step.reason) == (outcome, reason)
    assert decide(make_observed_state(RUNS, observed, lost, make_pod(1))) == Wait()
    assert decide(make_observed_state(RUNS, observed, done)) == Wait()
    assert decide(make_observed_state(RUNS, observed, lost, pods_stale=True)) == Wait()


@pytest.mark.parametrize("stopping", [True, False])
def test_an_ordered_abort_is_the_end_unless_suspended_meanwhile(stopping: bool) -> None:
    ordered = job(ordered="TerminateJob", ordered_why="so", stopping=stopping)
    step = step_of(ordered, phase="Aborted")
    end = SetOutcome(State.FAILURE, "stopped", "so: TerminateJob, as its policy says")
    assert (step == end) is not stopping
    assert isinstance(step, StartNextAttempt) is stopping
    completed = job(ordered="CompleteJob", ordered_why="so")
    done = SetOutcome(State.SUCCESS, "completed", "so: CompleteJob, as its policy says")
    assert step_of(completed, phase="Completed") == done
    # A command that came too late is not the reason of a successful end.
    plain = step_of(job(ordered="AbortJob", ordered_why="so"), phase="Completed")
    assert plain == SetOutcome(State.SUCCESS, "completed")


WANTED_STILL = make_record(uid=UID, state="RUNNING", reason=None, message=None, started_at=2.0,
                           desired="suspended")  # fmt: skip


STOPPING = replace(WANTED_STILL, stopping=True, reason="suspending", message="being suspended")


@pytest.mark.parametrize("phase", ["", "Pending", "Running", "Restarting"])
def test_a_job_to_suspend_is_stopped_in_any_state(phase: str) -> None:
    assert decide(make_observed_state(WANTED_STILL, make_observed(phase))) == AbortVolcanoJob(UID)
    # Volcano may have lost the command. A half-stopped job would have no retries left.
    half = replace(STOPPING, desired="run")
    assert decide(make_observed_state(half, make_observed(phase))) == AbortVolcanoJob(UID)


def test_a_job_is_suspended_once_its_pods_ended_and_resumes_as_another_attempt() -> None:
    aborted = make_observed("Aborted")
    assert decide(make_observed_state(STOPPING, make_observed("Aborting"), make_pod())) == Wait()
    assert decide(make_observed_state(STOPPING, aborted, make_pod())) == Wait()
    lost = make_pod(deleting=True, lost=True)
    assert decide(make_observed_state(STOPPING, make_observed("Aborting"), lost)) == SUSPENDED
    step = decide(make_observed_state(STOPPING, aborted))
    assert step == UpdateStatus(JobEvent.SUSPENDED, "asked", "suspended as asked")
    suspended = replace(STOPPING, state="SUSPENDED", reason="asked", message="suspended as asked",
                        kept='{"first-start": "2.0"}')  # fmt: skip
    assert decide(make_observed_state(suspended, aborted)) == Wait()
    resumed = replace(suspended, desired="run")
    again = StartNextAttempt("resumed", "resumed, and submitted again")
    assert decide(make_observed_state(resumed, aborted)) == again
    # Holds also for a job that is resumed before it has stopped: the command is under way.
    assert decide(make_observed_state(replace(STOPPING, desired="run"), aborted)) == again


ABSENT = "its pods are gone, and Volcano has made no others yet"


def test_a_running_job_whose_pods_stay_away_says_so() -> None:
    """Volcano calls a preempted VolcanoJob running while its PodGroup waits in the queue."""
    seen = make_observed_state(KEPT, make_observed("Running"), runs=gone("a", ended_at=100.0))
    assert decide(replace(seen, now=101.0)) == Wait(130.0)
    step = decide(replace(seen, now=130.0))
    assert step == UpdateStatus(JobEvent.STARTED, "queued", ABSENT)
    reported = replace(KEPT, reason="queued", message=ABSENT)
    assert decide(replace(seen, now=131.0, record=reported)) == Wait()
    # They are back.
    seen = make_observed_state(reported, make_observed("Running"), make_pod(), now=200.0)
    assert decide(seen) == UpdateStatus(JobEvent.STARTED, None, None)


def test_a_running_job_without_pods_does_not_report_each_change_of_numbers() -> None:
    """As a job that waits: counts of nodes change with every job that starts or ends."""
    text = "0/{} nodes are available"
    kept = {"uid": UID, "reason": "unschedulable", "message": text.format(53), "since": 0.0}
    reported = replace(KEPT, reason="unschedulable", message=text.format(52), details={"at": 200.0},
                   explained=kept)  # fmt: skip
    seen = make_observed_state(reported, make_observed("Running"), runs=gone("a", ended_at=100.0))
    assert decide(replace(seen, now=499.0)) == Wait()
    step = decide(replace(seen, now=500.0))
    assert step == UpdateStatus(JobEvent.STARTED, "unschedulable", text.format(53))


@pytest.mark.parametrize(
    "fields",
    [
        {"pods_stale": True},
        {"runs": {}},
        {"pods": (make_pod(deleting=True),), "runs": gone("pod-0", ended_at=None, phase="Running",
                                                          reason="", exit_code=None)},
    ],
    ids=["the watch is interrupted", "no pod was ever seen", "a pod is ending"],
)  # fmt: skip
def test_pods_that_may_be_there_are_not_missed(fields: dict[str, Any]) -> None:
    seen = make_observed_state(KEPT, make_observed("Running"), runs=gone("a", ended_at=100.0))
    step = decide(replace(seen, now=500.0, **fields))
    assert not isinstance(step, UpdateStatus)


def test_no_volcano_job_is_looked_for_while_volcano_jobs_cannot_be_watched() -> None:
    # Otherwise each job that begins would ask the API server every second.
    seen = make_observed_state(RUNS, None, jobs_stale=True, now=5.0)
    assert decide(seen) == Wait(15.0)
    assert isinstance(decide(replace(seen, jobs_stale=False)), ConfirmGone)
    # Of one that was observed to be deleted, nothing is outstanding.
    assert isinstance(decide(replace(seen, last=make_observed("Completed"))), ConfirmGone)
