"""A site for chaos runs: a controller, two gateways, jobs that echo their names, visitors."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field
from functools import reduce
from operator import xor
from pathlib import Path
from typing import Any

import aiohttp

from deploy.local.cluster import EmbeddedCluster
from shared.bus import BusReader, Snapshot
from shared.errors import BusUnavailable
from shared.routes.route import digest
from tests.controller.running import Controller, eventually
from tests.gateway.http import Answer
from tests.gateway.process import GatewayProcess

PORT = 18080
JOBS = ("red", "green", "blue")
LOOK_SECONDS = 0.1
PROGRAM = """
import http.server, signal, sys
class Who(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_GET(self):
        body = sys.argv[1].encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *_):
        pass
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
http.server.ThreadingHTTPServer(("", 8000), Who).serve_forever()
"""


@dataclass
class VisitedSession:
    """A session that a visitor requests all the time, and whether it should be served."""

    sid: str
    job: str
    cookie: str
    good: bool = True


@dataclass
class Findings:
    """The visitors' observations since the last fault."""

    answers: int = 0
    wrong: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    opened: dict[str, int] = field(default_factory=dict)

    @property
    def twice(self) -> list[str]:
        """The tokens that were accepted more than once."""
        return [jti for jti, times in self.opened.items() if times > 1]


class Site:
    """All processes and visitors of the site."""

    def __init__(self, controllers: list[Controller], gateways: list[GatewayProcess]) -> None:
        self.controllers = controllers
        self.controller = controllers[0]
        """The one that is called."""
        self.gateways = gateways
        self.visits: list[VisitedSession] = []
        self.findings = Findings()
        self.stopped: set[GatewayProcess] = set()

    # What visitors do

    async def enter(self, job: str) -> VisitedSession:
        """Open a session of *job* at one gateway; its users visit both gateways."""
        sid = await self.controller.open(job, kind="web", port=8000)
        await self._until_ready(sid)
        response = await eventually(lambda: self._opened(sid, job), what=f"{sid} cannot be opened")
        visit = VisitedSession(sid, job, response.headers["set-cookie"].partition(";")[0])
        # A running job may not listen yet.
        await eventually(lambda: self._answers(visit), what=f"{job} does not answer")
        self.visits.append(visit)
        return visit

    async def _answers(self, visit: VisitedSession) -> bool:
        return await self.status(self.gateways[0], visit) == 200

    async def _opened(self, sid: str, job: str) -> Answer | None:
        """Return the response to a new token, or None if the gateway asks for another token.

        After Redis lost data, the gateway refuses tokens of the last ten seconds, because nobody
        knows
        whether they were used.
        """
        response = await self._post(self.gateways[0], sid, *self.token(sid, job))
        assert response.status in (303, 503), (response.status, response.body)
        return response if response.status == 303 else None

    def token(self, sid: str, job: str) -> tuple[str, str]:
        """Return a token for the session, and its jti."""
        jti = os.urandom(8).hex()
        return self.gateways[0].signer.token(sid, job=job, jti=jti), jti

    async def _until_ready(self, sid: str) -> None:
        async def ready() -> bool:
            hosts = [await one.ask_ops(f"/debug/routes?host={one.host(sid).split(':')[0]}")
                     for one in self.gateways]  # fmt: skip
            return all('"state": "ready"' in one.text for one in hosts)

        await eventually(ready, seconds=30.0, what=f"{sid} is not ready")

    async def _post(self, gateway: GatewayProcess, sid: str, token: str, jti: str) -> Answer:
        response = await gateway.post_token(sid, token)
        if response.status == 303:
            self.findings.opened[jti] = self.findings.opened.get(jti, 0) + 1
        return response

    async def try_everywhere(self, sid: str, token: str, jti: str) -> None:
        """Present the token once more, at every gateway at the same time."""
        tries = [self._post(one, sid, token, jti) for one in self.gateways for _ in range(2)]
        await asyncio.gather(*tries, return_exceptions=True)

    async def leave(self, visit: VisitedSession) -> None:
        """End the session."""
        visit.good = False
        await self.controller.call("DELETE", f"/v1/sessions/{visit.sid}")

    async def shut_out(self, visit: VisitedSession) -> None:
        """Revoke all users' grants."""
        visit.good = False
        await self.controller.call("POST", f"/v1/sessions/{visit.sid}/revoke", {})

    # Observation

    async def look(self, gateway: GatewayProcess) -> None:
        """Request every session again and again, as long as the site runs."""
        while True:
            for visit in list(self.visits):
                good = visit.good
                try:
                    response = await gateway.ask(visit.sid, "GET", "/", {"Cookie": visit.cookie})
                except (OSError, TimeoutError, asyncio.IncompleteReadError) as error:
                    # The connection of a grant that has just ended is reset.
                    if good and visit.good and gateway not in self.stopped:
                        self.findings.refused.append(f"{visit.sid}: {type(error).__name__}")
                    continue
                self._note(visit, response, good=good and visit.good)
            await asyncio.sleep(LOOK_SECONDS)

    def _note(self, visit: VisitedSession, answer: Answer, *, good: bool) -> None:
        self.findings.answers += 1
        if answer.status == 200 and answer.text != visit.job:
            self.findings.wrong.append(f"{visit.sid}: {answer.text}")
        if good and answer.status != 200:
            self.findings.refused.append(f"{visit.sid}: {answer.status} {answer.text[:200]}")

    async def status(self, gateway: GatewayProcess, visit: VisitedSession) -> int:
        """Return the current status for the visit."""
        return (await gateway.ask(visit.sid, "GET", "/", {"Cookie": visit.cookie})).status

    # Agreement

    async def positions(self) -> list[tuple[Any, ...]]:
        """Return epoch, seq and hash of the controller, the gateways and their workers."""
        found = [await self._controller_position()]
        for gateway in self.gateways:
            one = json.loads((await gateway.ask_ops("/debug/routes")).text)
            found += [
                (each.get("epoch"), each.get("seq"), each.get("hash"))
                for each in (one, *one.get("workers", ()))
            ]
        return found

    async def _controller_position(self) -> tuple[Any, ...]:
        url = f"http://{self.controller.addresses['ops']}/debug/routes"
        async with aiohttp.ClientSession() as client, client.get(url) as response:
            one = await response.json()
        published = one["published"] and not one["changed_jobs"]
        return (one["epoch"] if published else "not published", one["seq"], one["hash"])

    async def until_equal(self, since: float, reader: BusReader) -> float:
        """Return how long after *since* the processes and Redis were equal for the first time.

        The time is the start of the look that found them equal, because a look is slow on a busy
        machine.
        """
        async with asyncio.timeout(30):
            while True:
                began = time.monotonic()
                with suppress(OSError, aiohttp.ClientError, TimeoutError, BusUnavailable):
                    found = set(await self.positions())
                    snapshot = await reader.snapshot()
                    if len(found) == 1 and snapshot is not None and found == {_position(snapshot)}:
                        return max(0.0, began - since)
                await asyncio.sleep(0.02)

    def stop_gateway(self, gateway: GatewayProcess) -> None:
        """Stop all processes of a gateway with SIGSTOP."""
        self.stopped.add(gateway)
        self._signal(gateway, signal.SIGSTOP)

    def go_on(self, gateway: GatewayProcess) -> None:
        """Continue the stopped processes."""
        self._signal(gateway, signal.SIGCONT)

    def _signal(self, gateway: GatewayProcess, number: signal.Signals) -> None:
        assert gateway._process is not None
        for pid in _family(gateway._process.pid):
            os.kill(pid, number)


def _family(pid: int) -> list[int]:
    """Return a process and its descendants: workers are children of the supervisor's child."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    return [pid, *(one for child in children for one in _family(int(child)))]


def _position(snapshot: Snapshot) -> tuple[Any, ...]:
    shares = [digest(sid, raw) for sid, raw in snapshot.routes.items()]
    whole = reduce(xor, shares, 0)
    return snapshot.head.epoch, snapshot.head.seq, f"{whole:016x}"


@asynccontextmanager
async def site(
    folder: Path,
    *,
    redis_urls: Sequence[str],
    gateway_url: str,
    workers: int,
    store_url: str | None = None,
) -> AsyncIterator[Site]:
    """Start everything: one controller for each of *redis_urls*, its URL of the Redis.

    Args:
        folder: Holds all files.
        redis_urls: Two or more of them need a store that several controllers can use.
        gateway_url: The gateways' URL of the Redis.
        workers: The number of workers of each gateway.
        store_url: The controllers' store; None for a file of the only controller's own.
    """
    async with EmbeddedCluster() as cluster:
        instance = f"c{os.getpid()}x{int(time.time() * 1000) % 10**6}"
        store = {} if store_url is None else {"FUMAROLE_CONTROLLER_STORE_URL": store_url}
        controllers = [
            Controller(
                folder / "controller",
                kubeconfig=cluster.kubeconfig("controller"),
                redis_url=redis_url,
                instance=instance,
                name=f"c{number}",
                FUMAROLE_CONTROLLER_PUBLIC_URL=f"http://apps.localhost:{PORT}",
                **store,
            )
            for number, redis_url in enumerate(redis_urls)
        ]
        controller = controllers[0]
        gateways = _make_gateways(folder, controller, instance, gateway_url, workers)
        one = Site(controllers, gateways)
        try:
            await asyncio.gather(
                *(each.start() for each in controllers), *(each.start() for each in gateways)
            )
            await asyncio.gather(*(_submit(controller, job) for job in JOBS))
            yield one
        finally:
            for gateway in gateways:
                with suppress(ProcessLookupError, FileNotFoundError, AssertionError):
                    one.go_on(gateway)
                gateway.kill()
            for each in controllers:
                await each.kill()


async def _submit(controller: Controller, job: str) -> None:
    command = ["python3", "-c", PROGRAM, job]
    await controller.submit(job, image="python", invocation={"command": command})
    await controller.until(job, "RUNNING", seconds=60)


def _make_gateways(
    folder: Path, controller: Controller, instance: str, url: str, workers: int
) -> list[GatewayProcess]:
    made: list[GatewayProcess] = []
    for name in ("one", "two"):
        (folder / name).mkdir()
        shared = {
            "FUMAROLE_INSTANCE": instance,
            "FUMAROLE_LINK_KEY_FILE": controller.settings["FUMAROLE_LINK_KEY_FILE"],
            "FUMAROLE_GATEWAY_WORKERS": str(workers),
        }
        if made:
            for setting in ("FUMAROLE_GATEWAY_GRANT_KEY_FILE", "FUMAROLE_GATEWAY_TOKEN_JWKS"):
                shared[setting] = made[0].settings[setting]
        gateway = GatewayProcess(folder / name, url, **shared)
        if made:
            gateway.signer = made[0].signer
        made.append(gateway)
    return made
