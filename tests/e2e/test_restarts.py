"""Tests that when a process dies, everything goes on that the process does not hold itself."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from controller.kube.client import Kube
from controller.kube.kinds import PODS, VCJOBS
from deploy.local.apps.catalogue import APPS
from deploy.local.smoke.failure import SmokeFailed
from deploy.local.smoke.gateway import Opened
from deploy.local.smoke.orchestrator import User
from deploy.local.system import LocalSystem
from tests.e2e.conftest import Visit
from tests.e2e.sessions import PATIENCE_SECONDS, one_of_each, signed_in, start
from tests.e2e.users import Person, type_in_terminal

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.timeout(240)]


async def objects(system: LocalSystem) -> dict[str, Any]:
    """Return the VolcanoJobs and pods that are not being deleted, by kind and name."""
    async with Kube.connect(system.kubeconfig_of("admin")) as kube:
        return {
            f"{kind.kind} {one['metadata']['name']}": one["metadata"]["uid"]
            for kind in (VCJOBS, PODS)
            for one in await kube.list(kind, system.job_namespace)
            if "deletionTimestamp" not in one["metadata"]
        }


async def attached(opened: Opened) -> bool | None:
    """Attach to a terminal; return whether its shell is an old one, or None if the attach fails."""
    try:
        async with opened.websocket("/.fumarole/connect", "fumarole.terminal.v1") as socket:
            said = await socket.receive_json()
    except (aiohttp.WSServerHandshakeError, TypeError):
        return None
    return bool(said["resumed"])


@pytest_asyncio.fixture(loop_scope="session", scope="module")
async def apps(system: LocalSystem, notebooks: None, shells: None) -> AsyncIterator[dict[str, str]]:
    """Run one job of ada's for each available kind of app; no restart ends these jobs."""
    names = [name for name, app in APPS.items() if system.cluster or not app.process_only]
    async with signed_in(system.address) as user:
        jobs = await asyncio.gather(*(start(user, app) for app in names))
        yield dict(zip(names, jobs, strict=True))
        for job in jobs:
            await user.stop(job)


async def test_sessions_of_all_kinds_outlive_the_controller(
    system: LocalSystem, apps: dict[str, str]
) -> None:
    async with signed_in(system.address) as user, one_of_each(user, apps) as sessions:
        before = await objects(system)
        await system.kill("controller")
        try:
            for _ in range(2):
                await asyncio.sleep(2)
                for app, session in sessions.items():
                    assert await session.held.alive(), app
        finally:
            await system.start("controller")
        # The process is back; it resumes, and takes no existing session for a new one.
        await asyncio.sleep(3)
        for app, session in sessions.items():
            assert await session.held.alive(), app
        assert await objects(system) == before
        job = await start(user, "shell")
        assert f"Job j-{job}" in await objects(system)
        await user.stop(job)


async def test_an_accepted_job_reaches_the_cluster_after_the_controller_was_killed(
    system: LocalSystem,
) -> None:
    async with signed_in(system.address) as user:
        jobs = [await user.start("shell") for _ in range(3)]
        await system.kill("controller")
        await system.start("controller")
        wanted = {f"Job j-{job}" for job in jobs}
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not wanted <= (await objects(system)).keys():
                await asyncio.sleep(0.1)
            for job in jobs:
                await user.stop(job)
            for job in jobs:
                await user.until_over(job)
        assert not [name for name in await objects(system) if any(job in name for job in jobs)]


@pytest.mark.usefixtures("shells")
async def test_a_job_submitted_just_before_the_controller_dies_is_run_once(
    system: LocalSystem,
) -> None:
    async with signed_in(system.address) as user:
        jobs = [await user.start("shell") for _ in range(5)]
        await system.kill("controller")
        await system.start("controller")
        async with asyncio.timeout(PATIENCE_SECONDS):
            for job in jobs:
                await user.until_running(job)
        mine = [name for name in await objects(system) if any(job in name for job in jobs)]
        assert len(mine) == 2 * len(jobs)
        for job in jobs:
            await user.stop(job)
        async with asyncio.timeout(PATIENCE_SECONDS):
            for job in jobs:
                await user.until_over(job)
        assert not [name for name in await objects(system) if any(job in name for job in jobs)]


@pytest.mark.usefixtures("shells")
async def test_replacing_the_controller_under_load_loses_no_job(
    system: LocalSystem, apps: dict[str, str]
) -> None:
    jobs: list[str] = []
    async with signed_in(system.address) as user, one_of_each(user, apps) as sessions:
        back = asyncio.Event()
        submitting = asyncio.create_task(keep_submitting(user, jobs, back))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while len(jobs) < 3:
                await asyncio.sleep(0.05)
        await system.stop("controller")
        assert await sessions["shell"].held.alive()
        await system.start("controller")
        back.set()
        await submitting
        async with asyncio.timeout(2 * PATIENCE_SECONDS):
            for job in jobs:
                await user.until_running(job)
        made = await objects(system)
        for job in jobs:
            assert len([name for name in made if job in name]) == 2
            await user.stop(job)
        # The hub did not restart, so the shells are the same.
        for app, session in sessions.items():
            assert await session.held.alive(), app
        async with asyncio.timeout(2 * PATIENCE_SECONDS):
            for job in jobs:
                await user.until_over(job)


async def keep_submitting(user: User, jobs: list[str], back: asyncio.Event) -> None:
    """Submit jobs into *jobs* one after another, until the controller *back* accepts one."""
    async with asyncio.timeout(2 * PATIENCE_SECONDS):
        accepted = False
        while not accepted:
            last = back.is_set()
            with suppress(SmokeFailed):  # no controller answered the orchestrator
                jobs.append(await user.start("shell"))
                accepted = last
            await asyncio.sleep(0.3)


async def test_cookies_outlive_the_gateway(system: LocalSystem, apps: dict[str, str]) -> None:
    async with signed_in(system.address) as user, one_of_each(user, apps) as sessions:
        await system.kill("gateway")
        await system.start("gateway")
        for app, session in sessions.items():
            async with await session.opened.get("/") as page:
                assert page.status == 200, app
            async with asyncio.timeout(10):
                while not session.held.socket.closed:
                    await session.held.socket.receive()
        assert await attached(sessions["shell"].opened) is True


async def test_a_terminal_gets_a_new_shell_when_its_hub_dies(
    system: LocalSystem, apps: dict[str, str]
) -> None:
    async with signed_in(system.address) as user, one_of_each(user, apps) as sessions:
        await system.kill("hub")
        await system.start("hub")
        shell = sessions["shell"]
        async with asyncio.timeout(40):
            while not shell.held.socket.closed:
                await shell.held.socket.receive()
            # The page also retries until the terminal is published anew.
            while (resumed := await attached(shell.opened)) is None:
                await asyncio.sleep(0.5)
        assert resumed is False
        for app in apps.keys() - {"shell"}:
            assert await sessions[app].held.alive(), app


@pytest.mark.needs("chromium")
async def test_a_reload_after_the_gateway_was_killed_needs_no_new_token(
    system: LocalSystem, visit: Visit, apps: dict[str, str]
) -> None:
    ada = await Person.arrive(await visit(), system.address, "ada")
    terminal = await ada.open(apps["shell"])
    await type_in_terminal(terminal, "marker=still-here; echo set", "set")
    await system.kill("gateway")
    await system.start("gateway")
    await terminal.reload()
    await type_in_terminal(terminal, "echo $marker", "still-here")
