"""Tests files of jobs in the demo: an owner's claim exists without an operator."""

from __future__ import annotations

import time
from typing import Any

import aiohttp
import pytest

from deploy.local.orchestrator.keys import ensure_key
from deploy.local.orchestrator.tokens import Tokens
from deploy.local.system import LocalSystem
from tests.controller.running import eventually

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]

CHAIN: list[dict[str, Any]] = [
    {
        "id": "makes-files",
        "output": "/home",
        "invocation": {"command": ["sh", "-c", "mkdir -p artefacts; echo 42 > artefacts/model"]},
    },
    {
        "id": "reads-files",
        "output": "/home",
        "after": ["makes-files"],
        "parameters": {"made": {"type": "artefacts", "job": "makes-files"}},
        "invocation": {
            "command": ["sh", "-c", 'cat "$0/model"', {"parameter": "made"}],
        },
    },
]
COMMON = {"owner": {"user": "una"}, "image": "debian:12-slim", "resources": {"cpu": 0.1}}


async def test_a_job_chain_passes_its_files_in_the_demo(system: LocalSystem) -> None:
    if system.cluster is None:
        pytest.skip("what claims owners have is that cluster's own matter")
    tokens = Tokens(ensure_key(system.folder / "orchestrator"), system.address)
    headers = {"Authorization": f"Bearer {tokens.for_controller(time.time())}"}
    async with aiohttp.ClientSession(system.layout.api_url, headers=headers) as api:
        asked = {"items": [COMMON | job for job in CHAIN]}
        async with api.post("/v1/jobs", json=asked) as response:
            assert response.status == 200, await response.text()

        async def over() -> dict[str, Any] | None:
            job: dict[str, Any] = await (await api.get("/v1/jobs/reads-files")).json()
            return job if job["finished_at"] else None

        ended = await eventually(over, seconds=60, what="the chain has not ended")
        assert ended["state"] == "SUCCESS", ended
        assert await (await api.get("/v1/jobs/reads-files/logs")).text() == "42\n"
