"""Steps of a job whose programs have ended while other containers keep their pods running.

A mesh or a vault puts containers into pods. One that is an init container with ``restartPolicy:
Always`` is ended by its kubelet once the pod's program has (Kubernetes, "Sidecar Containers"). One
that is an ordinary container is ended by nobody: the pod runs on, and Volcano takes its program for
one that runs. Argo Workflows ends such containers; so do we, with the VolcanoJob.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from controller.jobs.history.job_record import read_known
from controller.jobs.history.retries import policies_of, triggered
from controller.jobs.history.states import State
from controller.jobs.reconcile.lifecycle.failure import after_failure
from controller.jobs.reconcile.lifecycle.observed_state import ObservedState
from controller.jobs.reconcile.lifecycle.steps import Conclude, ConfirmPods, Rest
from controller.jobs.spec.model import Job
from controller.store.jobs.progress.attempts import PodRecord
from controller.volcano.observed import ObservedJob, ObservedPod
from controller.volcano.policies import Progress, progress_of


def left_running(seen: ObservedState, job: ObservedJob) -> list[ObservedPod]:
    """Return the pods that run for containers alone which are not the job's own."""
    if progress_of(job.phase) is not Progress.RUNNING:
        return []
    return [
        pod
        for pod in _own(seen)
        if pod.ended is not None and pod.phase == "Running" and pod.others_running
    ]


def after_the_programs(seen: ObservedState, job: ObservedJob) -> ConfirmPods | Rest | None:
    """Return what follows from programs that have ended without their pods; None: nothing does."""
    left = left_running(seen, job)
    if not left or seen.blind:
        return None
    # They may have to pass on what the program wrote last.
    due = {pod.uid: seen.runs[pod.uid].seen_at + seen.sidecar_seconds for pod in left}
    later = [at for at in due.values() if at > seen.now]
    if len(later) == len(due):
        return Rest(min(later))
    counted = {uid: _as_of_its_program(seen.runs[uid]) for uid, at in due.items() if at <= seen.now}
    found = _judged(seen, job, {**seen.runs, **counted}, _names(left), all_told=not later)
    return found or (Rest(min(later)) if later else None)


def _judged(
    seen: ObservedState,
    job: ObservedJob,
    runs: Mapping[str, PodRecord],
    names: str,
    *,
    all_told: bool,
) -> ConfirmPods | None:
    own, spec = _own(seen), read_known(seen.record)
    is_over = all_told and len(own) >= spec.ranks and all(pod.is_over for pod in own)
    said = f"its containers {names} went on after its program, and were ended"
    if is_over and _succeeded(spec, [runs[pod.uid] for pod in own]):
        return ConfirmPods(Conclude(State.SUCCESS, "completed", said))
    policies = policies_of(seen.record)
    followed = triggered(policies, runs.values())
    # Volcano would do it, if it knew; what is due later waits for the end of all programs.
    if not is_over and (followed is None or policies.is_ours(followed.rule)):
        return None
    step = after_failure(seen, job, policies, followed)
    return ConfirmPods(replace(step, message=f"{step.message}; {said}"))


def _own(seen: ObservedState) -> list[ObservedPod]:
    return [pod for pod in seen.own(seen.pods) if not pod.deleting]


def _names(pods: Sequence[ObservedPod]) -> str:
    return ", ".join(sorted({name for pod in pods for name in pod.others_running}))


def _as_of_its_program(run: PodRecord) -> PodRecord:
    return replace(run, phase="Failed" if run.exit_code else "Succeeded")


def _succeeded(job: Job, runs: Sequence[PodRecord]) -> bool:
    """Say whether the job has done what it had to, as Volcano counts pods that have ended."""
    well = Counter(run.task for run in runs if run.phase == "Succeeded")
    if job.min_success is not None and well.total() >= job.min_success:
        return True
    return all(well[task.name] >= task.min_available for task in job.effective_tasks)
