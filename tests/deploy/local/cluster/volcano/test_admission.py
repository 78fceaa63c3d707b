"""Tests the webhooks' refusals: one row per rule."""

from __future__ import annotations

import copy
from typing import Any

import pytest

from deploy.local.cluster.volcano.admission import (
    completed_job,
    completed_queue,
    job_denial,
    queue_deletion_denial,
    queue_denial,
    unreadable_queue,
    update_denial,
)
from deploy.local.cluster.volcano.types import unreadable

QUEUES: dict[str, Any] = {
    "default": {"status": {"state": "Open"}},
    "shut": {"status": {"state": "Closed"}},
    "root": {"status": {"state": "Open"}},
    "parent": {"status": {"state": "Open"}},
    "child": {"spec": {"parent": "parent"}, "status": {"state": "Open"}},
}


def make_job(*, name: str = "a", tasks: list[Any] | None = None, **spec: Any) -> dict[str, Any]:
    """Return a job as the mutating webhook leaves it."""
    spec["tasks"] = [make_task()] if tasks is None else tasks
    return completed_job({"metadata": {"name": name}, "spec": spec})


def make_task(name: str = "job", **rest: Any) -> dict[str, Any]:
    """Return a task of one busy container."""
    pod = {"spec": {"containers": [{"name": "main", "image": "busybox"}]}}
    return {"name": name, "template": pod, **rest}


def policies(*given: dict[str, Any]) -> dict[str, Any]:
    """Return the fields of a job with *given* policies."""
    return {"policies": list(given)}


RESTART = {"event": "PodFailed", "action": "RestartJob"}


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"tasks": []}, "No task"),
        ({"tasks": [make_task(), make_task()]}, "duplicated task name"),
        ({"tasks": [make_task(replicas=1, minAvailable=2)]}, "'minAvailable' is greater"),
        ({"minAvailable": 2}, "should not be greater than total replicas"),
        ({"name": "a" * 60}, "create pod with name"),
        ({"name": "-a"}, "create job with name"),
        ({"tasks": [{"name": "a", "template": {"spec": {}}}]}, "containers: Required"),
        (
            {"tasks": [make_task(template={"spec": {"containers": [{"name": "a"}]}})]},
            "containers[0].image: Required",
        ),
        (policies({**RESTART, "exitCode": 1}), "simultaneously"),
        (policies({"action": "RestartJob"}), "either event and exitCode"),
        (policies({"event": "PodRunning", "action": "RestartJob"}), "invalid policy event"),
        (policies({"event": "PodFailed", "action": "SyncJob"}), "invalid policy action"),
        (policies(RESTART, RESTART), "duplicate event"),
        (policies({"exitCode": 0, "action": "RestartJob"}), "0 is not a valid"),
        (policies({"event": "*", "action": "RestartJob"}, RESTART), "there's *"),
        ({"plugins": {"magic": []}}, "unable to find job plugin"),
        (
            {"volumes": [{"mountPath": "/a", "volumeClaimName": "c"}] * 2},
            "duplicated mountPath",
        ),
        ({"volumes": [{"mountPath": "/a"}]}, "either VolumeClaim or VolumeClaimName"),
        ({"tasks": [make_task(dependsOn={"name": ["no"]})]}, "directed acyclic graph"),
        (
            {
                "tasks": [
                    make_task("a", dependsOn={"name": ["b"]}),
                    make_task("b", dependsOn={"name": ["a"]}),
                ]
            },
            "directed acyclic graph",
        ),
        ({"queue": "none"}, "unable to find job queue"),
        ({"queue": "shut"}, "state `Open`"),
        ({"queue": "root"}, "root queue"),
        ({"queue": "parent"}, "leaf queue"),
    ],
)
def test_a_job_that_breaks_a_rule_is_refused(fields: dict[str, Any], says: str) -> None:
    denial = job_denial(make_job(**fields), QUEUES)
    assert denial is not None
    assert says in denial


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"name": "a.dotted.name"},
        {"queue": "child"},
        policies(RESTART, {"exitCode": 3, "action": "AbortJob"}),
        {"tasks": [make_task("a"), make_task("b", dependsOn={"name": ["a"]})]},
        {"plugins": {"svc": [], "env": [], "ssh": []}},
    ],
)
def test_a_job_that_keeps_the_rules_passes(fields: dict[str, Any]) -> None:
    assert job_denial(make_job(**fields), QUEUES) is None


@pytest.mark.parametrize(
    ("containers", "inits", "place"),
    [
        (["1", "500m"], [], 1),
        (["2"], ["50m"], 1),
        (["2"], ["1", "1500m"], 2),
        (["0"], [], 0),
        (["2"], ["1"], None),
        (["4", "1"], [], None),
    ],
)
def test_a_topology_policy_needs_whole_cpus_for_all_containers(
    containers: list[str], inits: list[str], place: int | None
) -> None:
    def spec(amounts: list[str]) -> list[dict[str, Any]]:
        named = [{"name": f"c{i}", "image": "busybox"} for i in range(len(amounts))]
        return [
            one | {"resources": {"limits": {"cpu": cpu}}}
            for one, cpu in zip(named, amounts, strict=True)
        ]

    pod = {"spec": {"containers": spec(containers), "initContainers": spec(inits)}}
    task = make_task(topologyPolicy="restricted") | {"template": pod}
    says = f"the cpu request isn't an integer in spec.task[0] container[{place}]."
    assert job_denial(make_job(tasks=[task]), QUEUES) == (None if place is None else says)
    task["topologyPolicy"] = "none"
    assert job_denial(make_job(tasks=[task]), QUEUES) is None


def test_the_mutating_webhook_sets_defaults() -> None:
    tasks = [make_task(replicas=3), {**make_task(), "name": "", "replicas": 2, "minAvailable": 1}]
    spec = make_job(tasks=tasks, maxRetry=0, plugins={"mpi": []})["spec"]
    assert spec["minAvailable"] == 4
    assert spec["maxRetry"] == 3
    assert spec["schedulerName"] == "volcano"
    assert spec["queue"] == "default"
    assert [task["name"] for task in spec["tasks"]] == ["job", "default1"]
    assert set(spec["plugins"]) == {"mpi", "svc", "ssh"}


def test_only_replicas_and_min_available_may_change_later() -> None:
    old = make_job(tasks=[make_task(replicas=2)])
    new = copy.deepcopy(old)
    new["spec"]["tasks"][0] |= {"replicas": 3, "minAvailable": 1}
    new["spec"]["minAvailable"] = 1
    assert update_denial(old, new) is None
    new["spec"]["tasks"][0]["minAvailable"] = 4
    assert "must be <=" in (update_denial(old, new) or "")
    changes: list[dict[str, Any]] = [{"queue": "child"}, {"maxRetry": 9}]
    for change in changes:
        changed = {**old, "spec": {**old["spec"], **change}}
        assert "may not change" in (update_denial(old, changed) or "")


def _refused(spec: dict[str, Any], state: str = "") -> str | None:
    queue = {"metadata": {"name": "new"}, "spec": spec, "status": {"state": state}}
    return queue_denial(queue, QUEUES)


def test_queue_admission_rules_are_enforced() -> None:
    assert _refused({}, "Open") is None
    assert _refused({}, "Ajar")
    assert queue_deletion_denial("default", QUEUES)
    assert queue_deletion_denial("parent", QUEUES)
    assert queue_deletion_denial("child", QUEUES) is None


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"parent": "parent"}, None),
        ({"parent": "none"}, 'queue.scheduling.volcano.sh "none" not found'),
        ({"capability": {"cpu": "2"}, "deserved": {"cpu": "1"}}, None),
        ({"capability": {"cpu": "1"}, "deserved": {"cpu": "2"}}, "must be <= capability[cpu]=1"),
        ({"guarantee": {"resource": {"cpu": "2"}}}, "must be >= guarantee[cpu]=2"),
    ],
)
def test_a_queue_needs_a_parent_and_consistent_amounts(
    spec: dict[str, Any], says: str | None
) -> None:
    denial = _refused(spec)
    assert denial is None if says is None else says in (denial or "")


def test_a_queue_gets_default_weight_and_reclaimable() -> None:
    queue = completed_queue({"metadata": {"name": "a"}, "spec": {"weight": 0}})
    assert queue["spec"] == {"weight": 1, "reclaimable": True}
    assert unreadable_queue({"spec": {"capability": {"cpu": "x"}}})
    assert unreadable_queue({"spec": {"capability": {"cpu": "1500m", "memory": 1}}}) is None


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ({"tasks": [make_task(replicas="two")]}, "TaskSpec.spec.tasks.replicas of type int32"),
        ({"queue": 5}, "cannot unmarshal number into Go struct field JobSpec.spec.queue"),
        ({"plugins": {"svc": "x"}}, "JobSpec.spec.plugins of type []string"),
        ({"policies": [{"event": "*", "action": "AbortJob", "timeout": "x"}]}, 'duration "x"'),
        ({"policies": [{"event": "*", "action": "AbortJob", "timeout": "1m30s"}]}, None),
        ({"runningEstimate": "soon"}, 'time: invalid duration "soon"'),
        ({"maxRetry": True}, "cannot unmarshal bool into Go struct field JobSpec.spec.maxRetry"),
    ],
)
def test_values_go_cannot_decode_are_refused_before_schema_validation(
    spec: dict[str, Any], says: str | None
) -> None:
    denial = unreadable({"spec": {"tasks": [make_task()], **spec}})
    assert denial is None if says is None else says in (denial or "")


def test_malformed_quantities_are_refused() -> None:
    task = make_task()
    task["template"]["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "abc"}}
    assert "quantities must match" in (unreadable({"spec": {"tasks": [task]}}) or "")


def test_a_task_without_replicas_has_zero() -> None:
    task = make_task()
    task.pop("replicas", None)
    job = completed_job({"metadata": {"name": "a"}, "spec": {"tasks": [task]}})
    assert job["spec"]["minAvailable"] == 0
    assert "replicas" not in job["spec"]["tasks"][0]
    assert job["spec"]["tasks"][0]["template"]["spec"]["containers"][0]["resources"] == {}


def test_a_changed_number_of_tasks_has_its_own_message() -> None:
    old = make_job(tasks=[make_task()])
    new = {**old, "spec": {**old["spec"], "tasks": []}}
    assert update_denial(old, new) == "job updates may not add or remove tasks"
