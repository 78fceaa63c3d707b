"""What is counted of the steps done for jobs."""

from __future__ import annotations

from dataclasses import replace

from prometheus_client import CollectorRegistry

from controller.jobs.history.job_record import Happening
from controller.jobs.reconcile.lifecycle.steps import Note
from controller.metrics import ControllerMetrics
from tests.controller.samples import make_record, make_seen


def test_a_start_is_counted_once_however_often_a_job_that_runs_says_something() -> None:
    registry = CollectorRegistry()
    metrics = ControllerMetrics(registry)
    waits = make_seen(make_record(created_at=1.0))
    runs = replace(waits, record=replace(waits.record, state="RUNNING"))
    metrics.step_done(Note(Happening.STARTED, None, None), waits, now=4.0)
    metrics.step_done(Note(Happening.STARTED, "node_not_ready", "n1"), runs, now=9.0)
    metrics.step_done(Note(Happening.STARTED, None, None), runs, now=9.0)
    name = "fumarole_controller_start_seconds"
    assert registry.get_sample_value(f"{name}_count") == 1
    assert registry.get_sample_value(f"{name}_sum") == 3.0
