"""Decides how a job is removed from the cluster: what is deleted in which order, and may stay.

Objects that appear late, after the end of the job or of an attempt, are deleted as well.
"""

from __future__ import annotations

from controller.jobs.reconcile.lifecycle.observed_state import ObservedState
from controller.jobs.reconcile.lifecycle.steps import DeletePods, DeleteVolcanoJob, Step, Wait
from controller.store.jobs.job_rows import REMOVED_REASONS, JobRecord
from controller.volcano.observed import ObservedPod


def must_be_removed(record: JobRecord) -> bool:
    """Return whether the VolcanoJob is deleted at once, and not by Volcano some time after its end.

    Volcano never deletes an aborted VolcanoJob.
    """
    why = record.reason if record.is_final else record.end_reason
    return record.desired == "ended" or record.stopping or why in REMOVED_REASONS


def only_sidecars_ran(seen: ObservedState) -> bool:
    """Return whether only sidecars run, or only sidecars ran until the VolcanoJob was deleted.

    Volcano never ends a VolcanoJob while a container of its pods runs.
    """
    record, job = seen.record, seen.job
    if record.removed_uid is not None and record.removed_uid == record.uid:
        return True
    return job is not None and job.uid == record.uid and bool(seen.left_running())


def removal(seen: ObservedState) -> Step | None:
    """Return the next step of the removal; None once the VolcanoJob and its pods are gone.

    No pod is deleted before its VolcanoJob: Volcano would create the pod again, or treat it as
    evicted.
    """
    record, job = seen.record, seen.job
    uid = record.uid or (job.uid if job is not None else None)
    if uid is None:
        return None
    shown = job is not None and job.uid == uid
    if seen.logs_until is not None and seen.now < seen.logs_until:
        return Wait(seen.logs_until)
    if record.removed_uid != uid:
        # Another client deletes it, and has chosen whether its pods stay.
        others = shown and job is not None and job.deleting and record.desired != "ended"
        return Wait() if others else DeleteVolcanoJob(uid)
    own = seen.own(seen.pods)
    if left := tuple(pod for pod in own if not pod.deleting and _may_be_deleted(seen, pod)):
        return DeletePods(left)
    # A dead node never confirms a deletion, and a pod that was kept on purpose is not deleted. Only
    # the next attempt needs the names of these pods.
    begins_again = record.renewal is not None and record.outcome is None
    awaited = [pod for pod in own if begins_again or not _stays(seen, pod)]
    held_by_them = job is not None and job.deleting and own and not awaited
    return Wait() if awaited or (shown and not held_by_them) else None


def _stays(seen: ObservedState, pod: ObservedPod) -> bool:
    """Return whether a pod of the deleted VolcanoJob may stay in the cluster, and uses nothing."""
    kept = pod.is_over and not pod.deleting and not _may_be_deleted(seen, pod)
    return pod.lost or kept


def _may_be_deleted(seen: ObservedState, pod: ObservedPod) -> bool:
    """Return whether a pod of the deleted VolcanoJob may be deleted.

    A pod without an owner was kept on purpose (``--cascade=orphan``). It is deleted only once the
    end of the job is requested.
    """
    return bool(pod.owner_uid) or seen.record.desired == "ended"


def late_pods(seen: ObservedState) -> tuple[ObservedPod, ...]:
    """Return the pods that Volcano created late, for a VolcanoJob that was deleted already.

    Pods of the job's current VolcanoJob are deleted together with that (see :func:`removal`).
    """
    if not seen.deleted_uids:
        return ()
    gone = seen.deleted_uids if seen.record.is_final else seen.deleted_uids - {seen.record.uid}
    return tuple(pod for pod in seen.pods if pod.owner_uid in gone and not pod.deleting)
