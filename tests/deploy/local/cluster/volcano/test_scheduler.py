"""Tests gang scheduling: pods are placed all or none."""

from __future__ import annotations

from typing import Any

from deploy.local.cluster.volcano.rooms import make_rooms, place


def make_node(name: str, cpu: int, **spec: Any) -> dict[str, Any]:
    """Return a ready node."""
    return {
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name}},
        "spec": spec,
        "status": {
            "allocatable": {"cpu": str(cpu), "pods": "10"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def make_pod(name: str, cpu: str = "1", **spec: Any) -> dict[str, Any]:
    """Return a pod that asks for *cpu*."""
    container = {"name": "main", "resources": {"requests": {"cpu": cpu}}}
    return {
        "metadata": {"name": name, "namespace": "n"},
        "spec": {"containers": [container], **spec},
        "status": {"phase": "Pending"},
    }


def test_a_gang_that_fits_is_placed_over_the_nodes() -> None:
    rooms = make_rooms([make_node("a", 1), make_node("b", 2)], [])
    placed = place([make_pod(f"p{n}") for n in range(3)], rooms, 3)
    assert sorted(placed.bindings.values()) == ["a", "b", "b"]


def test_a_gang_that_does_not_fit_uses_no_resources() -> None:
    rooms = make_rooms([make_node("a", 2)], [])
    placed = place([make_pod(f"p{n}") for n in range(3)], rooms, 3)
    assert placed.bindings == {}
    assert placed.reason.startswith("3/3 tasks in gang unschedulable: pod group is not ready")
    assert placed.obstacles["n", "p2"] == "0/1 nodes are unavailable: 1 Insufficient cpu."
    assert place([make_pod("q", "2")], rooms, 1).bindings == {("n", "q"): "a"}


def test_more_than_is_needed_is_placed_as_far_as_it_fits() -> None:
    rooms = make_rooms([make_node("a", 2)], [])
    assert len(place([make_pod(f"p{n}") for n in range(3)], rooms, 2).bindings) == 2


def test_running_pods_use_resources_and_ended_ones_free_them() -> None:
    there = make_pod("old", "2", nodeName="a")
    assert place([make_pod("new")], make_rooms([make_node("a", 2)], [there]), 1).reason
    there["status"]["phase"] = "Succeeded"
    assert place([make_pod("new")], make_rooms([make_node("a", 2)], [there]), 1).bindings


def test_cordoned_tainted_or_unselected_nodes_are_skipped() -> None:
    taint = {"key": "gpu", "effect": "NoSchedule"}
    nodes = [
        make_node("cordoned", 4, unschedulable=True),
        make_node("tainted", 4, taints=[taint]),
        make_node("other", 4),
    ]
    assert place([make_pod("p")], make_rooms(nodes, []), 1).bindings == {("n", "p"): "other"}
    tolerant = make_pod("p", tolerations=[{"key": "gpu", "operator": "Exists"}])
    tolerant["spec"]["nodeSelector"] = {"kubernetes.io/hostname": "tainted"}
    assert place([tolerant], make_rooms(nodes, []), 1).bindings == {("n", "p"): "tainted"}


def test_each_task_needs_its_own_number_of_pods() -> None:
    rooms = make_rooms([make_node("a", 2)], [])
    pods = [make_pod(f"p{n}") for n in range(3)]
    for pod, task in zip(pods, ("master", "worker", "worker"), strict=True):
        pod["metadata"]["annotations"] = {"volcano.sh/task-spec": task}
    assert place(pods, rooms, 2, {"master": 1, "worker": 1}).bindings
    rooms = make_rooms([make_node("a", 2)], [])
    assert place(pods, rooms, 2, {"master": 1, "worker": 2}).reason
    assert rooms[0].free["cpu"] == 2


def test_placement_is_bounded_by_the_queues_remaining_capability() -> None:
    rooms = make_rooms([make_node("a", 8)], [])
    allowance = {"cpu": 2.0}
    placed = place([make_pod(f"p{n}") for n in range(3)], rooms, 1, {}, allowance)
    assert len(placed.bindings) == 2
    assert allowance == {"cpu": 0.0}
    allowance = {"cpu": 2.0}
    assert place([make_pod(f"q{n}") for n in range(3)], rooms, 3, {}, allowance).reason
    assert allowance == {"cpu": 2.0}
