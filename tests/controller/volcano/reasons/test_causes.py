"""Tests the causes read from messages of Kubernetes, kubelets, runtimes and Volcano versions."""

from __future__ import annotations

import pytest

from controller.volcano.reasons.causes import (
    cause_of_missing,
    cause_of_queue,
    cause_of_refusal,
    cause_of_scheduling,
    image_error,
    readable_quantities,
    resources_in,
    start_error,
)

NOT_FOUND = (
    "rpc error: code = NotFound desc = failed to pull and unpack image "
    '"docker.io/library/nope:1": failed to resolve reference "docker.io/library/nope:1": '
    "docker.io/library/nope:1: not found"
)
RUNC = (
    "failed to create containerd task: failed to create shim task: OCI runtime create failed: "
    "runc create failed: unable to start container process: "
)
NO_PROGRAM = 'exec: "nope": executable file not found in $PATH'


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        # Recorded from Kubernetes 1.36.2 and its admission plugins.
        ("exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1", "quota"),
        ("failed quota: q: must specify limits.memory for: main", "quota_unspecified"),
        ("failed quota: q: must specify requests.cpu for: a,b; limits.cpu for: a",
         "quota_unspecified"),
        ('Pod "j-a-job-0" is invalid: spec.containers[0].volumeMounts[0].name: Not found: "x"',
         "pod_invalid"),
        ('admission webhook "validate.kyverno.svc-fail" denied the request: resource Pod/x was '
         "blocked", "admission"),
        ("ValidatingAdmissionPolicy 'p' with binding 'b' denied request: no", "admission"),
        # A quota whose use is not counted yet, as in a new namespace.
        ("status unknown for quota: q, resources: pods,requests.cpu", "quota"),
        # Resources and priorities that the server allows only where a quota covers them.
        ("insufficient quota to consume: requests.nvidia.com/gpu", "quota"),
        ("insufficient quota to match these scopes: [{PriorityClass In [high]}]", "quota"),
        ("no PriorityClass with name gone was found", "missing_priority_class"),
        ('error looking up service account ns/a: serviceaccount "a" not found',
         "missing_service_account"),
        ('violates PodSecurity "restricted:latest": runAsNonRoot != true', "pod_security"),
        ('unable to validate against any security context constraint: [provider "anyuid": '
         "Forbidden: not usable by user or serviceaccount, spec.containers[0].securityContext."
         "runAsUser: Invalid value: 1000: must be in the ranges: [1000770000, 1000779999]]",
         "pod_security"),
        ("maximum cpu usage per Container is 2, but limit is 4", "limit_range"),
        ("cpu max limit to request ratio per Container is 2, but provided ratio is 4.000000",
         "limit_range"),
        # A LimitRange's default limit is below what the container requests.
        ('Pod "j-a-job-0" is invalid: spec.containers[0].resources.requests: Invalid value: '
         '"20Gi": must be less than or equal to ephemeral-storage limit of 1Gi', "limit_range"),
        ('admission webhook "a.example" denied the request: no', "admission"),
        ('failed calling webhook "a.example": admission webhook "b" denied the request: no',
         "refused"),
        # Volcano's webhooks, as a PodGroup is made: the queue was closed or deleted since.
        ('admission webhook "validatepodgroup.volcano.sh" denied the request: can only submit '
         "PodGroup to queue with state `Open`, queue `q` status is `Closing`", "queue_closed"),
        ('admission webhook "validatepodgroup.volcano.sh" denied the request: unable to find '
         'queue: queue.scheduling.volcano.sh "q" not found', "queue_missing"),
        ('pod rejected: RuntimeClass "kata" not found', "missing_runtime_class"),
        ("something of next year", "refused"),
    ],
)  # fmt: skip
def test_reasons_for_a_missing_pod_are_recognised(text: str, cause: str) -> None:
    assert cause_of_refusal(text) == cause


@pytest.mark.parametrize(
    ("text", "cause", "resources"),
    [
        ("0/4 nodes are unavailable: 4 Insufficient nvidia.com/gpu.", "insufficient",
         ["nvidia.com/gpu"]),
        ("0/9 nodes are available: 3 Insufficient cpu, 6 Insufficient memory. preemption: 0/9 "
         "nodes are available: 9 No preemption victims found for incoming pod.", "insufficient",
         ["cpu", "memory"]),
        ("1/1 tasks in gang unschedulable: pod group is not ready, 1 Pending, 2 minAvailable; "
         "Pending: 1 Unschedulable", "unschedulable", []),
        ("0/4 nodes are unavailable: 4 node(s) didn't match Pod's node affinity/selector.",
         "no_matching_node", []),
        ("0/1 nodes are available: 1 node(s) had untolerated taint {gpu: true}.",
         "no_matching_node", []),
        ('0/1 nodes are unavailable: persistentvolumeclaim "data" not found.', "missing_claim", []),
        ("0/1 nodes are available: pod has unbound immediate PersistentVolumeClaims.",
         "unbound_claim", []),
        ("0/3 nodes are available: 1 node(s) didn't match Pod's node affinity/selector, 2 node(s) "
         "didn't find available persistent volumes to bind.", "unbound_claim", []),
        ("0/2 nodes are available: 2 node(s) had volume node affinity conflict.",
         "no_matching_node", []),
        ("0/3 nodes are unavailable: 1 node(s) pod number exceeded, 2 node(s) resource fit failed.",
         "insufficient", []),
    ],
)  # fmt: skip
def test_reasons_for_an_unschedulable_pod_are_recognised(
    text: str, cause: str, resources: list[str]
) -> None:
    assert cause_of_scheduling(text) == cause
    assert resources_in(text) == resources


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ("queue resource quota insufficient", "queue_full"),  # 1.8
        ("queue resource quota insufficient: insufficient nvidia.com/gpu", "queue_full"),  # 1.15
        ("resource in cluster is overused: overused cpu", "cluster_full"),
        ("resource quota insufficient, requested: map[], used: map[], limited: map[]", "quota"),
        ("something of next year", "queued"),
    ],
)
def test_reasons_for_an_unadmitted_group_are_recognised(text: str, cause: str) -> None:
    assert cause_of_queue(text) == cause


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        ('secret "gone" not found', "missing_secret"),
        ("couldn't find key token in Secret jobs/s", "missing_key"),
        ('MountVolume.SetUp failed for volume "v" : configmap "gone" not found',
         "missing_config_map"),
        ("timed out waiting for the condition", "otherwise"),
    ],
)  # fmt: skip
def test_missing_container_requirements_are_recognised(text: str, cause: str) -> None:
    assert cause_of_missing(text, "otherwise") == cause


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (NOT_FOUND, "docker.io/library/nope:1: not found"),
        (f'Back-off pulling image "nope:1": ErrImagePull: {NOT_FOUND}',
         "docker.io/library/nope:1: not found"),
        # CRI-O from 1.34 on
        ("unable to pull image or OCI artifact: pull image err: initializing source "
         "docker://nope:1: reading manifest 1 in docker.io/library/nope: requested access to the "
         "resource is denied; artifact err: get manifest: build image source: reading manifest 1",
         "requested access to the resource is denied"),
        # Kubelets before 1.32 report only this between two pulls.
        ('Back-off pulling image "nope:1"', ""),
        ("", ""),
        ("unexpected status code 401 Unauthorized", "unexpected status code 401 Unauthorized"),
    ],
)  # fmt: skip
def test_a_registry_error_is_reported_once(text: str, said: str) -> None:
    assert image_error(text) == said


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"{RUNC}{NO_PROGRAM}: unknown", NO_PROGRAM),
        (f"Error: container create failed: {NO_PROGRAM}", NO_PROGRAM),
        ("something else", "something else"),
    ],
)
def test_reasons_for_an_unstarted_container_are_recognised(text: str, said: str) -> None:
    assert start_error(text) == said


def test_amounts_that_volcano_prints_as_structs_are_readable() -> None:
    said = (
        "resource quota insufficient, requested: map[limits.memory:{{4294967296 0} {<nil>}  "
        "BinarySI} requests.cpu:{{2500 -3} {<nil>}  DecimalSI}], used: map[requests.cpu:"
        "{{6 0} {<nil>} 6 DecimalSI}], limited: map[requests.cpu:{{8 3} {<nil>}  DecimalSI}]"
    )
    assert readable_quantities(said) == (
        "resource quota insufficient, requested: map[limits.memory: 4294967296 requests.cpu: 2.5],"
        " used: map[requests.cpu: 6], limited: map[requests.cpu: 8000]"
    )
    assert resources_in(said) == ["limits.memory", "requests.cpu"]
    assert readable_quantities("cpu:{{x}}") == "cpu:{{x}}"
