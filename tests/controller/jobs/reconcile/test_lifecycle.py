from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.jobs.history.explanations import explain_waiting
from controller.jobs.history.states import Happening, State
from controller.jobs.reconcile.lifecycle import MOST_ATTEMPTS, decide
from controller.jobs.reconcile.steps import (
    AdoptNewerAttempt,
    Conclude,
    Confirm,
    ConfirmPods,
    Expose,
    Finish,
    KeepForRecovery,
    Note,
    RecordPods,
    Remove,
    RemovePods,
    Replace,
    Rest,
    Restore,
    RunHooks,
    StartNextAttempt,
    Step,
    Stop,
    Submit,
)
from controller.store.jobs.pods import PodRecord
from controller.store.jobs.predecessors import Predecessor
from controller.volcano.names import (
    ATTEMPT_ANNOTATION,
    CREATED_ANNOTATION,
    FIRST_START_ANNOTATION,
)
from controller.volcano.observed import Ended, ObservedPod
from controller.volcano.phases import PROGRESS
from tests.controller.samples import (
    UID,
    make_observed,
    make_pod,
    make_record,
    make_seen,
    written_down,
)

ACCEPTED = make_record()
SUBMITTED = make_record(uid=UID)
RUNS = make_record(uid=UID, state="RUNNING", reason=None, message=None, started_at=2.0)


def test_what_was_accepted_is_submitted() -> None:
    assert decide(make_seen(ACCEPTED)) == Submit()


def test_a_volcano_job_whose_making_was_never_answered_is_found_by_submitting() -> None:
    assert decide(make_seen(ACCEPTED, make_observed("Pending"))) == Submit()


def confirmed(step: Step) -> Step:
    """Return what follows once pods are as they are seen."""
    return step.then if isinstance(step, ConfirmPods) else step


@pytest.mark.parametrize(
    ("predecessors", "step"),
    [
        ([("a", "RUNNING", None)], Note(Happening.WAITS, "predecessor", "waits for the end of a")),
        (
            [("a", "CANCELING", "asked"), ("b", "SUCCESS", "completed"), ("c", "IN_QUEUE", None)],
            Note(Happening.WAITS, "predecessor", "waits for the end of a and 1 more"),
        ),
        ([("a", "SUCCESS", "completed")], Submit()),
        (
            [("a", "RUNNING", None), ("b", "FAILURE", "exit_code")],
            Conclude(
                State.FAILURE,
                "predecessor",
                "the job b, which it follows, ended as FAILURE (exit_code)",
            ),
        ),
        (
            [("a", "SUCCESS", "asked")],
            Conclude(
                State.FAILURE,
                "predecessor",
                "the job a, which it follows, ended as SUCCESS (asked)",
            ),
        ),
        (
            [("a", None, None)],
            Conclude(
                State.FAILURE, "predecessor", "the job a, which it follows, is not known any more"
            ),
        ),
    ],
)
def test_a_job_waits_for_those_that_it_follows_and_fails_with_them(
    predecessors: list[tuple[str, str | None, str | None]], step: Step
) -> None:
    those = tuple(Predecessor(*one) for one in predecessors)
    assert decide(make_seen(ACCEPTED, predecessors=those)) == step
    # One whose making was not answered may be there: it is found, and then ended like any other.
    assert decide(make_seen(ACCEPTED, make_observed(), predecessors=those)) == Submit()
    ended = replace(ACCEPTED, desired="ended", state="CANCELING")
    assert decide(make_seen(ended, predecessors=those)) == Conclude(
        State.SUCCESS, "asked", "ended as asked"
    )


def test_a_job_that_waits_for_others_can_be_suspended_meanwhile() -> None:
    suspended = replace(ACCEPTED, desired="suspended")
    those = (Predecessor("a", "RUNNING", None),)
    step = decide(make_seen(suspended, predecessors=those))
    assert step == Note(Happening.SUSPENDED, "asked", "suspended as asked")


def test_companions_come_before_anything_is_told() -> None:
    assert decide(make_seen(SUBMITTED, make_observed(), exposed=False)) == Expose()


def test_a_job_that_waits_says_why() -> None:
    assert decide(make_seen(SUBMITTED, make_observed("Pending"))) == Note(
        Happening.WAITS, "queued", "waiting in the queue"
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
def test_why_it_waits_is_read_from_its_own_pods(pod: object, reason: str) -> None:
    step = decide(make_seen(SUBMITTED, make_observed("Pending"), pod))  # type: ignore[arg-type]  # parametrized
    assert isinstance(step, Note)
    assert step.reason == reason


NO_NODE = "0/4 nodes are unavailable: 4 node(s) didn't match Pod's node affinity/selector."


@pytest.mark.parametrize(
    ("pods", "kept", "told"),
    [
        ((make_pod(running=False, node="", unscheduled=NO_NODE),), None,
         ("unschedulable", NO_NODE)),
        # Always the same pod's of a gang.
        ((make_pod(1, node="", unscheduled="b"), make_pod(0, node="", unscheduled="a")), None,
         ("unschedulable", "a")),
        ((), {"uid": UID, "reason": "forbidden", "message": "exceeded quota"},
         ("forbidden", "exceeded quota")),
        # Those that are there wait for the one that may not be made.
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
def test_why_it_waits_is_what_the_cluster_says(
    pods: tuple[ObservedPod, ...], kept: dict[str, str] | None, told: tuple[str, str]
) -> None:
    found = explain_waiting(make_observed("Pending"), pods, kept)
    assert (found.reason, found.message) == told
    record = replace(SUBMITTED, explained=kept)
    runs = written_down(record, *pods)
    step = decide(make_seen(record, make_observed("Pending"), *pods, runs=runs))
    assert step == Note(Happening.WAITS, *told)


def test_a_job_that_runs_is_told_and_then_started() -> None:
    assert decide(make_seen(SUBMITTED, make_observed())) == Note(Happening.STARTED, None, None)
    assert decide(make_seen(RUNS, make_observed(), started=False)) == RunHooks("start")
    assert decide(make_seen(RUNS, make_observed(), make_pod())) == Rest()


@pytest.mark.parametrize("phase", ["Completed", "Failed", "Aborted", "Terminated"])
@pytest.mark.parametrize("ran", [True, False])
def test_one_that_was_over_before_anybody_looked_is_told_to_have_run(phase: str, ran: bool) -> None:
    started = Note(Happening.STARTED, None, None)
    over = make_observed(phase, ran=ran)
    step = decide(make_seen(SUBMITTED, over))
    assert (step == started) is ran
    assert isinstance(confirmed(decide(make_seen(RUNS, over))), Conclude)
    # Where Volcano has removed it already, it is told by how it was last.
    step = decide(make_seen(SUBMITTED, None, last=over))
    assert (step == started) is ran
    assert isinstance(decide(make_seen(RUNS, None, last=over)), Confirm)
    other = replace(over, uid="of another attempt")
    assert isinstance(decide(make_seen(SUBMITTED, None, last=other)), Confirm)
    ended = replace(SUBMITTED, desired="ended", state="CANCELING")
    assert isinstance(decide(make_seen(ended, over)), Conclude)


def test_what_a_lost_store_would_lack_is_kept_once_there_is_nothing_else_to_do() -> None:
    # Its pods say when it began, so long as they are those that did.
    restarted = make_pod(started_at=900.0)
    step = decide(make_seen(RUNS, make_observed(), restarted))
    assert step == KeepForRecovery('{"first-start": "2.0"}')
    assert decide(make_seen(replace(RUNS, kept=step.what), make_observed(), restarted)) == Rest()
    assert decide(make_seen(RUNS, make_observed("Aborting"))) == step
    # A later attempt's VolcanoJob was made with it.
    annotations = {FIRST_START_ANNOTATION: "2.0"}
    assert decide(make_seen(RUNS, make_observed(annotations=annotations), restarted)) == Rest()
    # More time is news to the cluster in any case.
    extended = replace(RUNS, allocated_seconds=90.0)
    more = decide(make_seen(extended, make_observed(), make_pod()))
    assert more == KeepForRecovery('{"allocated-seconds": "90.0", "first-start": "2.0"}')
    given = {**RUNS.spec, "time_allocation_seconds": 90}
    assert decide(make_seen(replace(extended, spec=given), make_observed(), make_pod())) == Rest()


def test_what_people_reach_it_by_is_made_again_after_whatever_else_there_is_to_do() -> None:
    observed = make_observed()
    assert decide(make_seen(RUNS, observed, lost=True)) == Restore()
    # Just made, and not yet seen: nothing waits for that.
    waits = decide(make_seen(SUBMITTED, make_observed(), lost=True))
    assert waits == Note(Happening.STARTED, None, None)
    assert decide(make_seen(RUNS, observed, started=False, lost=True)) == RunHooks("start")


def test_a_job_that_is_started_over_waits_again() -> None:
    step = decide(make_seen(RUNS, make_observed("Restarting")))
    assert step == Note(Happening.WAITS, "restarting", "starting again")


def test_a_volcano_job_that_is_no_longer_seen_is_looked_for_before_it_is_believed() -> None:
    assert decide(make_seen(RUNS)) == Confirm()
    assert decide(make_seen(RUNS, make_observed(uid="of another"))) == Confirm()


def test_a_job_that_somebody_deletes_in_the_cluster_has_failed() -> None:
    step = decide(make_seen(RUNS, make_observed(deleting=True)))
    assert isinstance(step, Conclude)
    assert (step.outcome, step.reason) == (State.FAILURE, "deleted")


@pytest.mark.parametrize(
    ("phase", "outcome", "reason"),
    [
        ("Completed", State.SUCCESS, "completed"),
        ("Failed", State.FAILURE, "exit_code"),
        ("Running", State.FAILURE, "lost"),
        ("Terminating", State.FAILURE, "lost"),
    ],
)
def test_one_that_was_over_before_it_went_ended_as_it_did(
    phase: str, outcome: State, reason: str
) -> None:
    failed = make_pod(phase="Failed", ended=Ended(exit_code=3, signal=0, reason="Error",
                                                  finished_at=8.0))  # fmt: skip
    gone = decide(make_seen(RUNS, None, failed, last=make_observed(phase, deleting=True)))
    assert isinstance(gone, Confirm)
    assert isinstance(gone.then, Conclude)
    assert (gone.then.outcome, gone.then.reason) == (outcome, reason)
    if phase in ("Completed", "Failed"):
        going = decide(make_seen(RUNS, make_observed(phase, deleting=True), failed))
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
def test_how_a_volcano_job_ended_is_how_the_job_ends(
    phase: str, outcome: State, reason: str
) -> None:
    step = confirmed(decide(make_seen(RUNS, make_observed(phase))))
    assert isinstance(step, Conclude)
    assert (step.outcome, step.reason) == (outcome, reason)


QUOTA = {"uid": UID, "reason": "forbidden", "message": "exceeded quota", "details": {}}


def refused(cause: str, **fields: Any) -> Step:
    """Return what follows where Volcano gave up a job whose pods were refused for this."""
    record = replace(SUBMITTED, explained=QUOTA | {"details": {"cause": cause}}, **fields)
    return decide(make_seen(record, make_observed("Terminated")))


def test_a_job_whose_pods_volcano_could_not_make_waits_for_room_in_another_attempt() -> None:
    # After fifteen tries Volcano terminates it: some three minutes, whoever uses up the quota.
    again = StartNextAttempt("forbidden", "exceeded quota")
    assert refused("quota") == again
    assert refused("missing_service_account") == again
    ran = decide(make_seen(replace(RUNS, explained=QUOTA), make_observed("Terminated", ran=True)))
    of_another = replace(SUBMITTED, explained=QUOTA | {"uid": "of another"})
    for step in (ran, decide(make_seen(of_another, make_observed("Terminated")))):
        assert isinstance(step, Conclude)
        assert step.reason == "stopped"


def test_a_job_whose_pods_are_refused_for_good_fails_and_says_why() -> None:
    for step in (refused("pod_security"), refused("quota", attempt=MOST_ATTEMPTS)):
        assert step == Conclude(State.FAILURE, "refused", "exceeded quota")


@pytest.mark.parametrize("phase", ["Aborting", "Completing", "Terminating"])
def test_while_a_volcano_job_is_being_ended_nothing_is_done(phase: str) -> None:
    assert decide(make_seen(RUNS, make_observed(phase), make_pod())) == Rest()


@pytest.mark.parametrize(
    ("pod", "reason", "text"),
    [
        (make_pod(phase="Failed", ended=Ended(exit_code=3, signal=0, reason="Error",
                                              finished_at=None)), "exit_code", "exit code 3"),
        (make_pod(phase="Failed", ended=Ended(exit_code=137, signal=9, reason="OOMKilled",
                                              finished_at=None)), "out_of_memory", "memory"),
        (make_pod(phase="Failed", reason="Evicted", message="no disk"), "evicted", "no disk"),
    ],
)  # fmt: skip
def test_a_failure_is_explained_by_the_pod_that_failed(pod: object, reason: str, text: str) -> None:
    healthy = make_pod(1)
    step = decide(make_seen(RUNS, make_observed("Failed"), healthy, pod))  # type: ignore[arg-type]  # parametrized
    assert isinstance(step, Conclude)
    assert step.reason == reason
    assert text in (step.message or "")


def test_asking_to_end_a_job_concludes_it_whatever_it_does() -> None:
    asked = make_record(uid=UID, state="CANCELING", desired="ended")
    for phase in PROGRESS:
        step = decide(make_seen(asked, make_observed(phase)))
        assert isinstance(step, Conclude)
        assert step.outcome is State.SUCCESS


def test_a_job_that_is_to_end_is_completed_removed_cleaned_and_finished_in_this_order() -> None:
    ending = make_record(
        uid=UID, state="CANCELING", desired="ended", outcome="SUCCESS", reason="asked"
    )
    job, pod = make_observed(), make_pod()
    going = make_observed(deleting=True)
    assert decide(make_seen(ending, job, pod)) == RunHooks("complete")
    assert decide(make_seen(ending, job, pod, completed=True)) == Remove(UID)
    # Accepted: the cluster's own collector is not waited for.
    ending = replace(ending, removed_uid=UID)
    assert decide(make_seen(ending, going, pod, completed=True)) == RemovePods((pod,))
    assert decide(make_seen(ending, None, pod, completed=True)) == RemovePods((pod,))
    # Its pods outlive it, and a program that runs has not ended.
    ends = make_pod(deleting=True)
    assert decide(make_seen(ending, None, ends, completed=True)) == Rest()
    assert decide(make_seen(ending, going, completed=True)) == Rest()
    assert decide(make_seen(ending, completed=True)) == RunHooks("cleanup")
    assert decide(make_seen(ending, completed=True, cleaned=True)) == Finish()


def test_no_pod_is_deleted_while_its_volcano_job_may_live() -> None:
    ending = make_record(uid=UID, state="CANCELING", desired="ended", outcome="SUCCESS")
    # Not shown is not gone: the news of the VolcanoJob may come after that of its pods.
    assert decide(make_seen(ending, None, make_pod(), completed=True)) == Remove(UID)
    # The deletion of an earlier one says nothing about this one.
    earlier = replace(ending, removed_uid="the first")
    assert decide(make_seen(earlier, make_observed(), make_pod(), completed=True)) == Remove(UID)
    # Whoever else deletes it decides what becomes of its pods, until the job is to end.
    renewing = replace(RUNS, renewal="evicted")
    going = make_observed("Failed", deleting=True)
    assert decide(make_seen(renewing, going, make_pod())) == Rest()
    assert decide(make_seen(ending, going, make_pod(), completed=True)) == Remove(UID)


def test_a_pod_that_volcano_makes_late_is_deleted_whatever_the_job_does() -> None:
    late, own = make_pod(owner_uid="the first", uid="late"), make_pod(1)
    known = frozenset({"the first"})
    for record in (RUNS, make_record(attempt=2), replace(RUNS, desired="ended")):
        assert decide(make_seen(record, None, late, own, gone=known)) == RemovePods((late,))
    final = make_record(uid=UID, state="SUCCESS", outcome="SUCCESS", removed_uid=UID)
    assert decide(make_seen(final, None, own, gone=frozenset({UID}))) == RemovePods((own,))
    # That of a VolcanoJob of which nothing is known stays.
    assert decide(make_seen(final, None, late, gone=frozenset())) == Rest()
    going = replace(late, deleting=True)
    assert not isinstance(decide(make_seen(RUNS, make_observed(), going, gone=known)), RemovePods)


def test_a_job_that_ended_by_itself_keeps_its_pods_for_a_while() -> None:
    ended = make_record(uid=UID, state="RUNNING", outcome="SUCCESS", reason="completed")
    job, pod = make_observed("Completed"), make_pod(phase="Succeeded")
    assert decide(make_seen(ended, job, pod, completed=True)) == RunHooks("cleanup")
    final = make_record(uid=UID, state="SUCCESS", outcome="SUCCESS", reason="completed")
    assert decide(make_seen(final, job, pod, completed=True, cleaned=True)) == Rest()


def test_after_its_end_a_job_that_is_deleted_goes_from_the_cluster_at_once() -> None:
    final = make_record(uid=UID, state="SUCCESS", outcome="SUCCESS", desired="ended")
    assert decide(make_seen(final, make_observed("Completed"))) == Remove(UID)
    assert decide(make_seen(final, make_observed("Completed", uid="of another"))) == Rest()


def test_an_aborted_volcano_job_is_removed_since_volcano_never_does() -> None:
    ended = make_record(uid=UID, state="RUNNING", outcome="FAILURE", end_reason="stopped")
    assert decide(make_seen(ended, make_observed("Aborted"), completed=True)) == Remove(UID)
    final = make_record(uid=UID, state="FAILURE", outcome="FAILURE", reason="stopped")
    assert decide(make_seen(final, make_observed("Aborted"), completed=True)) == Remove(UID)


def test_a_job_that_was_never_submitted_can_end() -> None:
    asked = make_record(desired="ended", state="CANCELING")
    assert isinstance(decide(make_seen(asked)), Conclude)
    ending = make_record(desired="ended", state="CANCELING", outcome="SUCCESS")
    assert decide(make_seen(ending, completed=True, cleaned=True)) == Finish()


# Suspended, taken away, out of time


WANTED_STILL = make_record(uid=UID, state="RUNNING", reason=None, message=None, started_at=2.0,
                           desired="suspended")  # fmt: skip
STOPPING = replace(WANTED_STILL, stopping=True, reason="suspending", message="being suspended")


@pytest.mark.parametrize("phase", ["", "Pending", "Running", "Restarting"])
def test_a_job_that_is_to_wait_is_stopped_whatever_it_does(phase: str) -> None:
    assert decide(make_seen(WANTED_STILL, make_observed(phase))) == Stop(UID)


def test_it_is_suspended_when_its_pods_are_gone_and_goes_on_as_another_attempt() -> None:
    aborted = make_observed("Aborted")
    assert decide(make_seen(STOPPING, make_observed("Aborting"), make_pod())) == Rest()
    assert decide(make_seen(STOPPING, aborted, make_pod())) == Rest()
    told = decide(make_seen(STOPPING, aborted))
    assert told == Note(Happening.SUSPENDED, "asked", "suspended as asked")
    suspended = replace(STOPPING, state="SUSPENDED", reason="asked", message="suspended as asked",
                        kept='{"first-start": "2.0"}')  # fmt: skip
    assert decide(make_seen(suspended, aborted)) == Rest()
    resumed = replace(suspended, desired="run")
    assert isinstance(step := decide(make_seen(resumed, aborted)), StartNextAttempt)
    assert step.why == "resumed"
    # Also one that is resumed before it was stopped: the command is on its way.
    assert isinstance(
        decide(make_seen(replace(STOPPING, desired="run"), aborted)), StartNextAttempt
    )


@pytest.mark.parametrize(
    "fields",
    [
        {"uid": None},
        {"uid": "of the first"},
        {"uid": "of the first", "renewal": "evicted"},
        {"uid": "of the first", "desired": "ended", "state": "CANCELING"},
    ],
)
def test_an_attempt_that_is_later_than_the_stores_is_gone_on_with(fields: dict[str, Any]) -> None:
    record = make_record(attempt=1, **fields)
    later = make_observed(annotations={ATTEMPT_ANNOTATION: "2"})
    assert decide(make_seen(record, later)) == AdoptNewerAttempt()
    assert (
        decide(make_seen(replace(record, attempt=2, uid=UID, renewal=None), later))
        != AdoptNewerAttempt()
    )
    # Somebody has changed the annotation of a VolcanoJob that is known.
    assert decide(make_seen(replace(record, uid=UID, renewal=None), later)) != AdoptNewerAttempt()


def test_the_next_attempt_begins_when_nothing_of_the_last_one_is_left() -> None:
    renewing = replace(RUNS, renewal="resumed", stopping=True)
    assert decide(make_seen(renewing, make_observed("Aborted"))) == Remove(UID)
    assert decide(make_seen(renewing, make_observed(deleting=True))) == Rest()
    renewing = replace(renewing, removed_uid=UID)
    assert decide(make_seen(renewing, None, make_pod())) == RemovePods((make_pod(),))
    assert decide(make_seen(renewing, None, make_pod(deleting=True))) == Rest()
    assert decide(make_seen(renewing)) == Replace()
    # Whoever ends it meanwhile ends it.
    ended = replace(renewing, desired="ended", end_state="SUCCESS")
    assert isinstance(decide(make_seen(ended)), Conclude)


def test_a_job_that_is_not_submitted_yet_waits_where_it_is() -> None:
    waiting = replace(ACCEPTED, desired="suspended")
    assert decide(make_seen(waiting)) == Note(Happening.SUSPENDED, "asked", "suspended as asked")
    # One whose making was not answered is found first.
    assert decide(make_seen(waiting, make_observed("Pending"))) == Submit()


def test_nothing_is_submitted_while_submission_is_held() -> None:
    step = decide(make_seen(ACCEPTED, held="the disks are full"))
    assert step == Note(Happening.WAITS, "paused", "the disks are full")
    told = replace(ACCEPTED, reason="paused", message="the disks are full")
    assert decide(make_seen(told, held="the disks are full")) == Rest()
    assert decide(make_seen(told)) == Submit()


@pytest.mark.parametrize(
    "pod",
    [
        make_pod(phase="Failed", reason="Evicted", message="no disk"),
        make_pod(phase="Failed", reason="NodeLost"),
        make_pod(phase="Failed", disrupted="PreemptionByScheduler",
                 ended=Ended(exit_code=137, signal=9, reason="Error", finished_at=3.0)),
    ],
)  # fmt: skip
def test_what_the_cluster_took_away_is_submitted_again_as_often_as_allowed(
    pod: ObservedPod,
) -> None:
    # Others fail for want of it, and are not why.
    how = Ended(exit_code=1, signal=0, reason="Error", finished_at=3.0)
    other = make_pod(1, phase="Failed", ended=how)
    seen = make_seen(RUNS, make_observed("Failed"), other, pod, evictions_allowed=1)
    step = decide(seen)
    assert isinstance(step, StartNextAttempt)
    assert step.why == "evicted"
    spent = make_seen(replace(RUNS, evictions=1), make_observed("Failed"), pod, evictions_allowed=1)
    step = decide(spent)
    assert isinstance(step, Conclude)
    assert (step.outcome, step.reason) == (State.FAILURE, "evicted")


def test_pods_are_written_down_before_anything_else_is_done() -> None:
    pod = make_pod()
    assert decide(make_seen(RUNS, make_observed("Failed"), pod, runs={})) == RecordPods()
    gone = make_seen(RUNS, make_observed(), departed=(pod,), runs={})
    assert decide(gone) == RecordPods()
    # Those of another VolcanoJob of the same name are not its own.
    foreign = make_pod(owner_uid="of another")
    assert decide(make_seen(RUNS, make_observed(), foreign, runs={})) != RecordPods()


@pytest.mark.parametrize(
    ("state", "reason"), [("EXPIRED", "expired"), ("FAILURE", "out_of_funds"), ("SUCCESS", "asked")]
)
def test_a_job_that_is_ended_on_purpose_is_told_as_who_ended_it_said(
    state: str, reason: str
) -> None:
    ended = replace(RUNS, desired="ended", end_state=state, end_reason=reason, end_message="so")
    assert decide(make_seen(ended, make_observed())) == Conclude(State(state), reason, "so")  # type: ignore[arg-type]  # one of the three


def test_a_job_is_over_only_when_its_programs_are() -> None:
    ended = make_record(uid=UID, state="RUNNING", outcome="SUCCESS", reason="completed")
    job = make_observed("Completed")
    assert decide(make_seen(ended, job, make_pod(), completed=True)) == Rest()


records = st.builds(
    make_record,
    desired=st.sampled_from(["run", "suspended", "ended"]),
    renewal=st.sampled_from([None, None, "evicted", "resumed"]),
    stopping=st.booleans(),
    state=st.sampled_from(State).map(str),
    outcome=st.none() | st.sampled_from(["SUCCESS", "FAILURE"]),
    uid=st.none() | st.just(UID),
    removed_uid=st.sampled_from([None, UID]),
    reason=st.sampled_from([None, "asked", "stopped", "deleted", "queued"]),
)
observed = st.builds(
    make_observed,
    st.sampled_from([*PROGRESS, "Unheard of"]),
    uid=st.sampled_from([UID, "of another"]),
    deleting=st.booleans(),
)
flags = st.fixed_dictionaries(
    {name: st.booleans() for name in ("exposed", "started", "completed", "cleaned")}
)


@given(records, st.none() | observed, st.lists(st.builds(make_pod), max_size=2), flags)
def test_only_the_jobs_own_volcano_job_is_ever_removed(
    record: object, job: object, pods: list[object], done: dict[str, bool]
) -> None:
    seen = make_seen(record, job, *pods, **done)  # type: ignore[arg-type]  # from strategies
    step = decide(seen)
    if isinstance(step, Remove):
        assert step.uid == (seen.record.uid or (seen.job and seen.job.uid))
        assert seen.record.outcome or seen.record.is_final or seen.record.renewal
    if isinstance(step, RemovePods):
        assert seen.record.removed_uid == UID
        assert all(pod.owner_uid == UID and not pod.deleting for pod in step.pods)
    if seen.record.is_final:
        assert isinstance(step, Rest | Remove)
    if isinstance(step, Replace):
        assert not any(pod.owner_uid == seen.record.uid for pod in seen.pods)
    if isinstance(step, Submit):
        assert seen.record.uid is None
        assert seen.record.desired == "run" or seen.job is not None


def gone(uid: str, index: int = 0, **fields: Any) -> dict[str, PodRecord]:
    """Return what is written down of a pod that Volcano has deleted."""
    values: dict[str, Any] = {
        "job_id": "j1", "pod_uid": uid, "attempt": 1, "rank": index, "task": "job",
        "index": index, "pod": f"j-j1-job-{index}", "node": "n1", "phase": "Failed",
        "reason": "Error", "message": "", "exit_code": 143, "signal": 0, "seen_at": 5.0,
        "started_at": 2.0, "ended_at": 7.0,
    }  # fmt: skip
    return {uid: PodRecord(**values | fields)}


@pytest.mark.parametrize(
    ("runs", "reason", "message"),
    [
        (gone("a", exit_code=7), "exit_code", "job 0 ended with exit code 7"),
        (gone("a", exit_code=137, reason="OOMKilled"), "out_of_memory", None),
        # The one that failed first, and not those that were killed for it.
        (gone("a") | gone("b", 1, exit_code=7), "exit_code", "job 1 ended with exit code 7"),
        (gone("a", exit_code=1, ended_at=9.0) | gone("b", 1, ended_at=8.0),
         "exit_code", "job 1 ended with exit code 143 (SIGTERM)"),
        # The last pod of a rank, and not one that was made good for.
        (gone("a", exit_code=9) | gone("b", exit_code=7, seen_at=6.0),
         "exit_code", "job 0 ended with exit code 7"),
        (gone("a", exit_code=0), "failed", None),
    ],
)  # fmt: skip
def test_why_it_failed_is_known_also_where_volcano_has_deleted_the_pods(
    runs: dict[str, PodRecord], reason: str, message: str | None
) -> None:
    step = confirmed(decide(make_seen(RUNS, make_observed("Failed"), runs=runs)))
    assert isinstance(step, Conclude)
    assert step.reason == reason
    assert message in (None, step.message)


def test_a_failure_that_no_pod_explains_yet_is_no_end() -> None:
    seen = make_seen(RUNS, make_observed("Failed"), make_pod())
    assert decide(seen) == Rest()
    aged = replace(RUNS, kept='{"first-start": "2.0"}')
    assert decide(make_seen(aged, make_observed("Failed"), blind=True)) == Rest()
    # None is there either, unless the cluster itself says so: the cache may be behind.
    unexplained = ConfirmPods(Conclude(State.FAILURE, "failed"))
    assert decide(make_seen(RUNS, make_observed("Failed"))) == unexplained
    said = make_observed("Failed", message="PodFailed")
    of_volcano = ConfirmPods(Conclude(State.FAILURE, "failed", "PodFailed"))
    assert decide(make_seen(RUNS, said)) == of_volcano
    assert decide(make_seen(RUNS, said, make_pod())) == Rest()
    over = make_pod(phase="Failed", ended=Ended(exit_code=4, signal=0, reason="Error",
                                                finished_at=5.0))  # fmt: skip
    step = decide(make_seen(RUNS, make_observed("Failed"), over))
    assert step == Conclude(State.FAILURE, "exit_code", "job 0 ended with exit code 4")


@pytest.mark.parametrize("why", ["Evicted", "PreemptionByScheduler", "EvictionByEvictionAPI"])
def test_an_evicted_pod_that_volcano_has_deleted_is_made_good_for(why: str) -> None:
    seen = make_seen(RUNS, make_observed("Failed"), runs=gone("a", reason=why))
    step = decide(replace(seen, evictions_allowed=1))
    assert isinstance(step, StartNextAttempt)
    assert step.why == "evicted"


def test_pods_that_were_left_to_nobody_are_waited_for_and_counted_to_the_end() -> None:
    orphan = make_pod(owner_uid="")
    runs = written_down(RUNS, make_pod())
    ending = replace(RUNS, outcome="FAILURE", end_reason="deleted", removed_uid=UID)
    seen = make_seen(ending, None, orphan, runs=runs, completed=True)
    assert decide(seen) == Rest()
    # Until somebody asks for the job's end.
    asked = replace(seen, record=replace(ending, desired="ended"))
    assert decide(asked) == RemovePods((orphan,))
    over = replace(orphan, phase="Failed")
    assert decide(replace(seen, pods=(over,))) == RecordPods()
    renewing = replace(RUNS, renewal="evicted", removed_uid=UID)
    assert decide(replace(seen, record=renewing)) == Rest()
    # One that was never the job's, by its label alone, holds up nothing.
    stray = make_seen(ending, None, replace(orphan, uid="stray"), runs={}, completed=True)
    assert decide(stray) == RunHooks("cleanup")


@pytest.mark.parametrize("uid", [None, "an earlier one"])
def test_a_volcano_job_that_comes_after_the_end_is_removed(uid: str | None) -> None:
    final = make_record(uid=uid, state="SUCCESS", outcome="SUCCESS", reason="asked")
    late = make_observed(annotations={CREATED_ANNOTATION: repr(final.created_at)})
    assert decide(make_seen(final, late)) == Remove(UID)
    # Without that evidence it is not known to be this job's.
    assert decide(make_seen(final, make_observed())) == Rest()
    assert decide(make_seen(final, make_observed(annotations={CREATED_ANNOTATION: "7.0"}))) == (
        Rest()
    )


def test_retries_that_went_to_evictions_are_given_back() -> None:
    evicted = gone("a", reason="Evicted", exit_code=137, seen_at=3.0)
    failed = gone("b", exit_code=7, seen_at=6.0)
    exhausted = make_observed("Failed", retries=2, max_retry=2)
    seen = make_seen(RUNS, exhausted, runs=evicted | failed, evictions_allowed=1)
    step = decide(seen)
    assert isinstance(step, StartNextAttempt)
    assert step.why == "evicted"
    # Not more often than evictions are made good for,
    assert isinstance(decide(replace(seen, evictions_allowed=0)), Conclude)
    # nor where the job itself has used all of them, or no policy asked for a restart.
    assert isinstance(decide(replace(seen, runs=failed)), Conclude)
    left = make_observed("Failed", retries=1, max_retry=2)
    assert isinstance(decide(replace(seen, job=left)), Conclude)
