"""Tests popular apps in jobs, in a browser, across restarts of the gateway: ``make apps``.

With ``FUMAROLE_APPS_PAGE=1``, the results go into docs/apps.md.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import os
import random
from collections.abc import AsyncIterator
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Error, Page, Response, expect

from deploy.local.cluster.kubelet.images import MORE_VARIABLE
from deploy.local.system import LocalSystem
from tests.apps.driving import LOAD_SECONDS, Responses, compute, load
from tests.apps.install import CannotInstall, Installed, apps_folder, install
from tests.apps.jobs import Jobs, orchestrating
from tests.apps.page import write_seen
from tests.apps.table import REAL_APPS, RealApp
from tests.e2e.conftest import Visit

pytestmark = [
    pytest.mark.asyncio(loop_scope="session"),
    pytest.mark.needs("chromium"),
    pytest.mark.long,
    pytest.mark.timeout(1800),
]

LARGE_BYTES = 200_000_000
LARGE_SECONDS = 600.0
SCREENSHOT_MS = 30_000


@pytest.fixture(scope="module")
def installed() -> dict[str, Installed | CannotInstall]:
    """Install every app that is available here; record the reasons for the others."""
    found: dict[str, Installed | CannotInstall] = {}
    for app in REAL_APPS.values():
        try:
            found[app.name] = install(app, apps_folder())
        except CannotInstall as error:
            found[app.name] = error
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def site(
    installed: dict[str, Installed | CannotInstall], tmp_path_factory: pytest.TempPathFactory
) -> AsyncIterator[LocalSystem]:
    """Run a system whose kubelet has an image of each app."""
    file = tmp_path_factory.mktemp("images") / "images.json"
    there = {name: one for name, one in installed.items() if isinstance(one, Installed)}
    file.write_text(json.dumps({name: one.image() for name, one in there.items()}))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(MORE_VARIABLE, str(file))
        async with LocalSystem() as system:
            yield system


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def jobs(site: LocalSystem) -> AsyncIterator[Jobs]:
    """Provide the object that starts and opens apps."""
    async with orchestrating(site) as jobs:
        yield jobs


async def restart(site: LocalSystem, *, kill: bool) -> None:
    await (site.kill if kill else site.stop)("gateway")
    await site.start("gateway")


def _tell_refusal(got: Response) -> None:
    if got.status >= 400:
        print(got.status, got.url)


async def open_app(jobs: Jobs, visit: Visit, job: str, app: RealApp) -> Page:
    page = await (await visit()).new_page()
    page.set_default_timeout(LOAD_SECONDS * 1000)
    # pytest shows it if the test fails.
    page.on("requestfailed", lambda asked: print("failed:", asked.method, asked.url, asked.failure))
    page.on("response", _tell_refusal)
    await page.goto(await jobs.link(job, app))
    return page


@pytest.mark.parametrize("name", REAL_APPS)
async def test_an_app_computes_and_continues_over_gateway_restarts(
    name: str,
    site: LocalSystem,
    jobs: Jobs,
    visit: Visit,
    installed: dict[str, Installed | CannotInstall],
    tmp_path: Path,
) -> None:
    app, found = REAL_APPS[name], installed[name]
    if isinstance(found, CannotInstall):
        pytest.skip(str(found))
    reloads = app.recovery == "works after a reload"
    async with jobs.running(app) as job:
        page = await open_app(jobs, visit, job, app)
        responses, sockets = Responses(page), list[str]()
        page.on("websocket", lambda socket: sockets.append(socket.url))
        try:
            await load(page, app)
            await compute(page, app, 7)
            await page.evaluate("globalThis.fumaroleSamePage = true")
            for number, kill in ((11, False), (13, True)):
                await responses.settled()
                before = len(sockets)
                await restart(site, kill=kill)
                if reloads:
                    await page.reload()
                    await load(page, app)
                await compute(page, app, number)
                assert app.transport != "WebSocket" or len(sockets) > before
            assert reloads or await page.evaluate("globalThis.fumaroleSamePage === true")
        except BaseException:
            print(await jobs.log(job))
            with suppress(Error):
                await page.screenshot(path=tmp_path / "failed.png", timeout=SCREENSHOT_MS)
                print(tmp_path / "failed.png")
            raise
    if os.environ.get("FUMAROLE_APPS_PAGE"):
        write_seen(app, found.version, datetime.now(UTC).strftime("%Y-%m-%d"))


async def test_a_gateway_killed_while_streamlit_loads_costs_one_reload(
    site: LocalSystem,
    jobs: Jobs,
    visit: Visit,
    installed: dict[str, Installed | CannotInstall],
) -> None:
    app = REAL_APPS["streamlit"]
    if isinstance(found := installed[app.name], CannotInstall):
        pytest.skip(str(found))
    async with jobs.running(app) as job:
        page = await open_app(jobs, visit, job, app)
        await load(page, app)
        # The HTML has arrived; scripts and the socket are still loading.
        await page.reload(wait_until="commit")
        await restart(site, kill=True)
        await page.reload()
        await load(page, app)
        await compute(page, app, 7)


async def test_jupyterlab_uploads_and_downloads_200_mb(
    jobs: Jobs, visit: Visit, tmp_path: Path
) -> None:
    app = REAL_APPS["jupyterlab"]
    content = random.Random(0).randbytes(LARGE_BYTES)
    digest = hashlib.sha256(content).hexdigest()
    (tmp_path / "large.bin").write_bytes(content)
    async with jobs.running(app) as job:
        lab = await open_app(jobs, visit, job, app)
        item = lab.locator(".jp-DirListing-item", has_text="large.bin")
        async with lab.expect_file_chooser() as choosing:
            await lab.locator('[data-jp-item-name="uploader"] jp-button').first.click()
        await (await choosing.value).set_files(tmp_path / "large.bin")
        # JupyterLab asks for confirmation of such a large file.
        await lab.locator(".jp-Dialog .jp-mod-accept", has_text="Upload").click()
        async with asyncio.timeout(LARGE_SECONDS):
            while await _size(lab, "large.bin") != LARGE_BYTES:
                await asyncio.sleep(0.5)
        await expect(item).to_be_visible(timeout=LOAD_SECONDS * 1000)
        await lab.locator(".jp-LauncherCard", has_text="Terminal").click()
        keys = lab.locator(".jp-Terminal .xterm-helper-textarea")
        await keys.focus()
        await lab.keyboard.type("sha256sum < large.bin > sum.new; mv sum.new sum.txt\n")
        async with asyncio.timeout(LARGE_SECONDS):
            while await _size(lab, "sum.txt") is None:
                await asyncio.sleep(0.5)
        said = await lab.evaluate("fetch('/files/sum.txt').then((answer) => answer.text())")
        assert said.split()[0] == digest
        await item.click(button="right")
        async with lab.expect_download(timeout=LARGE_SECONDS * 1000) as downloading:
            await lab.locator('.lm-Menu-item[data-command="filebrowser:download"]').click()
        path = await (await downloading.value).path()
        assert hashlib.sha256(path.read_bytes()).hexdigest() == digest


async def _size(lab: Page, name: str) -> object:
    request = f"fetch('/api/contents/{name}?content=0').then((a) => a.ok ? a.json() : {{}})"
    return (await lab.evaluate(request)).get("size")
