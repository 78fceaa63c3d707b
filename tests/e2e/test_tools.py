"""Tools beside a training job, in a real browser: TensorBoard and JupyterLab with its files."""

from __future__ import annotations

import importlib.util
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
from playwright.async_api import Page, expect

from controller.kube.client import Kube
from controller.kube.kinds import PODS, VCJOBS, Kind
from deploy.local.orchestrator.keys import ensure_key
from deploy.local.orchestrator.tokens import Tokens
from deploy.local.system import LocalSystem
from tests.controller.running import eventually
from tests.e2e.conftest import Visit

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.needs("chromium"),
    pytest.mark.timeout(300),
    pytest.mark.long,
]

CLAIMS = Kind("v1", "persistentvolumeclaims", "PersistentVolumeClaim")
TRAIN = """
import pathlib, time
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.summary.writer.event_file_writer import EventFileWriter
writer = EventFileWriter("run")
pathlib.Path("notes.txt").write_text("written by the job")
for step in range(10_000):
    value = Summary.Value(tag="loss", simple_value=1 / (step + 1))
    writer.add_event(Event(wall_time=time.time(), step=step, summary=Summary(value=[value])))
    writer.flush()
    time.sleep(0.5)
"""
JOB: dict[str, Any] = {
    "id": "training",
    "owner": {"user": "ada"},
    "image": "python",
    "resources": {"cpu": 0.5, "memory": "512Mi"},
    "invocation": {"command": ["python3", "-c", TRAIN]},
    "output": "/home",
    "tools": ["tensorboard"],
}


class Orchestrator:
    """Calls the controller, and signs tokens, as the system's own orchestrator does."""

    def __init__(self, system: LocalSystem, http: aiohttp.ClientSession) -> None:
        layout = system.layout
        self._gateway = urlsplit(layout.gateway_url)
        self._tokens = Tokens(ensure_key(layout.folder / "orchestrator"), layout.page_url)
        self._http = http

    async def call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self._tokens.for_controller(time.time())}"}
        async with self._http.request(method, path, json=body, headers=headers) as answer:
            said: dict[str, Any] = await answer.json()
            assert answer.status < 300, said
            return said

    async def link(self, tool: str, path: str) -> str:
        """Return the address with which ada opens a tool of the job."""
        item = {"job": "training", "rank": 0, "endpoint": f"tool:{tool}"}
        said = await self.call("POST", "/v1/sessions", {"items": [item]})
        (session,) = said["items"]
        token = self._tokens.for_session(session, user="ada", now=time.time())
        origin = f"{self._gateway.scheme}://{session['hosts'][0]}:{self._gateway.port}"
        return f"{origin}/.fumarole/open#token={token}&next={path}"


@asynccontextmanager
async def orchestrator(system: LocalSystem) -> AsyncIterator[Orchestrator]:
    async with aiohttp.ClientSession(base_url=system.layout.api_url) as http:
        yield Orchestrator(system, http)


async def claim_home(kube: Kube) -> None:
    """Make the claim on which the job's files are, once it is known where it runs."""

    async def look() -> str | None:
        found = await kube.list(VCJOBS, labels="fumarole.dev/job=training")
        return found[0]["metadata"]["namespace"] if found else None

    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
    namespace = await eventually(look, seconds=60, what="the job is not submitted")
    await kube.create(CLAIMS, {"metadata": {"name": "home"}, "spec": spec}, namespace)


async def until_shown(page: Page, text: str) -> None:
    """Load the page until it shows *text*: what it reads was not there at first."""

    async def look() -> bool:
        await page.reload()
        await page.wait_for_timeout(2000)
        return await page.get_by_text(text).count() > 0

    await eventually(look, seconds=90, what=f"the page does not show {text}")


@pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="needs TensorBoard")
async def test_tensorboard_and_jupyterlab_beside_a_training_job(
    system: LocalSystem, visit: Visit
) -> None:
    if system.cluster is None:
        pytest.skip("the images of tools have to be pulled, and a claim to be made")
    kubeconfig = system.kubeconfig_of("admin")
    async with orchestrator(system) as asked, Kube.connect(kubeconfig) as kube:
        await asked.call("POST", "/v1/jobs", {"items": [JOB]})
        await claim_home(kube)
        context = await visit()
        board, lab = await context.new_page(), await context.new_page()
        # Opened while it still waits: the page follows its start, and enters by itself.
        await board.goto(await asked.link("tensorboard", "/"))
        await board.wait_for_url(lambda url: ".fumarole" not in url, timeout=120_000)
        await until_shown(board, "loss")
        await asked.call("POST", "/v1/jobs/training/tools", {"tool": "jupyterlab"})
        await lab.goto(await asked.link("jupyterlab", "/lab"))
        await expect(lab.get_by_text("notes.txt").first).to_be_visible(timeout=120_000)
        await asked.call("DELETE", "/v1/jobs/training")
        for page in (board, lab):
            await until_shown(page, "session has ended")

        async def gone() -> bool:
            of_tools = "fumarole.dev/job,fumarole.dev/job!=training"
            left = [await kube.list(kind, labels=of_tools) for kind in (VCJOBS, PODS)]
            names = [one["metadata"]["name"] for found in left for one in found]
            return not [name for name in names if name.startswith("t-")]

        await eventually(gone, seconds=60, what="something of a tool is left")
