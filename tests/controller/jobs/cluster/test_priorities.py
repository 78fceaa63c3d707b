from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from aiohttp import web

from controller.jobs.cluster import priorities
from controller.jobs.cluster.priorities import CACHED_SECONDS, PriorityValues
from tests.clock import Clock
from tests.controller.kube.api_server import Answer, Script, says, serving

HIGH = says({"metadata": {"name": "high"}, "value": 1000})
FORBIDDEN = says({"kind": "Status", "reason": "Forbidden", "code": 403, "message": "no"}, 403)


async def never(_request: web.Request) -> web.StreamResponse:
    await asyncio.sleep(60)
    raise AssertionError("the client waits for the whole time")


async def test_a_value_is_read_once_and_again_after_it_expires(tmp_path: Path) -> None:
    script, clock = Script(HIGH, says({"metadata": {"name": "high"}, "value": 2000})), Clock()
    async with serving(script, tmp_path) as kube:
        values = PriorityValues(kube, clock=clock)
        assert [await values.value_of("high") for _ in range(2)] == [1000, 1000]
        assert len(script.requests) == 1
        clock.now += CACHED_SECONDS
        assert await values.value_of("high") == 2000


@pytest.mark.parametrize("response", [FORBIDDEN, never, says({"value": "high"})])
async def test_an_unreadable_class_delays_nothing_and_is_cached(
    response: Answer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(priorities, "READ_SECONDS", 0.2)
    script = Script(response)
    async with serving(script, tmp_path) as kube:
        values = PriorityValues(kube, clock=Clock())
        assert [await values.value_of("high") for _ in range(2)] == [None, None]
    assert len(script.requests) == 1
