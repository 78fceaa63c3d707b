"""Tests the report of a pod that no empty node could take, with the largest node's room."""

from __future__ import annotations

from typing import Any

import pytest

from controller.volcano.reasons.waiting import NO_NODE_FITS, NodeRoom, read_node, why_no_node


def node(labels: dict[str, str] | None = None, **fields: Any) -> NodeRoom:
    given = {"cpu": "8", "memory": "32Gi", "nvidia.com/gpu": "4"}
    status = {"allocatable": given, "conditions": [{"type": "Ready", "status": "True"}]}
    found = read_node({"metadata": {"labels": labels}, "spec": {}, "status": status | fields})
    assert found is not None
    return found


def job(
    *,
    init: dict[str, str] | None = None,
    sidecar: dict[str, str] | None = None,
    select: Any = None,
    **asked: str,
) -> dict[str, Any]:
    amounts = {name.replace("gpu", "nvidia.com/gpu"): amount for name, amount in asked.items()}
    spec: dict[str, Any] = {
        "nodeSelector": select,
        "containers": [{"resources": {"limits": amounts}}, {"resources": None}],
        "initContainers": [
            {"restartPolicy": "Always", "resources": {"requests": sidecar}},
            {"resources": {"requests": init}},
        ]
        if init or sidecar
        else None,
    }
    return {"spec": {"tasks": [{"name": "job", "template": {"spec": spec}}]}}


@pytest.mark.parametrize(
    ("asked", "nodes", "text", "resources"),
    [
        (job(cpu="8", gpu="4"), [node()], None, None),
        (job(gpu="8"), [node()], "each pod of job asks for 8 nvidia.com/gpu, and the largest node "
         "has 4", ["nvidia.com/gpu"]),
        (job(memory="64Gi"), [node()], "64Gi memory, and the largest node has 32Gi", ["memory"]),
        # An init container needs room too.
        (job(cpu="1", init={"cpu": "9"}), [node()], "asks for 9 cpu", ["cpu"]),
        # A sidecar goes on beside the containers, and beside the init containers after it.
        (job(cpu="7", sidecar={"cpu": "1"}), [node()], None, None),
        (job(cpu="8", sidecar={"cpu": "1"}), [node()], "asks for 9 cpu", ["cpu"]),
        (job(cpu="1", sidecar={"cpu": "2"}, init={"cpu": "7"}), [node()], "for 9 cpu", ["cpu"]),
        (job(gpu="1"), [], "there is no node that takes pods now", None),
        (job(cpu="1", select={"pool": "a100"}), [node({"pool": "t4"})],
         "no node with the labels pool=a100", None),
        (job(cpu="8", memory="64Gi"),
         [node(), node(allocatable={"cpu": "1", "memory": "99Gi"})],
         "no node has all that a pod of job asks for: 8 cpu, 64Gi memory", None),
    ],
)  # fmt: skip
def test_a_pod_is_compared_with_empty_nodes(
    asked: dict[str, Any], nodes: list[NodeRoom], text: str | None, resources: list[str] | None
) -> None:
    found = why_no_node(asked, nodes)
    if text is None:
        assert found is None
        return
    assert found is not None
    assert found.reason == "unschedulable"
    assert text in found.message
    assert found.message.endswith("nodes may be added")
    assert found.details["cause"] == NO_NODE_FITS
    assert found.details.get("resources") == resources


def test_unschedulable_nodes_are_not_counted() -> None:
    assert read_node({"spec": {"unschedulable": True}}) is None
    not_ready = {"conditions": [{"type": "Ready", "status": "Unknown"}]}
    assert read_node({"status": not_ready}) is None
    assert read_node({"metadata": None, "spec": None, "status": None}) == NodeRoom({}, {})


def test_unreadable_requests_count_as_none() -> None:
    assert why_no_node({}, []) is None
    assert why_no_node(job(cpu="many"), [node()]) is None
