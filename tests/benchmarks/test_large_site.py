"""Tests the objects of the large site: copies that differ only in their owners, and notes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from benchmarks.large_site import report
from benchmarks.large_site.copies import MODEL, Copies
from benchmarks.large_site.measured import part_of
from benchmarks.large_site.run import Reading
from controller.kube.client import path_of
from controller.kube.decoding import FieldTransform
from controller.kube.kinds import PODS, VCJOBS
from controller.volcano import fields
from controller.volcano.parsing import read_pod

UID = "f0f2f5e-0d0a-4c59-9ab5-6b6f00000000"


def model() -> tuple[dict[str, Any], list[dict[str, Any]]]:
    labels = {"fumarole.dev/job": MODEL, "volcano.sh/task-spec": "job"}
    owner = {"kind": "Job", "uid": f"0{UID}", "controller": True}
    mounts = [{"name": "work", "mountPath": "/work"}]
    container = {"name": "job", "image": "busybox", "volumeMounts": mounts}
    job = {"metadata": {"name": f"j-{MODEL}", "namespace": "jobs", "uid": f"0{UID}"}}
    pods = [
        {
            "metadata": {
                "name": f"j-{MODEL}-job-{index}",
                "namespace": "jobs",
                "uid": f"{index + 1}{UID}",
                "labels": labels,
                "ownerReferences": [owner],
            },
            "spec": {"nodeName": "n1", "containers": [container], "volumes": [{"name": "work"}]},
            "status": {"phase": "Running", "podIP": "10.0.0.1"},
        }
        for index in range(2)
    ]
    return job, pods


def test_copies_of_a_job_have_unique_names_and_uids() -> None:
    copies = Copies(*model(), 3)
    assert (copies.count(VCJOBS.plural), copies.count(PODS.plural)) == (3, 6)
    assert copies.shows(path_of(PODS))
    transform = FieldTransform(fields.POD)
    pods = [read_pod(transform.decode(copies.text(PODS.plural, number))) for number in range(6)]
    jobs = [json.loads(copies.text(VCJOBS.plural, number)) for number in range(3)]
    assert len({pod.uid for pod in pods}) == len({pod.name for pod in pods}) == 6
    assert [pod.job_id for pod in pods[::2]] == [copies.job_of(number) for number in (0, 2, 4)]
    assert [pod.owner_uid for pod in pods[1::2]] == [job["metadata"]["uid"] for job in jobs]
    assert all(pod.ready and pod.answers for pod in pods)
    copies.change(3)
    changed = read_pod(transform.decode(copies.text(PODS.plural, 3, "9")))
    assert not changed.answers
    assert json.loads(copies.text(PODS.plural, 3, "9"))["metadata"]["resourceVersion"] == "9"


def test_a_generated_pod_has_managed_fields() -> None:
    pod = json.loads(Copies(*model(), 1).text(PODS.plural, 0))
    managed = {one["manager"]: one["fieldsV1"] for one in pod["metadata"]["managedFields"]}
    container = managed["vc-controller-manager"]["f:spec"]["f:containers"]['k:{"name":"job"}']
    assert {".", "f:name", "f:image", "f:volumeMounts"} <= container.keys()
    assert "f:containerStatuses" in managed["kubelet"]["f:status"]


def test_notes_hold_time_and_duration(tmp_path: Path) -> None:
    reading = Reading(tmp_path / "notes")
    reading.update()
    with reading.path.open("a") as file:
        file.write('look 1.0 a\nbeat 1.5 0.2 0.1 {"store": 3}\nlook 2.0 a\nlo')
    reading.update()
    with reading.path.open("a") as file:
        file.write('ok 2.5 b\nbeat 3.0 0.4 0.05 {"store": 7, "API": 1}\n')
    reading.update()
    assert reading.looks == {"a": [1.0, 2.0], "b": [2.5]}
    assert (reading.first_look_after(1.1, "a"), reading.first_look_after(2.6, "b")) == (2.0, None)
    assert reading.longest_turn(0.0, 3.0) == (0.4, 0.1)
    assert reading.parts(1.5, 3.0) == {"store": 4, "API": 1}
    assert part_of(None) == "event loop and libraries"


def test_results_are_rendered_as_table_bars_and_amounts() -> None:
    found: dict[str, Any] = {name: 1.0 for _, name, *_ in report._ROWS}
    found |= {"jobs": 10_000, "pods": 50_000, "pod_bytes": 12_000, "parts": {"store": 0.5}}
    found["standby_stall_ms"] = 120.0
    table = report.make_table(found)
    assert "10,000 jobs with 50,000 pods" in table
    assert "| store | 50% |" in table
    assert list(report.make_panels(found)[0].values) == ["store"]
    assert report.amounts_of(found)["site_stall_ms"] == 120.0
    assert (report.make_panels({}), report.amounts_of({})) == ([], {})
    assert report.make_table({}) == "Not measured in this run."
