"""Ends a job whose own containers have ended while sidecars keep its pods running.

A service mesh or a vault injects sidecars. The kubelet ends a sidecar that is an init container
with ``restartPolicy: Always`` once the pod's own containers have ended (Kubernetes, "Sidecar
Containers"). Nothing ends a sidecar that is an ordinary container: the pod keeps running, and
Volcano takes the job for running. Argo Workflows ends such containers; this controller does, too,
by deleting the VolcanoJob.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from controller.jobs.history.job_record import State, read_known
from controller.jobs.history.retries import policies_of, triggered
from controller.jobs.reconcile.lifecycle.completion import have_succeeded
from controller.jobs.reconcile.lifecycle.failure import after_failure
from controller.jobs.reconcile.lifecycle.observed_state import ObservedState
from controller.jobs.reconcile.lifecycle.steps import ConfirmPods, SetOutcome, Wait
from controller.store.jobs.progress import PodRecord
from controller.volcano.observed import ObservedJob, ObservedPod


def only_sidecars_run(
    seen: ObservedState, job: ObservedJob, left: Sequence[ObservedPod]
) -> ConfirmPods | Wait | None:
    """Return the step if only sidecars run in the pods *left*; None otherwise."""
    # The sidecars may still have to forward the last output of the program.
    due = {pod.uid: seen.ended_since_of([pod]) + seen.sidecar_seconds for pod in left}
    later = [at for at in due.values() if at > seen.now]
    if len(later) == len(due):
        return Wait(min(later))
    counted = {uid: _as_ended(seen.runs[uid]) for uid, at in due.items() if at <= seen.now}
    found = _outcome_of_programs(
        seen, job, {**seen.runs, **counted}, _sidecar_names(left), all_ended=not later
    )
    return found or (Wait(min(later)) if later else None)


def _outcome_of_programs(
    seen: ObservedState,
    job: ObservedJob,
    runs: Mapping[str, PodRecord],
    names: str,
    *,
    all_ended: bool,
) -> ConfirmPods | None:
    own, ranks = seen.staying(), read_known(seen.record).ranks
    is_over = all_ended and len(own) >= ranks and all(pod.is_over for pod in own)
    said = f"its containers {names} went on after its program, and were ended"
    if is_over and have_succeeded(seen, [runs[pod.uid] for pod in own]):
        return ConfirmPods(SetOutcome(State.SUCCESS, "completed", said))
    policies = policies_of(seen.record)
    followed = triggered(policies, runs.values())
    # Volcano would carry the policy out if it knew that the program has ended. A timed policy waits
    # until all programs have ended.
    if not is_over and (followed is None or policies.is_ours(followed.rule)):
        return None
    step = after_failure(seen, job, policies, followed)
    return ConfirmPods(replace(step, message=f"{step.message}; {said}"))


def _sidecar_names(pods: Sequence[ObservedPod]) -> str:
    return ", ".join(sorted({name for pod in pods for name in pod.others_running}))


def _as_ended(run: PodRecord) -> PodRecord:
    return replace(run, phase="Failed" if run.exit_code else "Succeeded")
