"""Provides a plugin that fails as its jobs' names tell it, installed as a package."""

from __future__ import annotations

from pathlib import Path

NAME = "faulty"
SOURCE = '''
import asyncio
import time

from controller.plugin_api import JobPlugin, JobRejected, Problem


class Huge(dict):
    pass


async def fault(kind):
    if kind == "raises":
        raise ZeroDivisionError("x" * 100_000)
    if kind == "rejects":
        raise JobRejected([Problem("image", "too old")])
    if kind == "exits":
        raise SystemExit(3)
    if kind == "hangs":
        await asyncio.Event().wait()
    if kind == "blocks":
        time.sleep(3600)
    if kind == "threads":
        await asyncio.to_thread(time.sleep, 3600)
    if kind == "slow":
        await asyncio.sleep(0.6)
    return {"wrong": "soon", "huge": 10**400}.get(kind)


class Faulty(JobPlugin):
    """A job called <hook>-<fault>-<anything> fails so in that hook."""

    name = "faulty"
    api_version = "1.0"
    # It needs nothing of the pods and is needed by nothing: all others come after it.
    before = ("task",)

    async def _in(self, hook, job_id):
        parts = job_id.split("-")
        if parts[0] == hook:
            return await fault(parts[1])

    async def on_create(self, job, builder):
        if builder.accepted_in is None:
            return
        found = await self._in("create", job.id)
        if found is not None:
            builder.companions.append(found)

    async def on_job_start(self, job_id, job_from_server):
        found = await self._in("start", job_id)
        return time.time() if found is None and job_id.startswith("monitor-") else found

    async def on_job_complete(self, job_id, job_from_server):
        return await self._in("complete", job_id)

    async def on_job_monitoring(self, job_batch):
        again = {}
        for one in job_batch:
            found = await self._in("monitor", one.job.id)
            if isinstance(found, str):
                return found
            again[one.job.id] = found or time.time() + 1
        return again

    async def on_cleanup(self, job_id):
        return await self._in("cleanup", job_id)
'''


def install_faulty(folder: Path) -> dict[str, str]:
    """Install the plugin in *folder* and return the settings of a controller that runs it."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "faulty.py").write_text(SOURCE)
    about = folder / "faulty-1.0.dist-info"
    about.mkdir()
    (about / "METADATA").write_text("Metadata-Version: 2.1\nName: faulty\nVersion: 1\n")
    (about / "entry_points.txt").write_text("[fumarole.plugins]\nfaulty = faulty:Faulty\n")
    return {"PYTHONPATH": str(folder), "FUMAROLE_CONTROLLER_EXTRA_PLUGINS": NAME}
