"""Tests why a job waits: the first cause, taken from pods as Kubernetes reports them."""

from __future__ import annotations

from typing import Any

import pytest

from controller.jobs.history.explanations import (
    LONGEST,
    explain_absent,
    explain_running,
    explain_waiting,
    is_explained,
    same_but_for_numbers,
)
from controller.volcano.observed import ObservedPod
from controller.volcano.parsing import read_pod
from controller.volcano.reasons.waiting import NOT_TAKEN_UP, QUEUED, Explanation
from tests.controller.samples import UID, make_observed, make_pod
from tests.controller.volcano.reasons.test_causes import NOT_FOUND

WAITS = make_observed("Pending")


def pod(index: int = 0, *, waiting: Any = None, init: Any = None, unscheduled: Any = None,
        node: str = "n1") -> ObservedPod:  # fmt: skip
    owner = {"uid": UID, "controller": True}
    conditions = (
        [{"type": "PodScheduled", "status": "False", **unscheduled}] if unscheduled else None
    )
    main = {"name": "job", "image": "nope:1", "state": {"waiting": waiting, "terminated": None}}
    first = {"name": "fumarole-files", "image": "helper:1", "state": {"waiting": init}}
    return read_pod(
        {
            "metadata": {"name": f"j-j1-job-{index}", "uid": f"p{index}",
                         "labels": {"volcano.sh/task-spec": "job"}, "ownerReferences": [owner]},
            "spec": {"nodeName": None if unscheduled else node},
            "status": {"phase": "Pending", "conditions": conditions,
                       "containerStatuses": [main] if waiting else None,
                       "initContainerStatuses": [first] if init else None},
        }
    )  # fmt: skip


def waits(reason: str, message: str | None = None) -> dict[str, Any]:
    return {"reason": reason, "message": message}


NO_GPU = {
    "reason": "Unschedulable",
    "message": "0/2 nodes are unavailable: 2 Insufficient a.b/gpu.",
}
OF_GANG = {"reason": "Undetermined", "message": "pod group is not ready, 2 Pending, 2 minAvailable"}
QUOTA = {
    "uid": UID,
    "reason": "forbidden",
    "message": "exceeded quota",
    "details": {"cause": "quota"},
}
TOO_LARGE = {"uid": UID, "reason": "unschedulable", "message": "no node could take it now",
             "details": {"cause": "no_node_fits"}}  # fmt: skip
FULL = {"uid": UID, "reason": "queued", "message": "waiting in the queue: full"}
MOUNT = {"uid": UID, "reason": "preparing", "message": "preparing the container: no secret",
         "details": {"cause": "missing_secret"}}  # fmt: skip


@pytest.mark.parametrize(
    ("pods", "kept", "reason", "cause", "text"),
    [
        ((pod(waiting=waits("ErrImagePull", NOT_FOUND)),), QUOTA, "image", "image_pull",
         "the image cannot be pulled: nope:1: docker.io/library/nope:1: not found"),
        # The image of a container other than the job's own counts too.
        ((pod(init=waits("ImagePullBackOff"), waiting=waits("PodInitializing")),), None, "image",
         "image_pull", "the image cannot be pulled: helper:1"),
        ((pod(waiting=waits("InvalidImageName", "couldn't parse")),), None, "image", "image_name",
         "the image's name is not valid: nope:1: couldn't parse"),
        ((pod(waiting=waits("CreateContainerConfigError", 'secret "s" not found')),), None,
         "configuration", "missing_secret",
         'the container cannot be configured: secret "s" not found'),
        ((pod(unscheduled=NO_GPU),), QUOTA, "forbidden", "quota", "exceeded quota"),
        ((pod(unscheduled=NO_GPU),), FULL, "unschedulable", "insufficient",
         "0/2 nodes are unavailable: 2 Insufficient a.b/gpu."),
        # The pod for which a node is missing decides, not the pods of its gang.
        ((pod(0, unscheduled=OF_GANG), pod(1, unscheduled=NO_GPU)), None, "unschedulable",
         "insufficient", "0/2 nodes are unavailable: 2 Insufficient a.b/gpu."),
        ((pod(unscheduled=NO_GPU),), TOO_LARGE, "unschedulable", "no_node_fits",
         "no node could take it now; the scheduler says: 0/2 nodes are unavailable: 2 Insufficient "
         "a.b/gpu."),
        ((), TOO_LARGE, "unschedulable", "no_node_fits", "no node could take it now"),
        ((pod(waiting=waits("ContainerCreating")),), MOUNT, "preparing", "missing_secret",
         "preparing the container: no secret"),
        ((pod(waiting=waits("ContainerCreating")),), None, "preparing", "preparing",
         "preparing the container"),
        # A foreign sidecar may itself only wait for the job's container.
        ((pod(init=waits("CrashLoopBackOff", "back-off 40s restarting"),
              waiting=waits("ErrImagePull", NOT_FOUND)),), None, "image", "image_pull",
         "the image cannot be pulled: nope:1: docker.io/library/nope:1: not found"),
        ((pod(init=waits("CrashLoopBackOff", "back-off 40s restarting"),
              waiting=waits("PodInitializing")),), MOUNT, "preparing", "crash_loop",
         "a sidecar ends again and again: fumarole-files"),
        # A pod that lost its node's volume may wait for a node again.
        ((), MOUNT, "queued", "queued", "waiting in the queue"),
        ((), {**QUOTA, "uid": "another"}, "queued", "queued", "waiting in the queue"),
        # From a version that stored no details.
        ((), {"uid": UID, "reason": "queued", "message": "full"}, "queued", None, "full"),
    ],
)  # fmt: skip
def test_the_first_blocking_reason_is_reported(
    pods: tuple[ObservedPod, ...], kept: Any, reason: str, cause: str | None, text: str
) -> None:
    found = explain_waiting(WAITS, pods, kept)
    assert (found.reason, found.message) == (reason, text)
    assert found.details.get("cause") == cause


def test_an_image_error_is_kept_during_pull_back_off() -> None:
    failed = explain_waiting(WAITS, [pod(waiting=waits("ErrImagePull", NOT_FOUND))])
    pauses = pod(waiting=waits("ImagePullBackOff", 'Back-off pulling image "nope:1"'))
    assert explain_waiting(WAITS, [pauses], reported=failed) == failed
    # An explanation about another image does not count.
    other = Explanation("image", "of another", {"image": "other:1"})
    assert explain_waiting(WAITS, [pauses], reported=other).message == (
        "the image cannot be pulled: nope:1"
    )


def test_only_reasons_in_the_pod_status_need_no_request() -> None:
    assert is_explained(WAITS, [pod(waiting=waits("ErrImagePull"))], ranks=1)
    assert not is_explained(WAITS, [pod(waiting=waits("ErrImagePull"))], ranks=2)
    assert not is_explained(WAITS, [pod(unscheduled=NO_GPU)], ranks=1)
    assert not is_explained(WAITS, [], ranks=1)


def test_kubelet_messages_are_truncated() -> None:
    found = explain_waiting(WAITS, [pod(waiting=waits("ErrImagePull", "\x00" + "x" * 99999))])
    assert len(found.message) <= LONGEST
    assert "\x00" not in found.message


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("0/4 nodes: 3 Insufficient cpu", "0/5 nodes: 1 Insufficient cpu", True),
        ("used: requests.cpu=500m, limited: 4", "used: requests.cpu=2, limited: 4", True),
        ("2 Insufficient cpu", "2 Insufficient memory", False),
        ("exceeded quota: q1", "exceeded quota: q2", False),
        (None, "", True),
    ],
)
def test_messages_that_differ_only_in_numbers_are_equal(
    one: str | None, other: str | None, same: bool
) -> None:
    assert same_but_for_numbers(one, other) is same


def test_a_volcano_job_with_a_phase_was_picked_up() -> None:
    kept = {"uid": UID, "reason": NOT_TAKEN_UP.reason, "message": NOT_TAKEN_UP.message,
            "details": dict(NOT_TAKEN_UP.details)}  # fmt: skip
    assert explain_waiting(make_observed(""), (), kept) == NOT_TAKEN_UP
    assert explain_waiting(make_observed("Pending"), (), kept) == QUEUED


def test_a_reason_from_before_a_restart_is_dropped() -> None:
    kept = {"uid": UID, "since": 5.0, "reason": "forbidden", "message": "exceeded quota: q"}
    assert (
        explain_waiting(make_observed("Pending", phase_since=5.0), (), kept).reason == "forbidden"
    )
    for phase, said in (("Restarting", "restarting"), ("Pending", "queued")):
        assert explain_waiting(make_observed(phase, phase_since=90.0), (), kept).reason == said
    # An older version stored no time.
    del kept["since"]
    assert (
        explain_waiting(make_observed("Pending", phase_since=5.0), (), kept).reason == "forbidden"
    )


SINCE = 1767225600.0


def held(index: int = 0, **fields: Any) -> ObservedPod:
    """Return a pod on a dead node that Kubernetes has deleted: no kubelet confirms it."""
    return make_pod(index, node_unready_since=SINCE, deleting=True, **fields)


HELD = (
    "the node n1 of job 0 is not ready since 2026-01-01T00:00:00Z, and its deleted pod stays until"
    " the node comes back or is removed"
)


def test_a_deleted_pod_on_a_dead_node_still_explains_why_nothing_runs() -> None:
    found = explain_running(make_observed("Running"), [held(), make_pod(1)])
    assert found is not None
    assert (found.reason, found.message) == ("node_not_ready", HELD)
    assert found.details["pod"] == "j-j1-job-0"


@pytest.mark.parametrize("phase", ["Restarting", "Pending"])
def test_a_restart_names_the_dead_node_that_it_waits_for(phase: str) -> None:
    found = explain_waiting(make_observed(phase), [held()])
    assert (found.reason, found.message) == ("node_not_ready", HELD)
    # A new pod says more about what is waited for.
    full = make_pod(1, node="", phase="Pending", running=False, unscheduled="0/4 nodes fit")
    assert explain_waiting(make_observed(phase), [held(), full]).reason == "unschedulable"


def test_pods_that_end_on_living_nodes_explain_nothing() -> None:
    ends = make_pod(deleting=True)
    assert explain_running(make_observed("Running"), [ends]) is None
    assert explain_waiting(make_observed("Restarting"), [ends]).reason == "restarting"


def test_a_running_job_without_pods_is_explained_like_one_that_waits() -> None:
    job = make_observed("Running", phase_since=5.0)
    kept = {"uid": UID, "reason": "queued", "message": "waiting in the queue: overused cpu",
            "since": 5.0, "details": {"cause": "cluster_full"}}  # fmt: skip
    found = explain_absent(job, kept)
    assert (found.reason, found.message) == ("queued", kept["message"])
    assert found.details == {"cause": "cluster_full"}
    for other in (None, kept | {"uid": "another"}, kept | {"reason": "preparing"}):
        found = explain_absent(job, other)
        assert (found.reason, found.details) == ("queued", {"cause": "queued"})
        assert found.message == "its pods are gone, and Volcano has made no others yet"
