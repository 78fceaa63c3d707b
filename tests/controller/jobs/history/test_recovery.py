"""Tests what an empty store recovers of a job from the cluster."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from controller.jobs.history.job_record import annotations_of, recovered, to_keep
from controller.volcano.names import CREATED_ANNOTATION, FIRST_START_ANNOTATION
from tests.controller.samples import UID, make_observed, make_pod, make_record

RUNS = make_record(uid=UID, state="RUNNING", started_at=20.0)
CREATED = {CREATED_ANNOTATION: "10.0"}


def test_the_first_start_is_that_of_the_first_own_pod() -> None:
    job = make_observed(annotations=CREATED)
    pods = [make_pod(index, started_at=at) for index, at in enumerate((30.0, 20.0, None))]
    pods.append(make_pod(3, started_at=15.0, owner_uid="of another"))
    assert recovered(job, pods, {}, allocated=None).started_at == 20.0
    # Node clocks may be wrong: no start is earlier than the job's acceptance.
    assert recovered(job, [make_pod(started_at=5.0)], {}, allocated=None).started_at == 10.0
    assert recovered(job, [], {}, allocated=None).started_at is None


def test_the_kept_first_start_is_used_if_the_pods_are_later() -> None:
    job, pods = make_observed(annotations=CREATED), [make_pod(started_at=30.0)]
    extended = replace(RUNS, allocated_seconds=90.0)
    kept = to_keep(extended, job, pods)
    assert kept is not None
    found = recovered(job, pods, json.loads(kept), allocated=60.0)
    assert (found.started_at, found.allocated_seconds) == (20.0, 90.0)


def test_a_later_attempt_carries_the_history_of_earlier_ones() -> None:
    record = replace(RUNS, allocated_seconds=90.0, retries_used=2, evictions=1, attempt=2)
    job = make_observed(annotations=annotations_of(record))
    found = recovered(job, [make_pod(started_at=70.0)], {}, allocated=60.0)
    assert (found.started_at, found.allocated_seconds) == (20.0, 90.0)
    assert (found.retries_used, found.evictions) == (2, 1)
    assert to_keep(record, job, [make_pod(started_at=70.0)]) is None
    assert annotations_of(make_record()) == {}


def test_no_recovery_annotation_is_written_if_pods_and_spec_suffice() -> None:
    job = make_observed(annotations=CREATED)
    assert to_keep(make_record(uid=UID), job, []) is None
    assert to_keep(RUNS, job, [make_pod(started_at=20.0)]) is None
    # A difference of less than a second is not written.
    assert to_keep(replace(RUNS, started_at=20.6), job, [make_pod(started_at=20.0)]) is None
    # A value that was kept once stays, whatever pods exist.
    kept = to_keep(RUNS, job, [])
    assert kept == '{"first-start": "20.0"}'
    again = replace(RUNS, kept=kept)
    assert to_keep(again, job, [make_pod(started_at=20.0)]) == kept


@pytest.mark.parametrize("word", ["nan", "-1", "1_0", "", "9" * 5000])
def test_a_malformed_number_is_skipped(word: str) -> None:
    names = (FIRST_START_ANNOTATION, CREATED_ANNOTATION, "fumarole.dev/retries-used",
             "fumarole.dev/evictions", "fumarole.dev/allocated-seconds")  # fmt: skip
    job = make_observed(annotations=dict.fromkeys(names, word))
    found = recovered(job, [], {"first-start": word, "allocated-seconds": 5}, allocated=None)
    assert (found.started_at, found.allocated_seconds) == (None, None)
    assert (found.retries_used, found.evictions) == (0, 0)
