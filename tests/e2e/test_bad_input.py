"""Tests bad input to the running controller: a clear response, and no object created."""

from __future__ import annotations

import io
import json
import time
from collections.abc import AsyncIterator
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from controller.kube.client import Kube
from controller.kube.kinds import VCJOBS
from deploy.local.orchestrator.keys import ensure_key
from deploy.local.orchestrator.tokens import Tokens
from deploy.local.system import LocalSystem

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(120)]

GOOD: dict[str, Any] = {
    "id": "bad-input",
    "owner": {"user": "ada"},
    "image": "shell",
    "resources": {"cpu": 1, "memory": "64Mi"},
    "invocation": {"command": ["sleep", "60"]},
}


@pytest_asyncio.fixture(loop_scope="session")
async def api(system: LocalSystem) -> AsyncIterator[aiohttp.ClientSession]:
    """Provide a client that calls the controller as the orchestrator."""
    tokens = Tokens(ensure_key(system.folder / "orchestrator"), system.address)
    headers = {"Authorization": f"Bearer {tokens.for_controller(time.time())}"}
    url = f"http://127.0.0.1:{system.layout.ports['api']}"
    async with aiohttp.ClientSession(url, headers=headers) as session:
        yield session


async def vcjobs(system: LocalSystem) -> set[str]:
    async with Kube.connect(system.kubeconfig_of("admin")) as kube:
        return {job["metadata"]["uid"] for job in await kube.list(VCJOBS, system.job_namespace)}


def body(**changes: Any) -> bytes:
    return json.dumps({"mode": "atomic", "items": [GOOD | changes]}).encode()


@pytest.mark.parametrize(
    ("data", "named"),
    [
        (body(colour="red"), ["colour"]),
        (body(replicas=-1), ["replicas"]),
        (body(replicas="two"), ["replicas"]),
        (body(resources={"cpu": "much", "memory": 5.5, "disk": 1}), ["cpu", "memory", "disk"]),
        (body(id="Not_A_Name"), ["id"]),
        (body(id="x" * 41), ["id"]),
        (body(image=""), ["image"]),
        (body(owner={}), ["owner"]),
        (body(invocation={"command": "sleep 60"}), ["command"]),
        (body(interactive={"a": {"kind": "ssh", "port": 0}}), ["kind", "port"]),
        (b'{"items":[]}', ["items"]),
        (b'{"mode":"maybe","items":[{}]}', ["mode"]),
        (b"[]", []),
        (b"{", []),
        (b"", []),
        (b"\xff\xfe", []),
        (b'{"mode":"atomic","mode":"atomic","items":[]}', []),
        (b"[" * 50_000, []),
    ],
)
async def test_a_bad_job_is_refused_with_its_errors_and_not_created(
    system: LocalSystem, api: aiohttp.ClientSession, data: bytes, named: list[str]
) -> None:
    before = await vcjobs(system)
    headers = {"Content-Type": "application/json"}
    async with api.post("/v1/jobs", data=data, headers=headers) as response:
        assert 400 <= response.status < 500, await response.text()
        error = await response.json()
    assert error["code"]
    assert error["message"]
    for name in named:
        assert name in json.dumps(error.get("details", error["message"])), error
    assert await vcjobs(system) <= before
    async with api.get("/v1/jobs/bad-input") as response:
        assert response.status == 404


async def test_a_body_of_ten_megabytes_is_413(
    system: LocalSystem, api: aiohttp.ClientSession
) -> None:
    before = await vcjobs(system)
    data = io.BytesIO(body(labels={"x": "y" * 10_000_000}))
    async with api.post(
        "/v1/jobs", data=data, headers={"Content-Type": "application/json"}
    ) as response:
        assert response.status == 413
        assert (await response.json())["code"]
    assert await vcjobs(system) <= before


async def test_only_the_orchestrator_may_call_the_api(system: LocalSystem) -> None:
    url = f"http://127.0.0.1:{system.layout.ports['api']}"
    tokens = Tokens(ensure_key(system.folder / "orchestrator"), system.address)
    session = {"sid": "a" * 26, "job": "j", "rank": 0, "kind": "web"}
    for_gateway = tokens.for_session(session, user="ada", now=time.time())
    old = tokens.for_controller(time.time() - 3600)
    async with aiohttp.ClientSession(url) as stranger:
        for token in ("", "x", for_gateway, old):
            headers = {"Authorization": f"Bearer {token}"} if token else {}
            async with stranger.get("/v1/jobs", headers=headers) as response:
                assert response.status == 401
                assert set(await response.json()) >= {"code", "message"}
