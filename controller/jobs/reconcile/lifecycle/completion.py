"""Whether enough pods have succeeded, by Volcano's rules."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from controller.jobs.history.job_record import read_known
from controller.jobs.history.pod_records import was_taken
from controller.jobs.reconcile.lifecycle.observed_state import ObservedState
from controller.jobs.spec.model import Job
from controller.store.jobs.progress import PodRecord


def is_enough(job: Job, succeeded: Counter[str]) -> bool:
    """Return whether the job is completed, by Volcano's rules, once all its pods have ended.

    Args:
        job: The job.
        succeeded: The number of pods that have succeeded, by task.
    """
    if job.min_success is not None:
        return succeeded.total() >= job.min_success
    tasks = job.effective_tasks
    gang = [task for task in tasks if not task.depends_on]
    if len(gang) < len(tasks):
        # Volcano looks at single tasks only if all of them are in the gang (``running.go``).
        return succeeded.total() >= sum(task.min_available for task in gang)
    return all(succeeded[task.name] >= task.min_available for task in tasks)


def have_succeeded(seen: ObservedState, runs: Iterable[PodRecord]) -> bool:
    """Return whether enough of the pods in *runs* have succeeded, and were not interrupted."""
    well = Counter(run.task for run in runs if run.phase == "Succeeded" and not was_taken(run))
    return is_enough(read_known(seen.record), well)
