"""Tests the metrics of the reconciler's steps."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from prometheus_client import CollectorRegistry

from controller.jobs.history.job_record import JobEvent
from controller.jobs.reconcile.lifecycle.steps import Step, UpdateStatus
from controller.jobs.reconcile.reconciler import ReconcilerMetrics
from tests.controller.samples import make_observed_state, make_record


def test_a_start_is_counted_once_per_job() -> None:
    registry = CollectorRegistry()
    metrics = ReconcilerMetrics(registry)
    waits = make_observed_state(make_record(created_at=1.0))
    runs = replace(waits, record=replace(waits.record, state="RUNNING"))
    metrics.step_done(UpdateStatus(JobEvent.STARTED, None, None), waits, now=4.0)
    metrics.step_done(UpdateStatus(JobEvent.STARTED, "node_not_ready", "n1"), runs, now=9.0)
    metrics.step_done(UpdateStatus(JobEvent.STARTED, None, None), runs, now=9.0)
    name = "fumarole_controller_start_seconds"
    assert registry.get_sample_value(f"{name}_count") == 1
    assert registry.get_sample_value(f"{name}_sum") == 3.0


def test_a_renamed_step_keeps_its_metric_label() -> None:
    published = {
        "AdoptNewerAttempt": "CatchUp",
        "ApplyCompanions": "Expose",
        "AbortVolcanoJob": "Stop",
        "ConfirmGone": "Confirm",
        "DeletePods": "RemovePods",
        "DeleteVolcanoJob": "Remove",
        "ExpireJob": "EndOverdue",
        "IssueCommand": "Order",
        "RecordPods": "WriteDown",
        "ResetForNextAttempt": "Replace",
        "RestoreCompanions": "Restore",
        "SaveRecoveryData": "KeepForRecovery",
        "SetOutcome": "Conclude",
        "StartNextAttempt": "Renew",
        "UpdateStatus": "Note",
    }
    same = {"ConfirmGivenUp", "ConfirmNotRefused", "ConfirmPods", "DeleteRevivedJob", "EndTool",
            "Finish", "Park", "RunHooks", "SetTimers", "StartTool", "Submit", "Wait"}  # fmt: skip
    steps = {step.__name__: step for step in get_args(Step)}
    assert steps.keys() == published.keys() | same
    registry = CollectorRegistry()
    metrics, seen = ReconcilerMetrics(registry), make_observed_state(make_record())
    for name, step in steps.items():
        some = UpdateStatus(JobEvent.WAITS, "asked", None)
        metrics.step_done(some if step is UpdateStatus else step.__new__(step), seen, now=9.0)
        labels = {"step": published.get(name, name)}
        assert registry.get_sample_value("fumarole_controller_steps_total", labels) == 1, name
