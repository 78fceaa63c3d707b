"""Provides jobs in the initial states of the lifecycle tests."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from controller.jobs.reconcile.lifecycle.steps import (
    ConfirmGivenUp,
    ConfirmNotRefused,
    ConfirmPods,
    Step,
)
from controller.store.jobs.progress import PodRecord
from controller.volcano.observed import Ended
from tests.controller.samples import UID, make_pod, make_record

ACCEPTED = make_record()
SUBMITTED = make_record(uid=UID)
RUNS = make_record(uid=UID, state="RUNNING", reason=None, message=None, started_at=2.0)
KEPT = replace(RUNS, kept='{"first-start": "2.0"}')
FAILED = make_pod(
    phase="Failed", ended=Ended(exit_code=3, signal=0, reason="Error", finished_at=8.0)
)
ENDS = replace(KEPT, outcome="SUCCESS", end_reason="completed")


def gone(uid: str, index: int = 0, **fields: Any) -> dict[str, PodRecord]:
    """Return the record of a pod that Volcano has deleted."""
    values: dict[str, Any] = {
        "job_id": "j1", "pod_uid": uid, "attempt": 1, "rank": index, "task": "job",
        "index": index, "pod": f"j-j1-job-{index}", "node": "n1", "phase": "Failed",
        "reason": "Error", "message": "", "exit_code": 143, "signal": 0, "seen_at": 5.0,
        "started_at": 2.0, "ended_at": 7.0,
    }  # fmt: skip
    return {uid: PodRecord(**values | fields)}


def confirmed(step: Step) -> Step:
    """Return the step that follows once the cluster has confirmed what was observed."""
    confirms = ConfirmGivenUp | ConfirmNotRefused | ConfirmPods
    return step.then if isinstance(step, confirms) else step
