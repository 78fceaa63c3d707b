"""Decides how a job is removed from the cluster: what is deleted in which order, and may stay."""

from __future__ import annotations

from controller.jobs.reconcile.lifecycle.observed_state import ObservedState
from controller.jobs.reconcile.lifecycle.steps import DeletePods, DeleteVolcanoJob, Step, Wait
from controller.volcano.observed import ObservedPod


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
