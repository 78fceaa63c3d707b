"""The way of a job out of the cluster: the order in which its parts go, and what comes late."""

from __future__ import annotations

from controller.jobs.history.states import HOW_IT_ENDED
from controller.jobs.reconcile.lifecycle.observed_state import ObservedState
from controller.jobs.reconcile.lifecycle.steps import (
    Finish,
    Remove,
    RemovePods,
    Rest,
    RunHooks,
    Step,
)
from controller.store.jobs.job_rows import REMOVED_REASONS, JobRecord
from controller.volcano.names import CREATED_ANNOTATION
from controller.volcano.observed import ObservedPod


def ending(seen: ObservedState) -> Step:
    """Return the next step for a job of which it is decided how it ends."""
    # Hooks begin before the removal, which does not wait for those that take long or fail.
    if not seen.completed and "complete" not in seen.paused:
        return RunHooks("complete")
    if must_be_removed(seen.record) and (step := removal(seen)) is not None:
        return step
    if not seen.completed or seen.still_runs():
        return Rest()  # what it uses is counted to the end
    if seen.record.outcome not in HOW_IT_ENDED:
        return Rest()  # a newer version has decided something else: it is that one's to tell
    return Finish() if seen.cleaned else seen.run_hook("cleanup")


def must_be_removed(record: JobRecord) -> bool:
    """Say whether the VolcanoJob goes at once, and not some time after its end by itself.

    Volcano never removes one that was aborted.
    """
    why = record.reason if record.is_final else record.end_reason
    return record.desired == "ended" or record.stopping or why in REMOVED_REASONS


def removal(seen: ObservedState) -> Step | None:
    """Return what is left to do until the VolcanoJob and its pods are gone; None when they are.

    No pod is deleted before its VolcanoJob: Volcano would make it again, or take it for evicted.
    """
    record, job = seen.record, seen.job
    uid = record.uid or (job.uid if job is not None else None)
    if uid is None:
        return None
    shown = job is not None and job.uid == uid
    if seen.logs_until is not None and seen.now < seen.logs_until:
        return Rest(seen.logs_until)
    if record.removed_uid != uid:
        # Whoever else deletes it has said what is to become of its pods.
        others = shown and job is not None and job.deleting and record.desired != "ended"
        return Rest() if others else Remove(uid)
    own = seen.own(seen.pods)
    if left := tuple(pod for pod in own if not pod.deleting and _may_go(seen, pod)):
        return RemovePods(left)
    return Rest() if shown or own else None


def _may_go(seen: ObservedState, pod: ObservedPod) -> bool:
    """Say whether a pod of the VolcanoJob that is gone may be deleted.

    One that nobody owns any more was left there on purpose (``--cascade=orphan``): it goes only
    when somebody asks for the job's end.
    """
    return bool(pod.owner_uid) or seen.record.desired == "ended"


def late_pods(seen: ObservedState) -> tuple[ObservedPod, ...]:
    """Return the pods that Volcano has made, late, for a VolcanoJob that was gone already.

    Those of the job's own VolcanoJob are dealt with where that is removed.
    """
    gone = seen.gone if seen.record.is_final else seen.gone - {seen.record.uid}
    return tuple(pod for pod in seen.pods if pod.owner_uid in gone and not pod.deleting)


def after_the_end(seen: ObservedState) -> Step:
    """Return what is left to do for a job that is over."""
    job, record = seen.job, seen.record
    if job is None or job.deleting or job.uid == record.removed_uid:
        return Rest()
    # Another one of the same job: its making was not answered, and came later than the end.
    late = job.uid != record.uid and job.annotations.get(CREATED_ANNOTATION) == repr(
        record.created_at
    )
    its_own = job.uid == record.uid and must_be_removed(record)
    return Remove(job.uid) if late or its_own else Rest()
