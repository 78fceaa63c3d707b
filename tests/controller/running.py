"""Provides a controller as a process, and an orchestrator's client for it."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import secrets
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, TypeVar

import aiohttp
from redis.asyncio import Redis

from shared.bus import BusReader, Keys
from tests import warm
from tests.controller.new_stores import new_sqlite
from tests.shared.samples import ISSUER, SIGNERS, key_set_of, make_claims

ROOT = Path(__file__).parents[2]
START_SECONDS = 90.0
STOP_SECONDS = 10.0
SIGNER = SIGNERS["EdDSA"]
BASE_DOMAIN = "apps.example.com"

T = TypeVar("T")

NOWHERE = """\
apiVersion: v1
kind: Config
current-context: c
clusters: [{name: c, cluster: {server: "http://127.0.0.1:1"}}]
contexts: [{name: c, context: {cluster: c, user: u}}]
users: [{name: u, user: {}}]
"""
"""A kubeconfig whose server refuses connections."""


async def eventually(
    look: Callable[[], Awaitable[T | None]], *, seconds: float = 20.0, what: str = ""
) -> T:
    """Return the result of *look* once it is neither None nor False."""
    began = time.monotonic()
    while True:
        found = await look()
        if found is not None and found is not False:
            return found
        waited = time.monotonic() - began
        assert waited < seconds, what or "it did not happen"
        # Polling costs both sides, so a long wait polls less often.
        await asyncio.sleep(min(max(waited / 20, 0.05), 0.2))


class Controller:
    """``python -m controller``; its store outlives it, and its log goes to a file."""

    def __init__(
        self,
        folder: Path,
        *,
        redis_url: str,
        kubeconfig: Path | None = None,
        instance: str = "test",
        roles: str = "api,reconciler",
        name: str = "controller",
        **settings: str,
    ) -> None:
        folder.mkdir(exist_ok=True)
        if kubeconfig is None:  # no cluster is used
            kubeconfig = folder / "kubeconfig.yaml"
            kubeconfig.write_text(NOWHERE)
        self.program: Sequence[str | Path] = (sys.executable, "-m", "controller")
        self.place = ROOT
        self.spawn: Callable[..., subprocess.Popen[bytes]] = warm.popen
        keys = folder / "jwks.json"
        keys.write_bytes(key_set_of(SIGNER))
        link_key = folder / "link.key"
        if not link_key.exists():
            link_key.write_text(base64.b64encode(secrets.token_bytes(32)).decode())
        self.folder = folder
        self.instance = instance
        self.name = name
        self.log = folder / f"{name}.log"
        self.settings = {
            "KUBECONFIG": str(kubeconfig),
            "FUMAROLE_INSTANCE": instance,
            "FUMAROLE_REDIS_URL": redis_url,
            "FUMAROLE_LINK_KEY_FILE": str(link_key),
            "FUMAROLE_CONTROLLER_ROLES": roles,
            "FUMAROLE_CONTROLLER_LISTEN": "127.0.0.1:0",
            "FUMAROLE_CONTROLLER_OPS_LISTEN": "127.0.0.1:0",
            "FUMAROLE_CONTROLLER_STATE_FOLDER": str(folder / "state"),
            "FUMAROLE_CONTROLLER_TOKEN_ISSUER": ISSUER,
            "FUMAROLE_CONTROLLER_TOKEN_JWKS": str(keys),
            "FUMAROLE_CONTROLLER_PUBLIC_URL": f"https://{BASE_DOMAIN}",
            "FUMAROLE_CONTROLLER_NAMESPACE": "jobs",
            "FUMAROLE_CONTROLLER_FAIR_SHARE": "off",
            # A busy machine must not look like a server that does not respond.
            "FUMAROLE_CONTROLLER_DRY_RUN_SECONDS": "10",
            "FUMAROLE_LOG_LEVEL": "INFO",
            **settings,
        }
        self._popen: subprocess.Popen[bytes] | None = None
        self.addresses: dict[str, str] = {}

    async def start(self, *, ready: bool = True) -> None:
        """Start the process, and wait until it has its addresses and is ready."""
        addresses = self.folder / f"{self.name}.addresses.json"
        addresses.unlink(missing_ok=True)
        state = self.folder / "state"
        ours = self.place == ROOT and "FUMAROLE_CONTROLLER_STORE_URL" not in self.settings
        if ours and not state.exists():
            state.mkdir(mode=0o700)
            new_sqlite(state)
        environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        environment |= self.settings | {"FUMAROLE_CONTROLLER_ADDRESS_FILE": str(addresses)}
        with self.log.open("ab") as log:
            self._popen = self.spawn(
                self.program, cwd=self.place, env=environment, stderr=log, stdout=log
            )

        async def told() -> bool:
            self._assert_runs()
            return addresses.exists()

        async def is_ready() -> bool:
            self._assert_runs()
            try:
                return await self.is_ready()
            except aiohttp.ClientError:
                return False

        await eventually(told, seconds=START_SECONDS, what="it has no addresses")
        self.addresses = json.loads(addresses.read_text())
        if ready:
            await eventually(is_ready, seconds=START_SECONDS, what="it is not ready")

    def _assert_runs(self) -> None:
        assert self._popen is not None
        assert self._popen.poll() is None, f"the controller ended\n{self.tail()}"

    @property
    def pid(self) -> int:
        """The process id; the process must run."""
        assert self._popen is not None
        return self._popen.pid

    async def is_ready(self) -> bool:
        """Return whether the controller is ready."""
        return (await self._ops("/readyz"))[0] == 200

    async def why_not_ready(self) -> list[str]:
        """Return the reasons in its readiness response."""
        reasons: list[str] = (await self._ops("/readyz"))[1]["reasons"]
        return reasons

    async def leads(self) -> bool:
        """Return whether this controller leads."""
        return "fumarole_controller_leads 1.0" in await self.metrics()

    async def metrics(self) -> str:
        """Return its Prometheus metrics."""
        url = f"http://{self.addresses['ops']}/metrics"
        async with aiohttp.ClientSession() as http, http.get(url) as response:
            return await response.text()

    async def _ops(self, path: str) -> tuple[int, Any]:
        url = f"http://{self.addresses['ops']}{path}"
        async with aiohttp.ClientSession() as http, http.get(url) as response:
            return response.status, await response.json()

    def tail(self) -> str:
        """Return the end of the log."""
        return self.log.read_text(errors="replace")[-6000:]

    async def stop(self) -> int:
        """Send SIGTERM and wait; return the exit code."""
        if self._popen is None:
            return 0
        self._popen.send_signal(signal.SIGTERM)
        try:
            return await asyncio.to_thread(self._popen.wait, STOP_SECONDS)
        except subprocess.TimeoutExpired:
            await self.kill()
            raise AssertionError(f"it did not end\n{self.tail()}") from None
        finally:
            self._popen = None

    async def kill(self) -> None:
        """Kill the process at once."""
        if self._popen is not None:
            self._popen.kill()
            await asyncio.to_thread(self._popen.wait, STOP_SECONDS)
            self._popen = None

    async def exit_code(self, seconds: float = 20.0) -> int:
        """Wait until the process ends by itself; return the exit code."""
        assert self._popen is not None
        return await asyncio.to_thread(self._popen.wait, seconds)

    # As the orchestrator

    async def call(
        self, method: str, path: str, body: Any = None, *, expect: int = 200
    ) -> dict[str, Any]:
        """Return the response's content; its status must be *expect*."""
        token = SIGNER.sign(make_claims(time.time(), aud="fumarole-controller"))
        async with (
            aiohttp.ClientSession() as http,
            http.request(
                method,
                f"http://{self.addresses['api']}{path}",
                json=body,
                headers={"Authorization": f"Bearer {token}"},
            ) as response,
        ):
            content: dict[str, Any] = await response.json()
            assert response.status == expect, (response.status, content)
            return content

    async def read(self, path: str) -> str:
        """Return a text response."""
        token = SIGNER.sign(make_claims(time.time(), aud="fumarole-controller"))
        url = f"http://{self.addresses['api']}{path}"
        headers = {"Authorization": f"Bearer {token}"}
        async with aiohttp.ClientSession() as http, http.get(url, headers=headers) as response:
            assert response.status == 200, await response.text()
            return await response.text()

    async def submit(self, job_id: str, **fields: Any) -> None:
        """Submit a job that sleeps, unless *fields* say otherwise."""
        job = {
            "id": job_id,
            "owner": {"user": "ada"},
            "image": "busybox",
            "resources": {"cpu": 0.05, "memory": "64Mi"},
            "invocation": {"command": ["sh", "-c", "trap 'exit 0' TERM; sleep 3600 & wait"]},
        }
        response = await self.call("POST", "/v1/jobs", {"items": [job | fields]})
        assert response["items"][0]["result"] == "created", response

    async def job(self, job_id: str) -> dict[str, Any]:
        """Return the job."""
        return await self.call("GET", f"/v1/jobs/{job_id}")

    async def until(self, job_id: str, *states: str, seconds: float = 30.0) -> dict[str, Any]:
        """Return the job once it is in one of the states."""

        async def look() -> dict[str, Any] | None:
            job = await self.job(job_id)
            return job if job["state"] in states else None

        what = f"{job_id} is not {states}: {{}}"
        try:
            return await eventually(look, seconds=seconds)
        except AssertionError:
            raise AssertionError(what.format(await self.job(job_id)) + self.tail()) from None

    async def open(self, job_id: str, **wanted: Any) -> str:
        """Open a session; return its sid."""
        items = [{"job": job_id, "rank": 0} | wanted]
        response = await self.call("POST", "/v1/sessions", {"items": items}, expect=201)
        sid: str = response["items"][0]["sid"]
        return sid


class Routes:
    """The routes as a gateway reads them."""

    def __init__(self, redis: Redis, instance: str) -> None:
        self.reader = BusReader(redis, Keys(instance))

    async def of(self, sid: str) -> dict[str, Any] | None:
        """Return the route of *sid*."""
        snapshot = await self.reader.snapshot()
        raw = snapshot.routes.get(sid) if snapshot is not None else None
        return None if raw is None else _unwrapped(raw)

    async def all(self) -> list[dict[str, Any]]:
        """Return all routes."""
        snapshot = await self.reader.snapshot()
        return [_unwrapped(raw) for raw in snapshot.routes.values()] if snapshot else []

    async def until(self, sid: str, state: str) -> dict[str, Any]:
        """Return the route once it is in that state."""

        async def look() -> dict[str, Any] | None:
            route = await self.of(sid)
            return route if route is not None and route["state"] == state else None

        return await eventually(look, what=f"the route is not {state}")

    async def until_gone(self, sid: str) -> None:
        """Wait until the route is gone."""

        async def look() -> bool:
            return await self.of(sid) is None

        await eventually(look, what="the route is still there")


def _unwrapped(raw: bytes) -> dict[str, Any]:
    """Return the route, unwrapped if it carries restrictions."""
    written: dict[str, Any] = json.loads(raw)
    route: dict[str, Any] = written.get("route", written)
    return route


@asynccontextmanager
async def running(controller: Controller) -> AsyncIterator[Controller]:
    """Run the controller until the block ends."""
    try:
        await controller.start()
        yield controller
    finally:
        with suppress(ProcessLookupError):
            await controller.kill()
