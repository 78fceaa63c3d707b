"""Many ask what there is: the cluster is asked once for all of them."""

from __future__ import annotations

import asyncio
from pathlib import Path

from controller.kube.capacity import GOOD_FOR_SECONDS, Capacity
from tests.controller.conftest import Clock
from tests.controller.kube.api_server import Script, listing, says, serving

NODE = {"metadata": {"name": "n1"}, "status": {"allocatable": {"cpu": "4", "memory": "1Gi"}}}


async def test_nodes_are_listed_once_for_all_who_ask(tmp_path: Path, clock: Clock) -> None:
    script = Script(listing(NODE, version="1"), says({}, 500))
    async with serving(script, tmp_path) as kube:
        capacity = Capacity(kube, gpu_resources=frozenset(), clock=clock)
        found = await asyncio.gather(*(capacity() for _ in range(9)))
        assert [one.cpu for one in found if one is not None] == [4.0] * 9
        assert len(script.requests) == 1
        clock.now += GOOD_FOR_SECONDS
        assert await asyncio.gather(*(capacity() for _ in range(9))) == [None] * 9
        assert len(script.requests) == 2
