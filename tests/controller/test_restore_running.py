"""Tests the restore of an older backup while all other components keep running.

Controller, gateway, Redis, cluster, pods and the two commands are real. After the backup, jobs are
ended, removed, suspended, resumed and submitted, and rights are revoked. Then the controller stops
and its store is replaced. All of these changes must still hold.
"""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest

from controller.kube.client import Kube
from controller.kube.kinds import PODS, VCJOBS
from deploy.local.cluster import EmbeddedCluster
from shared.bus import connect
from tests.controller.postgres import Postgres, find_programs
from tests.controller.running import Controller, Routes, eventually
from tests.controller.test_backup import command
from tests.gateway.http import Answer
from tests.gateway.process import GatewayProcess
from tests.programs import RedisServer
from tests.recorded.controller_client import read_page
from tests.recorded.reopened import foreign_objects
from tests.recorded.scenario import make_foreign_objects

pytestmark = pytest.mark.timeout(600)

INSTANCE = "restored"
SECONDS = 120.0
FINAL = ("SUCCESS", "FAILURE", "EXPIRED")
LOOK_SECONDS = 0.2
# Responds with its name, and exits with 0 on SIGTERM.
APP: Final = """
import http.server, os, signal, sys
ME = f"{sys.argv[1]} {os.urandom(8).hex()}".encode()
class App(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        if self.path == "/end":
            os._exit(0)
        self.send_response(200)
        self.send_header("Content-Length", str(len(ME)))
        self.end_headers()
        self.wfile.write(ME)
    def log_message(self, *_):
        pass
signal.signal(signal.SIGTERM, lambda *_: os._exit(0))
http.server.ThreadingHTTPServer(("", 8000), App).serve_forever()
"""
# Each session's state in the store, and its fate since the backup.
SESSIONS: Final = {"kept": "stays", "shut": "stays", "closed": "stays", "removed": "removed"}


def app(job_id: str) -> dict[str, Any]:
    """Return a job that is reached at port 8000."""
    return {
        "id": job_id, "owner": {"user": "ada"}, "image": "python",
        "resources": {"cpu": 0.05, "memory": "64Mi"},
        "invocation": {"command": ["python3", "-c", APP, job_id]},
    }  # fmt: skip


@dataclass
class World:
    """All running components, and their clients."""

    controller: Controller
    gateway: GatewayProcess
    admin: Kube
    routes: Routes
    sids: dict[str, str] = field(default_factory=dict)
    cookies: dict[str, str] = field(default_factory=dict)
    jobs: dict[str, str] = field(default_factory=dict)
    """By sid."""
    seen: Counter[tuple[int, str]] = field(default_factory=Counter)

    async def call(self, method: str, path: str, body: Any = None, expect: int = 200) -> Any:
        return await self.controller.call(method, path, body, expect=expect)

    async def run(self, *job_ids: str) -> None:
        """Submit apps, and wait until they run."""
        await self.call("POST", "/v1/jobs", {"items": [app(one) for one in job_ids]})
        for one in job_ids:
            await self.controller.until(one, "RUNNING", seconds=SECONDS)

    async def enter(self, name: str, job_id: str, *, sub: str = "ada") -> None:
        """Open a session of the job, and enter it as *sub*."""
        sid = await self.controller.open(job_id, kind="web", port=8000)
        self.sids[name], self.jobs[sid] = sid, job_id
        await self.routes.until(sid, "ready")

        async def entered() -> str | None:
            response = await self.post_token(sid, sub=sub)
            assert response.status in (303, 404, 503), (response, response.body)
            return (
                response.headers["set-cookie"].partition(";")[0] if response.status == 303 else None
            )

        self.cookies[name] = await eventually(entered, seconds=SECONDS, what=self.gateway.log())

        async def answers() -> bool:
            return (await self.look(name)).status == 200

        await eventually(answers, seconds=SECONDS, what=f"{job_id} does not answer")

    async def post_token(self, sid: str, **claims: Any) -> Answer:
        claims = {"job": self.jobs[sid]} | claims
        return await self.gateway.post_token(sid, self.gateway.signer.token(sid, **claims))

    async def look(self, name: str, path: str = "/") -> Answer:
        """Return the response to the session's cookie."""
        sent = {"Cookie": self.cookies[name]}
        return await self.gateway.ask(self.sids[name], "GET", path, sent)

    async def keep_requesting(self) -> None:
        """Request the unchanged session again and again."""
        while True:
            response = await self.look("kept")
            self.seen[response.status, response.text] += 1
            await asyncio.sleep(LOOK_SECONDS)

    async def uids(self, kind: Any = VCJOBS) -> dict[str, str]:
        """Return the UIDs of the instance's objects by name, without those being deleted."""
        found = await self.admin.list(kind, labels=f"fumarole.dev/instance={INSTANCE}")
        live = [one["metadata"] for one in found if "deletionTimestamp" not in one["metadata"]]
        return {one["name"]: one["uid"] for one in live}


@asynccontextmanager
async def world_of(
    folder: Path, redis_url: str, store_url: str, *, programs: Mapping[str, Path] | None = None
) -> AsyncIterator[World]:
    """Start everything; controller and gateway come from *programs*, if given."""
    gateway = GatewayProcess(folder, redis_url, FUMAROLE_INSTANCE=INSTANCE)
    redis = connect(redis_url)
    async with EmbeddedCluster() as cluster:
        controller = Controller(
            folder / "controller", kubeconfig=cluster.kubeconfig("controller"),
            redis_url=redis_url, instance=INSTANCE,
            FUMAROLE_LINK_KEY_FILE=gateway.settings["FUMAROLE_LINK_KEY_FILE"],
            FUMAROLE_CONTROLLER_PUBLIC_URL=gateway.settings["FUMAROLE_GATEWAY_PUBLIC_URL"],
            FUMAROLE_CONTROLLER_STORE_URL=store_url,
        )  # fmt: skip
        if programs is not None:
            controller.program, controller.place = [programs["controller"]], folder
            gateway.program, gateway.place = [programs["gateway"]], folder
        try:
            async with Kube.connect(cluster.kubeconfig("admin")) as admin:
                await controller.start()
                await gateway.start()
                yield World(controller, gateway, admin, Routes(redis, INSTANCE))
        finally:
            gateway.kill()
            await controller.kill()
            await redis.aclose()


@pytest.mark.parametrize(
    ("kind", "lost"),
    [
        ("sqlite", True),
        pytest.param("sqlite", False, marks=pytest.mark.long),
        pytest.param("postgresql", False, marks=pytest.mark.needs("postgres")),
        pytest.param("postgresql", True, marks=[pytest.mark.needs("postgres"), pytest.mark.long]),
    ],
)
async def test_changes_since_the_backup_survive_its_restore(
    kind: str,
    lost: bool,
    tmp_path: Path,
    redis_server: RedisServer,
    request: pytest.FixtureRequest,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    server: Postgres | None = None
    if kind == "postgresql":
        server = request.getfixturevalue("postgres")
        url = server.new_database()
        monkeypatch.setenv("PATH", f"{find_programs()}:{os.environ['PATH']}")
    file = tmp_path / "backup"
    async with world_of(tmp_path, redis_server.url, url) as world:
        await make_foreign_objects(world.admin)
        await before_the_backup(world)
        foreign = await foreign_objects(world.admin)
        await run_command(world, "backup", file)
        await since_the_backup(world)
        looking = asyncio.create_task(world.keep_requesting())
        position = (await read_page(world.controller, "/v1/updates"))["next"]
        charged = (await read_page(world.controller, "/v1/usage"))["items"]
        vcjobs, pods = await world.uids(), await world.uids(PODS)
        assert await world.controller.stop() == 0, world.controller.tail()
        if lost:
            lose_store(world, server, tmp_path)
        await run_command(world, "restore", file)
        await start(world, twice=lost)
        await check_jobs(world, lost=lost)
        # The restored store takes "waits" for a job that is still to be submitted.
        await world.call("POST", "/v1/maintenance", {"action": "resume"})
        await check_sessions(world)
        await check_orchestrator(world, position, charged)
        # Objects may go, as a finished job's do. No object is new, and none exists twice.
        assert (await world.uids()).items() <= vcjobs.items()
        assert (await world.uids(PODS)).items() <= pods.items()
        assert not looking.done(), looking
        world.gateway.kill()  # a new gateway knows only Redis
        looking.cancel()
        await world.gateway.start()
        await check_sessions(world)
        assert [status for status, _ in world.seen] == [200], world.seen
        await end_all(world, through=position)
        assert await foreign_objects(world.admin) == foreign


async def run_command(world: World, name: str, file: Path) -> None:
    """Run one of the controller's commands, as the documentation says."""
    done = await asyncio.to_thread(command, world.controller.settings, name, str(file))
    assert done.returncode == 0, done.stderr


def lose_store(world: World, server: Postgres | None, folder: Path) -> None:
    """Remove the store: only Redis and the cluster know what happened since the backup."""
    if server is None:
        for one in folder.glob("store.db*"):
            one.unlink()
    else:
        server.drop(world.controller.settings["FUMAROLE_CONTROLLER_STORE_URL"])
        world.controller.settings["FUMAROLE_CONTROLLER_STORE_URL"] = server.new_database()


async def start(world: World, *, twice: bool) -> None:
    """Start the controller; after the loss of its store, it may end once."""
    try:
        await world.controller.start()
    except AssertionError:
        assert twice, world.controller.tail()
        await world.controller.start()


async def before_the_backup(world: World) -> None:
    await world.run("stays", "removed", "ends", "again")
    for name, job_id in SESSIONS.items():
        await world.enter(name, job_id, sub="mallory" if name == "shut" else "ada")
    await world.enter("ends", "ends")
    await world.call("POST", "/v1/maintenance", {"action": "pause", "message": "a backup"})
    await world.call("POST", "/v1/jobs", {"items": [app("waits")]})


async def since_the_backup(world: World) -> None:
    controller = world.controller
    await world.call("POST", "/v1/maintenance", {"action": "resume"})
    await controller.until("waits", "RUNNING", seconds=SECONDS)
    await world.run("later")
    await world.enter("new", "later")
    await world.call("POST", f"/v1/sessions/{world.sids['shut']}/revoke", {"sub": "mallory"})
    await world.call("DELETE", f"/v1/sessions/{world.sids['closed']}")
    await world.call("DELETE", "/v1/jobs/removed", expect=202)
    with suppress(OSError, asyncio.IncompleteReadError):
        await world.look("ends", "/end")
    await world.call("POST", "/v1/jobs/again/suspend", expect=202)
    await controller.until("again", "SUSPENDED", seconds=SECONDS)
    await world.call("POST", "/v1/jobs/again/resume", expect=202)
    for job_id, state in {"again": "RUNNING", "removed": "SUCCESS", "ends": "SUCCESS"}.items():
        await controller.until(job_id, state, seconds=SECONDS)
    for name in ("closed", "removed", "ends"):
        await world.routes.until_gone(world.sids[name])


async def check_jobs(world: World, *, lost: bool) -> None:
    """Check that every job is in its former state, though the backup knows less."""
    controller = world.controller
    assert (await world.call("GET", "/v1/maintenance"))["mode"] == "paused"

    async def is_adopted() -> bool:
        known = await world.call("GET", "/v1/jobs?limit=100")
        return "later" in {one["id"] for one in known["items"]}

    await eventually(is_adopted, seconds=SECONDS, what="what was submitted since is not known")
    for job_id, attempt in {"stays": 1, "again": 2, "waits": 1, "later": 1}.items():

        async def goes_on(job_id: str = job_id, attempt: int = attempt) -> bool:
            job = await controller.job(job_id)
            assert job["state"] not in FINAL, (job, controller.tail())
            return (job["state"], job["attempt"]) == ("RUNNING", attempt)

        await eventually(goes_on, seconds=SECONDS, what=f"{job_id} does not go on")
    assert (await controller.until("ends", *FINAL, seconds=SECONDS))["state"] == "SUCCESS"
    removed = await controller.until("removed", *FINAL, seconds=SECONDS)
    assert removed["reason"] == "lost" if lost else removed["state"] == "SUCCESS", removed


async def check_sessions(world: World) -> None:
    """Check that revoked users stay out, and that no other user does."""
    sids = world.sids
    assert (await world.look("kept")).text.startswith("stays ")
    assert (await world.look("shut")).status == 401
    past = int(time.time()) - 1800  # a one-hour token, issued before the revocation
    claims = {"sub": "mallory", "iat": past, "exp": past + 3600}
    assert (await world.post_token(sids["shut"], **claims)).status == 401
    assert (await world.post_token(sids["shut"], sub="ada")).status == 303
    for name in ("closed", "removed", "ends", "new"):
        await world.routes.until_gone(sids[name])

        async def is_gone(name: str = name) -> bool:
            refused = await world.look(name)
            return refused.status in (404, 410)

        await eventually(is_gone, what=f"the session {name!r} is still there")
        assert (await world.post_token(sids[name])).status in (404, 410)


async def check_orchestrator(world: World, told: int, charged: list[Any]) -> None:
    """Check that a reader is told to list the jobs, and that no usage is charged twice."""
    gone = await world.call("GET", f"/v1/updates?after={told}", expect=410)
    assert gone["details"]["through"] > told
    sent = await world.call("POST", "/v1/jobs", {"items": [app("later")]})
    assert sent["items"][0]["result"] == "unchanged"
    names = [(one["uid"], one["rank"], one["period"]) for one in charged]
    ledger = (await read_page(world.controller, "/v1/usage"))["items"]
    again = [(one["uid"], one["rank"], one["period"]) for one in ledger]
    assert len(set(again)) == len(again)
    known = {name: one["seconds"] for name, one in zip(names, charged, strict=True)}
    for name, one in zip(again, ledger, strict=True):
        # The restored ledger may know less of what ended since, but never enters more.
        assert known.get(name, one["seconds"]) >= one["seconds"], one


async def end_all(world: World, *, through: int) -> None:
    """Check that every job ends once, and that every second is charged once."""
    running = ("stays", "again", "waits", "later")
    for job_id in running:
        await world.call("DELETE", f"/v1/jobs/{job_id}", expect=202)
    for job_id in running:
        await world.controller.until(job_id, *FINAL, seconds=SECONDS)
    updates = (await read_page(world.controller, "/v1/updates"))["items"]
    assert min(one["id"] for one in updates) > through
    ended = Counter(one["job"] for one in updates if one["state"] in FINAL)
    assert {ended[job_id] for job_id in running} == {1}, ended
    ledger = (await read_page(world.controller, "/v1/usage"))["items"]
    finals = Counter((one["uid"], one["rank"]) for one in ledger if one["final"])
    assert set(finals.values()) == {1}, ledger
    assert {one["job"] for one in ledger if one["final"]} >= {*running, "ends"}
