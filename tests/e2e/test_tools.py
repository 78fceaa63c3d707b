"""Tests tools beside a training job, in a real browser, each as the docs declare it.

TensorBoard and JupyterLab are packages of this project's tests. WeTTY is installed with npm, and
its test is skipped where npm cannot install it.
"""

from __future__ import annotations

import importlib.util
import json
import os
import re
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import aiohttp
import pytest
import pytest_asyncio
import yaml
from playwright.async_api import Error, Page, expect

from controller.kube.client import Kube
from controller.kube.kinds import PODS, VCJOBS
from deploy.local import cluster_use
from deploy.local.cluster.kubelet.images import MORE_VARIABLE
from deploy.local.orchestrator.keys import ensure_key
from deploy.local.orchestrator.tokens import Tokens
from deploy.local.system import LocalSystem
from tests.apps.install import CannotInstall, apps_folder, install
from tests.apps.table import REAL_APPS, XTERM
from tests.controller.running import eventually
from tests.e2e.conftest import KUBECONFIG, Visit

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.needs("chromium"),
    pytest.mark.timeout(1800),
    pytest.mark.skipif(
        bool(KUBECONFIG), reason="images of tools have to be pulled, and a claim made"
    ),
    pytest.mark.skipif(importlib.util.find_spec("tensorboard") is None, reason="needs TensorBoard"),
    pytest.mark.long,
]

PAGE = Path(__file__).parents[2] / "docs/how-to/tools.md"
STARTS_MS = 240_000
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
}


def declared() -> dict[str, Any]:
    """Return the tools that the docs declare, adapted to this machine."""
    found = re.search(r"```yaml\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert found is not None
    file: dict[str, Any] = yaml.safe_load(found[1])
    # In the embedded cluster, a container's root has no rights outside of the container.
    file["tools"]["jupyterlab"]["command"].append("--allow-root")
    # Without shared volumes, tools have to be placed beside their rank.
    del file["shared_volumes"]
    return file


@pytest.fixture(scope="module")
def images() -> dict[str, dict[str, Any] | CannotInstall]:
    """Return the programs behind the tools' images, or the reason why one is unavailable here."""
    found = dict[str, dict[str, Any] | CannotInstall]()
    try:
        folder = install(REAL_APPS["wetty"], apps_folder()).folder
    except CannotInstall as error:
        found["wetty"] = error
    else:
        path = f"{folder / 'node_modules/.bin'}:{os.environ['PATH']}"
        found["wetty"] = {"visible": [str(folder)], "environment": {"PATH": path}}
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(
    images: Mapping[str, dict[str, Any] | CannotInstall],
    tmp_path_factory: pytest.TempPathFactory,
) -> AsyncIterator[LocalSystem]:
    """Run a system that offers these tools."""
    folder = tmp_path_factory.mktemp("tools")
    there = {name: one for name, one in images.items() if not isinstance(one, CannotInstall)}
    (folder / "images.json").write_text(json.dumps(there))
    (folder / "tools.json").write_text(json.dumps(declared()))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MORE_VARIABLE, str(folder / "images.json"))
        patch.setattr(cluster_use, "_TOOLS", folder / "tools.json")
        async with LocalSystem() as system:
            yield system


class Orchestrator:
    """Calls the controller and signs tokens, as the system's own orchestrator does."""

    def __init__(self, system: LocalSystem, http: aiohttp.ClientSession) -> None:
        layout = system.layout
        self._gateway = urlsplit(layout.gateway_url)
        self._tokens = Tokens(ensure_key(layout.folder / "orchestrator"), layout.page_url)
        self._http = http

    async def call(self, method: str, path: str, body: Any = None) -> dict[str, Any]:
        headers = {"Authorization": f"Bearer {self._tokens.for_controller(time.time())}"}
        async with self._http.request(method, path, json=body, headers=headers) as response:
            said: dict[str, Any] = await response.json()
            assert response.status < 300, said
            return said

    async def open(self, tool: str, *, job: str) -> dict[str, Any]:
        """Return a session of the tool."""
        item = {"job": job, "rank": 0, "endpoint": f"tool:{tool}"}
        said = await self.call("POST", "/v1/sessions", {"items": [item]})
        session: dict[str, Any] = said["items"][0]
        return session

    def link(self, session: Mapping[str, Any], path: str, *, user: str = "ada") -> str:
        """Return the link that opens the session for a user."""
        token = self._tokens.for_session(session, user=user, now=time.time())
        origin = f"{self._gateway.scheme}://{session['hosts'][0]}:{self._gateway.port}"
        return f"{origin}/.fumarole/open#token={token}&next={path}"


@asynccontextmanager
async def orchestrator(system: LocalSystem) -> AsyncIterator[Orchestrator]:
    async with aiohttp.ClientSession(base_url=system.layout.api_url) as http:
        yield Orchestrator(system, http)


@asynccontextmanager
async def training(system: LocalSystem, job: str, **fields: Any) -> AsyncIterator[Orchestrator]:
    """Run a training job for the block; none of its tools remain afterwards."""
    kubeconfig = system.kubeconfig_of("admin")
    async with orchestrator(system) as asked, Kube.connect(kubeconfig) as kube:
        await asked.call("POST", "/v1/jobs", {"items": [JOB | {"id": job} | fields]})
        try:
            yield asked
        finally:
            await asked.call("DELETE", f"/v1/jobs/{job}")

        async def gone() -> bool:
            left = [await kube.list(kind, labels="fumarole.dev/job") for kind in (VCJOBS, PODS)]
            names = [one["metadata"]["name"] for found in left for one in found]
            return not [name for name in names if name.startswith("t-")]

        await eventually(gone, seconds=120, what="something of a tool is left")


async def until_shown(page: Page, text: str) -> None:
    """Reload the page until it shows *text*: the tool's data may not exist at first."""

    async def look() -> bool:
        try:
            await page.reload()
            await page.wait_for_timeout(2000)
            return await page.get_by_text(text).count() > 0
        except Error:
            return False  # the page was navigating by itself

    await eventually(look, seconds=90, what=f"the page does not show {text}")


async def test_tensorboard_and_jupyterlab_beside_a_training_job(
    site: LocalSystem, visit: Visit
) -> None:
    async with training(site, "training", tools=["tensorboard"]) as asked:
        context = await visit()
        board, lab = await context.new_page(), await context.new_page()
        # The tool is still waiting: the gateway's page follows its start, and then enters by
        # itself.
        session = await asked.open("tensorboard", job="training")
        await board.goto(asked.link(session, "/"))
        await board.wait_for_url(lambda url: ".fumarole" not in url, timeout=STARTS_MS)
        await until_shown(board, "loss")
        await asked.call("POST", "/v1/jobs/training/tools", {"tool": "jupyterlab"})
        session = await asked.open("jupyterlab", job="training")
        await lab.goto(asked.link(session, "/lab"))
        await expect(lab.get_by_text("notes.txt").first).to_be_visible(timeout=STARTS_MS)
    for page in (board, lab):
        await until_shown(page, "session has ended")


async def test_two_users_of_one_tool_join_and_leave_independently(
    site: LocalSystem, visit: Visit
) -> None:
    async with training(site, "shared") as asked:
        attached = [
            await asked.call("POST", "/v1/jobs/shared/tools", {"tool": "jupyterlab"})
            for _ in range(2)
        ]
        assert len({one["attached_at"] for one in attached}) == 1
        session = await asked.open("jupyterlab", job="shared")
        users = ("ada", "bob")
        pages = {user: await (await visit()).new_page() for user in users}
        for user, page in pages.items():
            await page.goto(asked.link(session, "/lab", user=user))
        for page in pages.values():
            await expect(page.get_by_text("notes.txt").first).to_be_visible(timeout=STARTS_MS)
        await asked.call("POST", f"/v1/sessions/{session['sid']}/revoke", {"sub": "bob"})
        await until_shown(pages["bob"], "access was withdrawn")
        await until_shown(pages["ada"], "notes.txt")
        # Bob gets a session of his own. Both sessions end with the tool, not with the job.
        own = await asked.open("jupyterlab", job="shared")
        await pages["bob"].goto(asked.link(own, "/lab", user="bob"))
        await until_shown(pages["bob"], "notes.txt")
        await asked.call("DELETE", "/v1/jobs/shared/tools/jupyterlab")
        for page in pages.values():
            await until_shown(page, "session has ended")
        for one in (session, own):
            ended = await asked.call("GET", f"/v1/sessions/{one['sid']}")
            assert (ended["state"], ended["end_reason"]) == ("ended", "tool_removed")
        assert (await asked.call("GET", "/v1/jobs/shared"))["state"] == "RUNNING"


async def test_the_terminal_of_wetty_is_reached_through_its_websocket(
    site: LocalSystem, visit: Visit, images: Mapping[str, object]
) -> None:
    if isinstance(error := images["wetty"], CannotInstall):
        pytest.skip(str(error))
    async with training(site, "shell", tools=["wetty"]) as asked:
        page = await (await visit()).new_page()
        await page.goto(asked.link(await asked.open("wetty", job="shell"), "/"))
        await page.wait_for_selector(".xterm-helper-textarea", timeout=STARTS_MS)
        # WeTTY's server sends the prompt; its shell needs root, or an SSH server.
        await page.wait_for_function(f"() => ({XTERM}).trim() !== ''", timeout=STARTS_MS)
