"""Tests cluster capacity: concurrent readers share one list of the nodes."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

from controller.kube.capacity import GOOD_FOR_SECONDS, NODES_READ, Capacity
from controller.volcano.reasons.waiting import read_node
from tests.clock import Clock
from tests.controller.kube.api_server import Script, listing, says, serving

NODE = {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "4", "memory": "1Gi"}}}


async def test_concurrent_callers_share_one_node_list(tmp_path: Path, clock: Clock) -> None:
    script = Script(listing(NODE, version="1"), says({}, 500))
    async with serving(script, tmp_path) as kube:
        capacity = Capacity(kube, gpu_resources=frozenset(), clock=clock)
        found = await asyncio.gather(*(capacity() for _ in range(9)))
        assert [one.cpu for one in found if one is not None] == [4.0] * 9
        assert len(script.requests) == 1
        clock.now += GOOD_FOR_SECONDS
        assert await asyncio.gather(*(capacity() for _ in range(9))) == [None] * 9
        assert len(script.requests) == 2


def test_nodes_are_read_without_their_images() -> None:
    node = {
        "metadata": {"name": "n1", "labels": {"gpu": "a100"}, "managedFields": [{}]},
        "spec": {"podCIDR": "10.0.0.0/24", "taints": None},
        "status": {
            "allocatable": {"cpu": "3920m", "memory": "16393216Ki", "nvidia.com/gpu": "8"},
            "conditions": [{"type": "Ready", "status": "True", "message": "kubelet is posting"}],
            "images": [{"names": ["registry.example.com/a"], "sizeBytes": 10**9}] * 50,
        },
    }
    text = json.dumps(node).encode()
    kept = NODES_READ.decode(text)
    assert read_node(kept) == read_node(node)
    assert len(json.dumps(kept)) < len(text) / 10
    assert read_node(NODES_READ.decode(text.replace(b"3920m", b"1"))) != read_node(node)
    cordoned = text.replace(b'"podCIDR": "10.0.0.0/24"', b'"unschedulable": true')
    assert read_node(NODES_READ.decode(cordoned)) is None
