"""Tests the order of admission, and a Queue's limits."""

from __future__ import annotations

from typing import Any

import pytest

from deploy.local.cluster.volcano.pods import requests
from deploy.local.cluster.volcano.rooms import Room
from deploy.local.cluster.volcano.shares import Shares

Object = dict[str, Any]


def make_queue(name: str, *, state: str = "Open", **spec: Any) -> Object:
    """Return a Queue."""
    return {"metadata": {"name": name}, "spec": spec, "status": {"state": state}}


def make_group(name: str, queue: str, cpu: str = "1", phase: str = "Pending") -> Object:
    """Return a PodGroup that needs *cpu*; its name is its age."""
    metadata = {"name": name, "namespace": "n", "creationTimestamp": name}
    spec = {"queue": queue, "minResources": {"cpu": cpu}}
    return {"metadata": metadata, "spec": spec, "status": {"phase": phase}}


def make_pod(cpu: str, *, bound: bool = True, phase: str = "Running") -> Object:
    """Return a pod of a group."""
    spec: Object = {"containers": [{"resources": {"requests": {"cpu": cpu}}}]}
    if bound:
        spec["nodeName"] = "node"
    return {"metadata": {"name": "p", "namespace": "n"}, "spec": spec, "status": {"phase": phase}}


def make_rooms(cpu: float) -> list[Room]:
    """Return one node with this free room."""
    return [Room("node", {}, [], {"cpu": cpu})]


def admitted_groups(shares: Shares, rooms: list[Room]) -> list[str]:
    """Return the names of the admitted groups, in order."""
    names = []
    for group in shares.in_turn():
        pending = group["status"]["phase"] == "Pending"
        if pending and not shares.reason_to_wait(group, rooms):
            shares.let_in(group)
            names.append(group["metadata"]["name"])
    return names


def test_queues_take_turns_by_weight() -> None:
    queues = [make_queue("a", weight=1), make_queue("b", weight=2)]
    groups = [make_group(f"{q}{n}", q) for q in "ab" for n in range(4)]
    rooms = make_rooms(6.0)
    assert admitted_groups(Shares(queues, groups, {}, rooms), rooms) == [
        "a0",
        "b0",
        "b1",
        "a1",
        "b2",
        "b3",
    ]


def test_a_queue_with_high_usage_is_scheduled_later() -> None:
    queues = [make_queue("a"), make_queue("b")]
    groups = [make_group("a0", "a", phase="Running"), make_group("a1", "a"), make_group("b0", "b")]
    rooms = make_rooms(1.0)
    members = {("n", "a0"): [make_pod("1")]}
    assert admitted_groups(Shares(queues, groups, members, rooms), rooms) == ["b0"]


def test_an_unschedulable_group_does_not_block_others() -> None:
    wants = make_group("0", "a", phase="Inqueue")
    wants["spec"]["minResources"]["nvidia.com/gpu"] = "64"
    groups, rooms = [wants, make_group("1", "a"), make_group("2", "b")], make_rooms(8.0)
    queues = [make_queue("a"), make_queue("b")]
    assert admitted_groups(Shares(queues, groups, {}, rooms), rooms) == ["2", "1"]


def test_an_admitted_group_counts_before_its_pods_exist() -> None:
    queues = [make_queue("a", capability={"cpu": "2"}), make_queue("b")]
    groups = [make_group("0", "a", phase="Inqueue"), *(make_group(n, "a") for n in "12")]
    rooms = make_rooms(8.0)
    assert admitted_groups(Shares(queues, groups, {}, rooms), rooms) == ["1"]
    full = make_rooms(1.0)
    elsewhere = [groups[0], make_group("3", "b")]
    reason = Shares(queues, elsewhere, {}, full).reason_to_wait(elsewhere[1], full)
    assert "overused" in reason


def test_a_recreated_group_is_not_blocked_by_its_own_pods() -> None:
    group = make_group("g", "a", cpu="2")
    rooms = make_rooms(1.0)
    queue = make_queue("a", capability={"cpu": "2"})
    shares = Shares([queue], [group], {("n", "g"): [make_pod("1")]}, rooms)
    assert shares.reason_to_wait(group, rooms) == ""
    assert shares.reason_to_wait(group, make_rooms(0.5)) != ""


@pytest.mark.parametrize("state", ["Closed", "Closing", ""])
def test_only_an_open_queue_admits_groups(state: str) -> None:
    group = make_group("g", "a")
    shares = Shares([make_queue("a", state=state)], [group], {}, make_rooms(9.0))
    assert shares.reason_to_wait(group, make_rooms(9.0)) == "queue a is not open"


def test_a_limit_on_another_resource_blocks_no_group() -> None:
    group = make_group("g", "a")
    shares = Shares(
        [make_queue("a", capability={"nvidia.com/gpu": "0"})], [group], {}, make_rooms(9.0)
    )
    assert shares.reason_to_wait(group, make_rooms(9.0)) == ""


def test_a_queue_reports_allocated_and_remaining_resources() -> None:
    group = make_group("g", "a", phase="Running")
    pods = [make_pod("500m"), make_pod("1", bound=False), make_pod("2", phase="Succeeded")]
    queue = make_queue("a", capability={"cpu": "4"})
    shares = Shares([queue], [group], {("n", "g"): pods}, make_rooms(9.0))
    assert list(shares.statuses()) == [
        ("a", {"allocated": {"cpu": "500m", "memory": "0", "pods": "1"}, "reservation": {}})
    ]
    assert shares.allowance(group) == {"cpu": 3.5}


def test_init_containers_count_by_maximum_with_containers() -> None:
    def container(cpu: str) -> Object:
        return {"resources": {"requests": {"cpu": cpu}}}

    spec = {"containers": [container("1"), container("1")], "overhead": {"cpu": "500m"}}
    assert requests({**spec, "initContainers": [container("1500m")]}) == {"cpu": 2.5}
    assert requests({**spec, "initContainers": [container("3"), container("2")]}) == {"cpu": 3.5}
