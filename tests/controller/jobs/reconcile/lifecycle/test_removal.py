from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.jobs.history.job_record import JobEvent
from controller.jobs.reconcile.lifecycle.next_step import decide
from controller.jobs.reconcile.lifecycle.removal import KEPT_SECONDS, REVIVED_SECONDS
from controller.jobs.reconcile.lifecycle.steps import (
    DeletePods,
    DeleteRevivedJob,
    DeleteVolcanoJob,
    Finish,
    RecordPods,
    ResetForNextAttempt,
    RunHooks,
    SetOutcome,
    UpdateStatus,
    Wait,
)
from controller.store.jobs.job_rows import JobRecord
from controller.volcano.names import CREATED_ANNOTATION
from tests.controller.jobs.reconcile.lifecycle.records import ENDS, FAILED, KEPT, RUNS
from tests.controller.samples import (
    UID,
    make_observed,
    make_observed_state,
    make_pod,
    make_record,
    recorded_pods,
)


def test_an_ending_job_runs_complete_remove_cleanup_and_finish_in_order() -> None:
    ending = make_record(
        uid=UID, state="CANCELING", desired="ended", outcome="SUCCESS", reason="asked"
    )
    job, pod = make_observed(), make_pod()
    going = make_observed(deleting=True)
    assert decide(make_observed_state(ending, job, pod)) == RunHooks("complete")
    assert decide(make_observed_state(ending, job, pod, completed=True)) == DeleteVolcanoJob(UID)
    # The deletion was accepted: the step does not wait for the garbage collector.
    ending = replace(ending, removed_uid=UID)
    assert decide(make_observed_state(ending, going, pod, completed=True)) == DeletePods((pod,))
    assert decide(make_observed_state(ending, None, pod, completed=True)) == DeletePods((pod,))
    # The pods outlive their VolcanoJob, and a running program has not ended.
    ends = make_pod(deleting=True)
    assert decide(make_observed_state(ending, None, ends, completed=True)) == Wait()
    assert decide(make_observed_state(ending, going, completed=True)) == Wait()
    assert decide(make_observed_state(ending, completed=True)) == RunHooks("cleanup")
    assert decide(make_observed_state(ending, completed=True, cleaned=True)) == Finish()


def test_pending_hooks_delay_only_their_own_step() -> None:
    complete, cleanup = frozenset({"complete"}), frozenset({"cleanup"})
    assert decide(
        make_observed_state(KEPT, make_observed(), started=False, paused_hooks=frozenset({"start"}))
    ) == (Wait())
    removes = replace(ENDS, desired="ended")
    assert decide(make_observed_state(removes, make_observed())) == RunHooks("complete")
    assert decide(
        make_observed_state(removes, make_observed(), paused_hooks=complete)
    ) == DeleteVolcanoJob(UID)
    assert decide(make_observed_state(ENDS, paused_hooks=complete)) == Wait()
    assert decide(make_observed_state(ENDS, paused_hooks=cleanup)) == RunHooks("complete")
    assert decide(make_observed_state(ENDS, completed=True, paused_hooks=complete)) == RunHooks(
        "cleanup"
    )
    assert decide(make_observed_state(ENDS, completed=True, paused_hooks=cleanup)) == Wait()
    assert decide(make_observed_state(ENDS, completed=True, cleaned=True)) == Finish()
    later = replace(ENDS, outcome="of a later version")
    assert decide(make_observed_state(later, completed=True, cleaned=True)) == Wait()


def test_no_pod_is_deleted_while_its_volcano_job_may_exist() -> None:
    ending = make_record(uid=UID, state="CANCELING", desired="ended", outcome="SUCCESS")
    # Absent from the cache is not gone: pod events may precede that of their VolcanoJob.
    assert decide(
        make_observed_state(ending, None, make_pod(), completed=True)
    ) == DeleteVolcanoJob(UID)
    # The deletion of an earlier VolcanoJob proves nothing about this one.
    earlier = replace(ending, removed_uid="the first")
    assert decide(
        make_observed_state(earlier, make_observed(), make_pod(), completed=True)
    ) == DeleteVolcanoJob(UID)
    # If another client deletes the VolcanoJob, that client decides about its pods, until the job is
    # to end.
    renewing = replace(RUNS, renewal="evicted")
    going = make_observed("Failed", deleting=True)
    assert decide(make_observed_state(renewing, going, make_pod())) == Wait()
    assert decide(
        make_observed_state(ending, going, make_pod(), completed=True)
    ) == DeleteVolcanoJob(UID)


def test_a_late_pod_of_volcano_is_deleted_in_any_state() -> None:
    late, own = make_pod(owner_uid="the first", uid="late"), make_pod(1)
    known = frozenset({"the first"})
    for record in (RUNS, make_record(attempt=2), replace(RUNS, desired="ended")):
        assert decide(
            make_observed_state(record, None, late, own, deleted_uids=known)
        ) == DeletePods((late,))
    final = make_record(uid=UID, state="SUCCESS", outcome="SUCCESS", removed_uid=UID)
    assert decide(
        make_observed_state(final, None, own, deleted_uids=frozenset({UID}))
    ) == DeletePods((own,))
    # A pod of an unknown VolcanoJob stays.
    assert decide(make_observed_state(final, None, late, deleted_uids=frozenset())) == Wait()
    going = replace(late, deleting=True)
    assert not isinstance(
        decide(make_observed_state(RUNS, make_observed(), going, deleted_uids=known)), DeletePods
    )


def test_a_finished_job_keeps_its_pods_for_a_while() -> None:
    ended = make_record(uid=UID, state="RUNNING", outcome="SUCCESS", reason="completed")
    job, pod = make_observed("Completed"), make_pod(phase="Succeeded")
    assert decide(make_observed_state(ended, job, pod, completed=True)) == RunHooks("cleanup")
    final = make_record(uid=UID, state="SUCCESS", outcome="SUCCESS", reason="completed")
    assert decide(make_observed_state(final, job, pod, completed=True, cleaned=True)) == Wait()


def test_deleting_an_ended_job_removes_its_objects_at_once() -> None:
    final = make_record(uid=UID, state="SUCCESS", outcome="SUCCESS", desired="ended")
    assert decide(make_observed_state(final, make_observed("Completed"))) == DeleteVolcanoJob(UID)
    assert (
        decide(make_observed_state(final, make_observed("Completed", uid="of another"))) == Wait()
    )


def test_an_aborted_volcano_job_is_removed_by_the_controller() -> None:
    ended = make_record(uid=UID, state="RUNNING", outcome="FAILURE", end_reason="stopped")
    assert decide(
        make_observed_state(ended, make_observed("Aborted"), completed=True)
    ) == DeleteVolcanoJob(UID)
    final = make_record(uid=UID, state="FAILURE", outcome="FAILURE", reason="stopped")
    assert decide(
        make_observed_state(final, make_observed("Aborted"), completed=True)
    ) == DeleteVolcanoJob(UID)


def test_a_job_is_final_only_after_its_containers_ended() -> None:
    ended = make_record(uid=UID, state="RUNNING", outcome="SUCCESS", reason="completed")
    job = make_observed("Completed")
    assert decide(make_observed_state(ended, job, make_pod(), completed=True)) == Wait()


def test_the_next_attempt_starts_after_the_last_one_is_removed() -> None:
    renewing = replace(RUNS, renewal="resumed", stopping=True)
    assert decide(make_observed_state(renewing, make_observed("Aborted"))) == DeleteVolcanoJob(UID)
    assert decide(make_observed_state(renewing, make_observed(deleting=True))) == Wait()
    renewing = replace(renewing, removed_uid=UID)
    assert decide(make_observed_state(renewing, None, make_pod())) == DeletePods((make_pod(),))
    assert decide(make_observed_state(renewing, None, make_pod(deleting=True))) == Wait()
    assert decide(make_observed_state(renewing)) == ResetForNextAttempt()
    # A request to end the job meanwhile takes effect.
    ended = replace(renewing, desired="ended", end_state="SUCCESS")
    assert isinstance(decide(make_observed_state(ended)), SetOutcome)


def test_orphaned_pods_are_awaited_and_charged_until_their_end() -> None:
    orphan = make_pod(owner_uid="")
    runs = recorded_pods(RUNS, make_pod())
    ending = replace(RUNS, outcome="FAILURE", end_reason="deleted", removed_uid=UID)
    seen = make_observed_state(ending, None, orphan, runs=runs, completed=True)
    assert decide(seen) == Wait()
    # Until the job's end is requested.
    asked = replace(seen, record=replace(ending, desired="ended"))
    assert decide(asked) == DeletePods((orphan,))
    over = replace(orphan, phase="Failed")
    assert decide(replace(seen, pods=(over,))) == RecordPods()
    renewing = replace(RUNS, renewal="evicted", removed_uid=UID)
    assert decide(replace(seen, record=renewing)) == Wait()
    # A pod that carries only the job's label delays nothing.
    stray = make_observed_state(ending, None, replace(orphan, uid="stray"), runs={}, completed=True)
    assert decide(stray) == RunHooks("cleanup")


def test_a_deleted_pod_that_stays_is_why_the_next_attempt_does_not_begin() -> None:
    renewing = replace(RUNS, renewal="evicted", removed_uid=UID, reason="evicted")
    leaving = make_pod(deleting=True)
    assert decide(make_observed_state(renewing, None, leaving)) == Wait()
    text = (
        "the deleted pod of job 0 stays, and the next attempt waits for its name:"
        " the node n1, or a finalizer, keeps it"
    )
    lost = replace(leaving, lost=True)
    told = UpdateStatus(JobEvent.WAITS, "node_not_ready", text)
    step = decide(make_observed_state(renewing, None, lost))
    assert step == told
    assert isinstance(step, UpdateStatus)
    assert (step.details or {})["pod"] == "j-j1-job-0"
    more = decide(
        make_observed_state(renewing, None, lost, replace(make_pod(1), lost=True, deleting=True))
    )
    assert isinstance(more, UpdateStatus)
    assert "job 0 (and those of 1 more) stays" in (more.message or "")
    # It is said once, and the cluster's own words come first.
    said = replace(renewing, state="IN_QUEUE", reason=told.reason, message=text)
    assert decide(make_observed_state(said, None, lost)) == Wait()
    dead = replace(leaving, node_unready_since=0.0)
    step = decide(make_observed_state(renewing, None, dead))
    assert isinstance(step, UpdateStatus)
    assert (step.message or "").startswith("the node n1 of job 0 is not ready since 1970")
    # Once the pod is gone, the attempt begins.
    assert decide(make_observed_state(said, None)) == ResetForNextAttempt()


def test_an_intentionally_kept_pod_is_removed_with_the_job() -> None:
    # As ``kubectl delete --cascade=orphan`` leaves it.
    left = make_pod(owner_uid="")
    runs = make_observed_state(KEPT, None, make_pod()).runs
    renewing = replace(KEPT, renewal="evicted", removed_uid=UID)
    assert decide(make_observed_state(renewing, None, left, runs=runs)) == Wait()
    ending = replace(ENDS, desired="ended", removed_uid=UID)
    step = decide(make_observed_state(ending, None, left, runs=runs, completed=True))
    assert step == DeletePods((left,))


def test_an_ended_pod_that_is_being_deleted_is_awaited() -> None:
    # Its name, and its volumes, are free only once it is gone.
    asked = replace(ENDS, desired="ended", removed_uid=UID)
    leaving = replace(FAILED, deleting=True)
    seen = make_observed_state(asked, None, leaving, completed=True, cleaned=True)
    assert decide(seen) == Wait()
    assert decide(replace(seen, pods=())) == Finish()
    assert decide(replace(seen, pods=(replace(leaving, lost=True),))) == Finish()


def test_a_pod_that_was_left_on_purpose_holds_the_job_until_its_program_has_ended() -> None:
    lost = replace(RUNS, outcome="FAILURE", end_reason="lost", removed_uid=UID)
    runs = recorded_pods(RUNS, make_pod())
    running = make_observed_state(lost, None, make_pod(owner_uid=""), runs=runs, completed=True)
    assert decide(running) == Wait()
    over = replace(FAILED, owner_uid="")
    ended = replace(running, pods=(over,), runs=recorded_pods(RUNS, FAILED))
    # Nobody deletes the pod, which stays for those who kept it.
    assert decide(ended) == RunHooks("cleanup")
    # Its name is free for the next attempt once somebody has deleted it.
    assert decide(replace(ended, record=replace(lost, outcome=None, renewal="evicted"))) == Wait()


def test_pods_with_open_log_streams_are_kept_for_a_while() -> None:
    removes = replace(ENDS, desired="ended")
    seen = make_observed_state(removes, make_observed(), FAILED, completed=True, logs_until=50.0)
    assert decide(replace(seen, now=49.9)) == Wait(50.0)
    assert decide(replace(seen, now=50.0)) == DeleteVolcanoJob(UID)


@pytest.mark.parametrize("uid", [None, "an earlier one"])
def test_a_volcano_job_created_after_the_end_is_removed(uid: str | None) -> None:
    final = make_record(uid=uid, state="SUCCESS", outcome="SUCCESS", reason="asked")
    late = make_observed(annotations={CREATED_ANNOTATION: repr(final.created_at)})
    assert decide(make_observed_state(final, late)) == DeleteVolcanoJob(UID)
    # Without that evidence it may belong to another job.
    assert decide(make_observed_state(final, make_observed())) == Wait()
    assert decide(
        make_observed_state(final, make_observed(annotations={CREATED_ANNOTATION: "7.0"}))
    ) == (Wait())


FINAL = make_record(uid=UID, state="FAILURE", reason="exit_code", created_at=5.5)


@pytest.mark.parametrize(
    ("record", "fields", "removed"),
    [
        # Its creation got no response, and took effect after the end.
        (FINAL, {"uid": "late", "created": "5.5"}, True),
        (FINAL, {"uid": "late", "created": "5.6"}, False),
        (FINAL, {"uid": "late", "created": "5.5", "deleting": True}, False),
        (FINAL, {"created": "5.5"}, False),
        (replace(FINAL, desired="ended"), {"created": "5.5"}, True),
        (replace(FINAL, stopping=True), {"created": "5.5"}, True),
        (replace(FINAL, reason="stopped"), {"created": "5.5"}, True),
        (replace(FINAL, desired="ended"), {"uid": "another", "created": "9"}, False),
    ],
)
def test_objects_of_the_job_found_after_its_end_are_removed(
    record: JobRecord, fields: dict[str, Any], removed: bool
) -> None:
    said = {name: value for name, value in fields.items() if name != "created"}
    annotations = {CREATED_ANNOTATION: fields["created"]}
    observed = make_observed("Failed", annotations=annotations, **said)
    assert decide(make_observed_state(record, observed)) == (
        DeleteVolcanoJob(observed.uid) if removed else Wait()
    )


def test_a_pod_of_a_lost_node_does_not_block_the_end() -> None:
    ending = make_record(uid=UID, state="CANCELING", desired="ended", outcome="SUCCESS")
    ending = replace(ending, removed_uid=UID)
    lost, ends = make_pod(deleting=True, lost=True), make_pod(1, deleting=True)
    assert decide(make_observed_state(ending, None, lost, ends, completed=True)) == Wait()
    assert decide(make_observed_state(ending, None, lost, completed=True)) == RunHooks("cleanup")
    assert decide(make_observed_state(ending, None, lost, completed=True, cleaned=True)) == Finish()
    # A foreground deletion by another client waits for the pods.
    going = make_observed(deleting=True)
    assert (
        decide(make_observed_state(ending, going, lost, completed=True, cleaned=True)) == Finish()
    )
    assert decide(make_observed_state(ending, make_observed(), lost, completed=True)) == Wait()
    assert decide(make_observed_state(ending, going, completed=True)) == Wait()
    # The pods of the next attempt have the same names.
    renewing = replace(RUNS, renewal="evicted", removed_uid=UID)
    assert isinstance(decide(make_observed_state(renewing, None, lost)), UpdateStatus)
    # A job that is ended meanwhile has no next attempt.
    ended = replace(renewing, state="CANCELING", desired="ended", outcome="SUCCESS")
    assert decide(make_observed_state(ended, None, lost, completed=True)) == RunHooks("cleanup")


def test_a_volcano_job_that_a_finalizer_keeps_does_not_block_the_end_for_ever() -> None:
    ending = make_record(uid=UID, state="CANCELING", desired="ended", outcome="SUCCESS")
    ending = replace(ending, removed_uid=UID)
    going = make_observed(deleting=True, finalizers=("audit.example.org/keep",))
    assert decide(make_observed_state(ending, going, completed=True)) == Wait()
    held = replace(going, held=True)
    runs = make_pod(deleting=True)
    assert decide(make_observed_state(ending, held, runs, completed=True)) == Wait()
    assert decide(make_observed_state(ending, held, completed=True)) == RunHooks("cleanup")
    assert decide(make_observed_state(ending, held, completed=True, cleaned=True)) == Finish()
    final = replace(ending, state="SUCCESS")
    assert decide(make_observed_state(final, held, completed=True, cleaned=True)) == Wait()


def test_a_cancelled_job_names_the_finalizers_that_keep_its_volcano_job() -> None:
    ending = make_record(
        uid=UID, state="CANCELING", desired="ended", outcome="SUCCESS", reason="asked",
        message="ended as asked", details={"by": "ada"}, removed_uid=UID,
    )  # fmt: skip
    going = make_observed(deleting=True, finalizers=("a.example.org/x", "b.example.org/y"))
    going = replace(going, asked_to_end_at=700.0)
    # The API server's clock is ten minutes ahead.
    seen = make_observed_state(ending, going, completed=True, now=105.0, clock_offset=600.0)
    assert decide(seen) == Wait(100.0 + KEPT_SECONDS)
    step = decide(replace(seen, now=110.0))
    text = "its VolcanoJob is deleted, and its finalizers keep it: a.example.org/x, b.example.org/y"
    assert step == UpdateStatus(JobEvent.WAITS, "asked", text)
    assert isinstance(step, UpdateStatus)
    assert step.details == {"by": "ada"}
    said = replace(ending, message=text)
    assert decide(replace(seen, record=said, now=110.0)) == Wait()
    # Its programs have not ended, or nothing keeps it.
    ends = make_pod(deleting=True)
    runs = recorded_pods(ending, ends)
    assert decide(replace(seen, pods=(ends,), runs=runs, now=110.0)) == Wait()
    assert decide(replace(seen, job=replace(going, finalizers=()), now=110.0)) == Wait()


def test_the_next_attempt_names_the_finalizers_that_keep_the_volcano_job() -> None:
    renewing = replace(RUNS, renewal="evicted", removed_uid=UID, state="IN_QUEUE")
    going = make_observed(deleting=True, finalizers=("a.example.org/x", "b.example.org/y"))
    assert decide(make_observed_state(renewing, going)) == Wait()
    step = decide(make_observed_state(renewing, replace(going, held=True)))
    assert step == UpdateStatus(
        JobEvent.WAITS,
        "preparing",
        "the deleted VolcanoJob j-j1 stays, and the next attempt waits for its name:"
        " its finalizers keep it (a.example.org/x, b.example.org/y)",
    )
    assert isinstance(step, UpdateStatus)
    assert step.details == {"cause": "finalizer"}
    said = replace(renewing, reason=step.reason, message=step.message)
    assert decide(make_observed_state(said, replace(going, held=True))) == Wait()
    assert decide(make_observed_state(said)) == ResetForNextAttempt()


def test_pods_of_a_volcano_job_that_others_deleted_end_though_a_finalizer_keeps_it() -> None:
    deleted = replace(RUNS, outcome="FAILURE", end_reason="deleted")
    going = make_observed(deleting=True, finalizers=("audit.example.org/keep",))
    assert decide(make_observed_state(deleted, going, make_pod(), completed=True)) == Wait()
    # The garbage collector deletes no pod before the finalizer is gone, and Volcano none at all.
    held = replace(going, held=True)
    assert decide(
        make_observed_state(deleted, held, make_pod(), completed=True)
    ) == DeleteVolcanoJob(UID)
    removed = replace(deleted, removed_uid=UID)
    pod = make_pod()
    assert decide(make_observed_state(removed, held, pod, completed=True)) == DeletePods((pod,))
    # With --cascade=orphan the pods stay: the garbage collector may only be slow.
    orphaned = replace(held, finalizers=("orphan",))
    assert decide(make_observed_state(deleted, orphaned, make_pod(), completed=True)) == Wait()


@pytest.mark.parametrize("phase", ["Pending", "Running", "Restarting"])
def test_the_volcano_job_of_an_ended_job_that_a_restored_etcd_revives_is_removed(
    phase: str,
) -> None:
    final = make_record(
        uid=UID, state="SUCCESS", outcome="SUCCESS", reason="completed", finished_at=100.0
    )
    seen = make_observed_state(final, make_observed(phase), make_pod(), now=500.0)
    assert decide(seen) == DeleteRevivedJob(UID)
    # Soon after the end, the cache may lag.
    assert decide(replace(seen, now=120.0)) == Wait(100.0 + REVIVED_SECONDS)
    assert decide(replace(seen, jobs_stale=True)) == Wait()
    assert decide(replace(seen, job=make_observed(phase, deleting=True))) == Wait()
    for ended in ("Completed", "Failed", "Terminated", "Completing"):
        assert decide(replace(seen, job=make_observed(ended))) == Wait()


def test_a_deleted_volcano_job_that_a_restored_etcd_revives_is_deleted_before_its_pods() -> None:
    final = make_record(
        uid=UID, state="SUCCESS", outcome="SUCCESS", reason="asked", desired="ended",
        removed_uid=UID, finished_at=100.0,
    )  # fmt: skip
    pod, known = make_pod(), frozenset({UID})
    seen = make_observed_state(final, make_observed(), pod, now=500.0, deleted_uids=known)
    assert decide(seen) == DeleteRevivedJob(UID)
    assert decide(replace(seen, now=120.0)) == DeletePods((pod,))
    assert decide(replace(seen, now=120.0, pods=(), runs={})) == Wait(100.0 + REVIVED_SECONDS)


@pytest.mark.parametrize("desired", ["run", "suspended", "ended"])
def test_an_earlier_attempt_that_a_restored_etcd_revives_is_deleted_before_its_pods(
    desired: str,
) -> None:
    ended = {"outcome": "SUCCESS", "reason": "asked"} if desired == "ended" else {}
    record = make_record(
        attempt=2, uid=None, state="IN_QUEUE", desired=desired, removed_uid=UID, **ended
    )
    seen = make_observed_state(record, make_observed(), make_pod(), deleted_uids=frozenset({UID}))
    assert decide(seen) == DeleteRevivedJob(UID)
    assert decide(replace(seen, job=make_observed("Completed"))) == DeleteRevivedJob(UID)
    assert decide(replace(seen, jobs_stale=True)) == DeletePods(seen.pods)
    assert decide(replace(seen, job=make_observed(deleting=True))) == DeletePods(seen.pods)


@pytest.mark.parametrize("fields", [
    {"state": "CANCELING", "desired": "ended", "outcome": "SUCCESS", "reason": "asked"},
    {"state": "RUNNING", "renewal": "evicted"},
])  # fmt: skip
def test_a_volcano_job_that_a_restored_etcd_revives_during_its_removal_is_deleted_again(
    fields: dict[str, str],
) -> None:
    record = make_record(uid=UID, removed_uid=UID, **fields)
    seen = make_observed_state(
        record, make_observed(), make_pod(), completed=True, phase_seen_at=100.0, now=130.0
    )
    # The cache may lag behind the deletion.
    assert decide(seen) == DeletePods(seen.pods)
    due_at = 100.0 + REVIVED_SECONDS
    assert decide(replace(seen, pods=(), runs={})) == Wait(due_at)
    late = replace(seen, now=due_at)
    assert decide(late) == DeleteRevivedJob(UID)
    assert decide(replace(late, jobs_stale=True)) == DeletePods(seen.pods)
    assert decide(replace(late, job=make_observed(deleting=True))) == DeletePods(seen.pods)
