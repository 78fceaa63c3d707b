"""Tests why a job failed, taken from pods as kubelets report them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from controller.jobs.history.failures import LONGEST_TAIL, MOST_LINES, explain_failure, log_tail
from controller.jobs.history.pod_records import are_recorded, make_pod_records, was_taken
from controller.volcano.observed import ObservedPod
from controller.volcano.parsing import read_pod
from tests.controller.samples import UID, make_job, make_observed
from tests.controller.volcano.reasons.test_causes import NO_PROGRAM, RUNC

NEVER = "1970-01-01T00:00:00Z"
AT = "2026-11-22T10:00:00Z"


def pod(index: int = 0, *, ended: Any = None, init: Any = None, inits: Any = None,
        deleted: bool = False, **status: Any) -> ObservedPod:  # fmt: skip
    """Return a failed pod as a kubelet reports it; Go encodes absent fields as null."""
    container = {"name": "job", "state": {"waiting": None, "running": None, "terminated": ended}}
    limits = {"limits": {"memory": "64Mi"}}
    owner = {"uid": UID, "controller": True, "kind": "Job"}
    labels = {"volcano.sh/task-spec": "job", "fumarole.dev/job": "j1"}
    return read_pod(
        {
            "metadata": {"name": f"j-j1-job-{index}", "uid": f"pod-{index}", "namespace": "jobs",
                         "labels": labels, "ownerReferences": [owner], "annotations": None,
                         **({"deletionTimestamp": AT} if deleted else {})},
            "spec": {"nodeName": "n1", "containers": [{"name": "job", "resources": limits}],
                     "initContainers": inits},
            "status": {"phase": "Failed", "conditions": None, "containerStatuses": [container],
                       "initContainerStatuses": init, **status},
        }
    )  # fmt: skip


def ended(code: int, reason: str = "Error", message: str | None = None, **more: Any) -> Any:
    return {"exitCode": code, "reason": reason, "message": message, "signal": None,
            "startedAt": AT, "finishedAt": AT, **more}  # fmt: skip


def disrupted(reason: str, message: str = "") -> dict[str, Any]:
    condition = {"type": "DisruptionTarget", "status": "True", "reason": reason}
    return {"conditions": [condition | {"message": message}]}


TOOK_MORE = "job 0 took more storage than it may: "
LOST = "job 0 was evicted: its node restarted, or lost its containers"
CASES: list[tuple[ObservedPod, str, str, str]] = [
    (pod(ended=ended(3, message="one\ntwo\n")), "exit_code", "exit_code",
     "job 0 ended with exit code 3"),
    (pod(ended=ended(139)), "exit_code", "signal", "job 0 ended with exit code 139 (SIGSEGV)"),
    (pod(ended=ended(255)), "exit_code", "exit_code", "job 0 ended with exit code 255"),
    (pod(ended=ended(137, "OOMKilled")), "out_of_memory", "out_of_memory",
     "job 0 used more memory than it had asked for: 64Mi"),
    # With cgroups v2 the kernel may kill only a child; the program then chooses the exit code.
    (pod(ended=ended(1, "OOMKilled")), "out_of_memory", "out_of_memory",
     "job 0 used more memory than it had asked for: 64Mi"),
    (pod(ended=ended(128, "StartError", f"{RUNC}{NO_PROGRAM}: unknown", startedAt=NEVER)),
     "exit_code", "start_error",
     f"job 0 could not start its program (exit code 128): {NO_PROGRAM}"),
    # After a restart of its node (CRI-O; containerd), nobody knows how a program ended.
    (pod(ended=ended(137, "ContainerStatusUnknown", "could not be located", startedAt=None,
                     finishedAt=None)),
     "evicted", "node_lost", LOST),
    (pod(ended=ended(255, "Unknown")), "evicted", "node_lost", LOST),
    (pod(init=[{"name": "fumarole-files", "state": {"terminated": ended(255, "Unknown")}}]),
     "evicted", "node_lost", LOST),
    (pod(ended=ended(137, "ContainerStatusUnknown"), **disrupted("DeletionByTaintManager")),
     "evicted", "node_lost", "job 0 was evicted: its node is unreachable, or takes no such pods"),
    (pod(reason="Evicted", message="Pod ephemeral local storage usage exceeds the total limit of "
         "containers 1Gi. ", ended=ended(137, "ContainerStatusUnknown")), "failed",
     "storage_limit",
     TOOK_MORE + "Pod ephemeral local storage usage exceeds the total limit of containers 1Gi."),
    (pod(ended=ended(137), **disrupted("DeletionByDeviceTaintManager", "unhealthy")),
     "evicted", "node_lost", "job 0 was evicted: a device of its node failed: unhealthy"),
    # A reason that a later version of Kubernetes may have.
    (pod(ended=ended(137), **disrupted("MovedByBalancer", "to another node")),
     "evicted", "evicted", "job 0 was evicted: MovedByBalancer: to another node"),
    (pod(ended=ended(137), **disrupted("MovedByBalancer")),
     "evicted", "evicted", "job 0 was evicted: MovedByBalancer"),
    (pod(reason="Evicted", message="The node was low on resource: memory.", ended=ended(137)),
     "evicted", "evicted", "job 0 was evicted: The node was low on resource: memory."),
    (pod(**disrupted("PreemptionByScheduler", "default-scheduler: preempting")), "evicted",
     "preempted", "job 0 was evicted: a job of higher priority needed its place: "
     "default-scheduler: preempting"),
    (pod(**disrupted("DeletionByTaintManager")), "evicted", "node_lost",
     "job 0 was evicted: its node is unreachable, or takes no such pods"),
    (pod(conditions=[{"type": "Ready", "status": "False", "reason": "Evict",
                      "message": "Pod is evicted, because of preempt"}]),
     "evicted", "preempted", "job 0 was evicted: the scheduler gave its place to another job: "
     "Pod is evicted, because of preempt"),
    (pod(reason="Evicted", ended=ended(137),
         message='Container job exceeded its local ephemeral storage limit "1Gi". '), "failed",
     "storage_limit",
     TOOK_MORE + 'Container job exceeded its local ephemeral storage limit "1Gi".'),
    (pod(reason="Evicted", message="Pod ephemeral local storage usage exceeds the total limit of "
                                   "containers 2Gi. "), "failed", "storage_limit",
     TOOK_MORE + "Pod ephemeral local storage usage exceeds the total limit of containers 2Gi."),
    (pod(reason="Evicted", message='Usage of EmptyDir volume "work" exceeds the limit "4Gi". '),
     "failed", "storage_limit",
     TOOK_MORE + 'Usage of EmptyDir volume "work" exceeds the limit "4Gi".'),
    # Its node was low: another node may have room.
    (pod(reason="Evicted", message="The node was low on resource: ephemeral-storage. Container job "
                                   "was using 5Gi, which exceeds its request of 1Gi. "), "evicted",
     "evicted", "job 0 was evicted: The node was low on resource: ephemeral-storage. Container job "
                "was using 5Gi, which exceeds its request of 1Gi."),
    (pod(reason="DeadlineExceeded", message="Pod was active on the node longer than the specified "
         "deadline", ended=ended(137)), "failed", "deadline",
     "job 0 ran for longer than its pod may: Pod was active on the node longer than the specified "
     "deadline"),
    (pod(reason="OutOfcpu", message="Node didn't have enough resource: cpu"), "failed",
     "node_refused", "job 0 failed on its node: OutOfcpu: Node didn't have enough resource: cpu"),
    (pod(init=[{"name": "fumarole-files",
                "state": {"terminated": ended(1, message="no /home/a")}}]),
     "files", "files", "no /home/a"),
    # A sidecar from a webhook is ended after the program, and does not fail the pod.
    (pod(init=[{"name": "istio-proxy", "state": {"terminated": ended(137)}}], ended=ended(3),
         inits=[{"name": "istio-proxy", "restartPolicy": "Always"}]),
     "exit_code", "exit_code", "job 0 ended with exit code 3"),
]  # fmt: skip


@pytest.mark.parametrize(("shown", "reason", "cause", "message"), CASES)
def test_a_failure_is_explained_from_observed_and_recorded_pods(
    shown: ObservedPod, reason: str, cause: str, message: str
) -> None:
    runs = make_pod_records(make_job(), 1, runs={}, present=[shown], departed=[], now=9e9,
                     looked_until=0.0)  # fmt: skip
    assert are_recorded({run.pod_uid: run for run in runs}, [shown], [])
    for found in (
        explain_failure(make_observed("Failed"), [shown], runs),
        # Volcano has deleted the pod because it would have restarted it.
        explain_failure(make_observed("Failed"), [], runs),
    ):
        assert found is not None
        assert (found.reason, found.message) == (reason, message)
        assert found.details["cause"] == cause
        assert (found.details["rank"], found.details["node"]) == (0, "n1")


def test_a_failing_injected_sidecar_is_named() -> None:
    beside = {"name": "istio-proxy", "state": {"terminated": ended(5)}}
    own = {"name": "job", "state": {"terminated": ended(0, "Completed")}}
    shown = pod(containerStatuses=[own, beside])
    found = explain_failure(make_observed("Failed"), [shown], [])
    assert found is not None
    text = "job 0 failed by its container istio-proxy, which ended with exit code 5"
    assert (found.reason, found.message) == ("failed", text)
    details = {"cause": "sidecar", "container": "istio-proxy", "exit_code": 5}
    assert details.items() <= found.details.items()


def test_the_last_log_lines_are_reported_up_to_a_limit() -> None:
    (shown, *_) = CASES[0]
    found = explain_failure(make_observed("Failed"), [shown], [])
    assert found is not None
    assert found.details["log_tail"] == ["one", "two"]
    assert log_tail("") == []
    many = log_tail("".join(f"line {n}\n" for n in range(999)))
    assert (len(many), many[-1]) == (MOST_LINES, "line 998")
    assert len("".join(log_tail("x" * 99999))) <= LONGEST_TAIL


def test_a_container_that_never_started_has_no_run_time() -> None:
    shown = pod(ended=ended(128, "StartError", startedAt=NEVER))
    assert shown.started_at is None
    (run,) = make_pod_records(make_job(), 1, runs={}, present=[shown], departed=[], now=9e9,
                       looked_until=0.0)  # fmt: skip
    assert run.started_at is None
    assert run.ended_at is not None


def test_the_earliest_failed_pod_decides() -> None:
    killed = pod(0, ended=ended(137, finishedAt="2026-11-22T10:00:02Z"))
    culprit = pod(1, ended=ended(3))
    found = explain_failure(make_observed("Failed"), [killed, culprit], [])
    assert found is not None
    assert found.message == "job 1 ended with exit code 3"


@pytest.mark.parametrize("lost", ["ContainerStatusUnknown", "Unknown"])
def test_a_container_that_is_lost_while_its_pod_is_deleted_is_no_eviction(lost: str) -> None:
    """Volcano deletes the other pods of a failed job; their kubelet may not see how they end."""
    culprit, other = pod(0, ended=ended(3)), pod(1, ended=ended(137, lost), deleted=True)
    runs = make_pod_records(make_job(), 1, runs={}, present=[culprit, other], departed=[], now=9e9,
                            looked_until=0.0)  # fmt: skip
    for shown in ([culprit, other], []):
        found = explain_failure(make_observed("Failed"), shown, runs)
        assert found is not None
        assert found.message == "job 0 ended with exit code 3"
    assert not any(was_taken(run) for run in runs)


def test_a_lost_container_stays_an_eviction_after_the_deletion_of_its_pod() -> None:
    lost = pod(ended=ended(137, "ContainerStatusUnknown"))
    runs = make_pod_records(make_job(), 1, runs={}, present=[lost], departed=[], now=9e9,
                            looked_until=0.0)  # fmt: skip
    later = pod(ended=ended(137, "ContainerStatusUnknown"), deleted=True)
    assert are_recorded({run.pod_uid: run for run in runs}, [later], [])
    found = explain_failure(make_observed("Failed"), [later], runs)
    assert found is not None
    assert (found.reason, found.message) == ("evicted", LOST)


def test_without_a_pod_reason_volcanos_reason_is_used() -> None:
    assert explain_failure(make_observed("Failed"), [], []) is None
    found = explain_failure(make_observed("Failed", message="plugin failed"), [], [])
    assert found is not None
    assert (found.reason, found.message) == ("failed", "plugin failed")


def test_a_failure_before_the_last_restart_is_reported_if_the_last_pods_are_unknown() -> None:
    failed = pod(ended=ended(3))
    (before,) = make_pod_records(
        make_job(), 1, runs={}, present=[failed], departed=(), now=9.0, looked_until=0.0
    )
    killed = replace(before, pod_uid="later", retry=1, phase="Pending", exit_code=None, reason="")
    found = explain_failure(make_observed("Failed"), (), [before, killed])
    assert found is not None
    assert (found.reason, found.message) == ("exit_code", "job 0 ended with exit code 3")
    # An eviction was made good for, so it does not explain the end.
    evicted = replace(before, reason="Evicted")
    assert explain_failure(make_observed("Failed"), (), [evicted, killed]) is None
