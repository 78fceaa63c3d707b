"""Tests that the trimmed objects in the cache keep every field that is read."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from controller.kube.decoding import WHOLE, FieldTransform
from controller.volcano import fields
from controller.volcano.names import SPEC_ANNOTATION
from controller.volcano.parsing import (
    read_job,
    read_pod,
    read_service,
)

TIME = "2026-11-22T10:00:00Z"
TEXT = st.none() | st.sampled_from(["", "a", "Ready", "True", "False", "job", "Running", TIME])
ENDED = st.fixed_dictionaries(
    {},
    optional={
        "exitCode": st.integers(0, 255), "signal": st.integers(0, 9), "reason": TEXT,
        "message": TEXT, "startedAt": st.just(TIME), "finishedAt": st.just(TIME),
        "containerID": TEXT,
    },
)  # fmt: skip
CONTAINERS = st.none() | st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["job", "sidecar"])},
        optional={
            "ready": st.booleans(), "image": TEXT, "lastState": st.just({}),
            "state": st.none() | st.fixed_dictionaries(
                {},
                optional={
                    "waiting": st.none() | st.just({"reason": "ImagePullBackOff", "message": "m"}),
                    "running": st.none() | st.just({"startedAt": TIME}),
                    "terminated": st.none() | ENDED,
                },
            ),
        },
    ),
    max_size=2,
)  # fmt: skip
CONDITIONS = st.none() | st.lists(
    st.fixed_dictionaries(
        {
            "type": st.sampled_from(
                ["Ready", "ContainersReady", "PodScheduled", "DisruptionTarget"]
            ),
            "status": st.sampled_from(["True", "False"]),
        },
        optional={
            "reason": TEXT,
            "message": TEXT,
            "lastTransitionTime": st.just(TIME),
            "lastProbeTime": st.none(),
        },
    ),
    max_size=3,
)
METADATA = st.fixed_dictionaries(
    {"name": st.just("j-a-job-0"), "namespace": st.just("n"), "uid": st.just("u")},
    optional={
        "labels": st.none() | st.just({"fumarole.dev/job": "a", "volcano.sh/task-spec": "job"}),
        "annotations": st.none()
        | st.just({"volcano.sh/job-retry-count": "2", SPEC_ANNOTATION: "{}", "other": "x"}),
        "ownerReferences": st.none() | st.just([{"kind": "Job", "uid": "o", "controller": True}]),
        "creationTimestamp": st.just(TIME),
        "deletionTimestamp": st.none() | st.just(TIME),
        "deletionGracePeriodSeconds": st.sampled_from([None, 0, 30]),
        "managedFields": st.just([{"manager": "m", "fieldsV1": {"f:status": {}}}]),
    },
)


def some(**parts: Any) -> Any:
    return st.none() | st.fixed_dictionaries({}, optional=parts)


PODS = some(
    phase=TEXT, reason=TEXT, message=TEXT, podIP=TEXT, hostIP=TEXT, conditions=CONDITIONS,
    containerStatuses=CONTAINERS, initContainerStatuses=CONTAINERS,
)  # fmt: skip
POLICIES = st.none() | st.lists(some(event=TEXT, timeout=TEXT).filter(bool), max_size=2)
JOB_SPECS = some(
    maxRetry=st.integers(0, 9),
    policies=POLICIES,
    tasks=st.none() | st.lists(some(policies=POLICIES, template=TEXT).filter(bool), max_size=2),
    queue=TEXT,
)
JOB_STATUSES = some(
    state=some(phase=TEXT, reason=TEXT, message=TEXT, lastTransitionTime=st.just(TIME)),
    retryCount=st.integers(0, 9),
    conditions=st.none() | st.lists(some(status=TEXT, lastTransitionTime=TEXT).filter(bool)),
)
AMOUNTS = st.none() | st.just({"limits": {"memory": "1Gi"}, "requests": {"cpu": "1"}})
ASKED = st.none() | st.lists(
    st.fixed_dictionaries(
        {"name": st.sampled_from(["job", "sidecar"])},
        optional={"resources": AMOUNTS, "image": TEXT, "command": st.just(["x"])},
    ),
    max_size=2,
)
GATES = st.sampled_from([None, [{"conditionType": "a/b"}]])
PORTS = st.none() | st.lists(some(port=st.integers(1, 99), name=TEXT).filter(bool), max_size=2)


def both(read: Callable[[Mapping[str, Any]], Any], shape: Any, sent: Any) -> tuple[Any, Any]:
    text = json.dumps(sent).encode()
    return read(WHOLE.decode(text)), read(FieldTransform(shape).decode(text))


@given(METADATA, some(nodeName=TEXT, containers=ASKED, readinessGates=GATES), PODS)
def test_a_trimmed_pod_reads_as_the_whole_one(metadata: Any, spec: Any, status: Any) -> None:
    sent = {"metadata": metadata, "spec": spec, "status": status}
    whole, trimmed = both(read_pod, fields.POD, sent)
    assert whole == trimmed


@given(METADATA, JOB_SPECS, JOB_STATUSES)
def test_a_trimmed_volcano_job_reads_as_the_whole_one(
    metadata: Any, spec: Any, status: Any
) -> None:
    sent = {"metadata": metadata, "spec": spec, "status": status}
    whole, trimmed = both(read_job, fields.VOLCANO_JOB, sent)
    assert whole == trimmed


@given(METADATA, some(clusterIP=TEXT, ports=PORTS, selector=TEXT), st.none())
def test_a_trimmed_service_reads_as_the_whole_one(metadata: Any, spec: Any, status: Any) -> None:
    sent = {"metadata": metadata, "spec": spec, "status": status}
    whole, trimmed = both(read_service, fields.SERVICE, sent)
    assert whole == trimmed


@pytest.mark.parametrize("shape", [fields.POD, fields.VOLCANO_JOB, fields.SERVICE])
def test_managed_fields_are_never_kept(shape: Any) -> None:
    sent = {"metadata": {"name": "a", "managedFields": [{"manager": "kubelet"}]}, "kind": "x"}
    assert FieldTransform(shape).decode(json.dumps(sent).encode()) == {"metadata": {"name": "a"}}


def test_texts_shared_by_pods_are_interned() -> None:
    text = json.dumps({"metadata": {"namespace": "jobs"}, "status": {"phase": "Odd"}})
    one, other = (read_pod(json.loads(text)) for _ in range(2))
    assert one.namespace is other.namespace
    assert one.phase is other.phase
