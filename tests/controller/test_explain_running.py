"""Tests explanations in a running system: the first sentence names each injected fault."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import AsyncIterator
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import pytest
import pytest_asyncio
from redis.asyncio import Redis

from deploy.local.cluster import EmbeddedCluster
from deploy.local.redis import redis_program
from shared.bus import BusReader, Keys, ReportWriter, connect
from shared.errors import BusUnavailable
from shared.reports import Failure, GatewayReport, encode_report
from tests import warm
from tests.controller.running import BASE_DOMAIN, ROOT, SIGNER, Controller, eventually, running
from tests.programs import RedisServer
from tests.shared.samples import SIGNERS, make_claims

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(240)]

PORT = 8000
INTERACTIVE = {"interactive": {"app": {"kind": "web", "port": PORT}}}
APP = """
import http.server, signal, sys
class App(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(int(sys.argv[1]))
        self.end_headers()
signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
http.server.ThreadingHTTPServer(("", 8000), App).serve_forever()
"""
SLEEP = ["sh", "-c", "trap 'exit 0' TERM; sleep 3600 & wait"]


def python(program: str, *arguments: str) -> dict[str, Any]:
    return {
        "image": "python",
        "invocation": {"command": ["python3", "-c", program, *arguments]},
        **INTERACTIVE,
    }


JOBS: dict[str, dict[str, Any]] = {
    "good": python(APP, "200"),
    "fails": python(APP, "500"),
    "closed": {"image": "busybox", "invocation": {"command": SLEEP}, **INTERACTIVE},
    "typo": {"image": "no-such-image", "invocation": {"command": SLEEP}},
    "crashes": {
        "image": "busybox",
        "invocation": {"command": ["sh", "-c", "sleep 1; exit 3"]},
        "policies": [{"event": "PodFailed", "action": "RestartJob"}],
        "max_retry": 60,
    },
}


GREEDY = {"image": "busybox", "invocation": {"command": SLEEP}, "resources": {"gpu": 64}}


@dataclass
class World:
    """The running system, and its sessions by the names of their jobs."""

    cluster: EmbeddedCluster
    controller: Controller
    hub: Controller
    redis_server: RedisServer
    redis: Redis
    keys: Keys
    sids: dict[str, str]
    report: dict[str, Any]
    """What the gateway's next reports say other than that all is well."""

    async def report_once(self) -> None:
        head = await BusReader(self.redis, self.keys).head()
        if head is None:
            return
        report: dict[str, Any] = {"at": time.time(), "epoch": head.epoch, "seq": head.seq}
        report |= {"version": "1", "lag_seconds": 0.0, "failing": {}}
        raw = encode_report(GatewayReport(**report | self.report))
        await ReportWriter(self.redis, self.keys, "gateway-1").write(raw)

    async def keep_reporting(self) -> None:
        while True:
            with suppress(BusUnavailable):
                await self.report_once()
            await asyncio.sleep(0.5)

    async def explain(self, query: str) -> dict[str, Any]:
        body = await self.controller.call("GET", f"/v1/explain?{query}")
        assert body["sentence"]
        return body

    async def with_token(self, token: str, **given: Any) -> dict[str, Any]:
        return await self.controller.call("POST", "/v1/explain", {"token": token} | given)

    def token(self, job: str = "good", *, now: float | None = None, **claims: Any) -> str:
        given: dict[str, Any] = {"sid": self.sids[job], "job": job, "jti": "t-fresh"}
        return SIGNER.sign(make_claims(now, **given | claims))


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def world(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[World]:
    folder = tmp_path_factory.mktemp("explained")
    with RedisServer(redis_program(), tmp_path_factory.mktemp("redis")) as server:
        async with EmbeddedCluster() as cluster:
            given: dict[str, Any] = {
                "kubeconfig": cluster.kubeconfig("controller"),
                "redis_url": server.url,
                "FUMAROLE_CONTROLLER_HUB_LISTEN": "127.0.0.1:0",
            }
            controller = Controller(folder / "one", instance="explained", **given)
            hub = Controller(folder / "one", instance="explained", roles="hub", name="hub", **given)
            redis = connect(server.url)
            async with running(controller), running(hub):
                sids: dict[str, str] = {}
                for name, job in JOBS.items():
                    await controller.submit(name, **job)
                    kind: dict[str, Any] = {"kind": "terminal"}
                    if "interactive" in job:
                        kind = {"endpoint": "app"}
                    sids[name] = await controller.open(name, **kind)
                sids["shell"] = await controller.open("good", kind="terminal")
                one = World(cluster, controller, hub, server, redis, Keys("explained"), sids, {})
                reporting = asyncio.create_task(one.keep_reporting())
                try:
                    await until(one, f"sid={sids['good']}", None)
                    yield one
                finally:
                    reporting.cancel()
            await redis.aclose()


async def until(world: World, query: str, cause: str | None) -> dict[str, Any]:
    """Return the explanation once it names *cause*; until then the job is on its way there."""
    last: dict[str, Any] = {}

    async def look() -> dict[str, Any] | None:
        last.clear()
        last.update(await world.explain(query))
        # Without a fault, every finding is good: the route has a target.
        is_so = last["cause"] == cause and (cause or all(one["ok"] for one in last["findings"]))
        return last if is_so else None

    try:
        return await eventually(look, seconds=90)
    except AssertionError:
        raise AssertionError(f"{cause} was not named: {json.dumps(last, indent=1)}") from None


async def test_each_successful_step_reports_what_it_observed_and_when(world: World) -> None:
    explanation = await until(world, f"sid={world.sids['good']}", None)
    assert explanation["sentence"] == "No step fails."
    steps = [one["step"] for one in explanation["findings"]]
    assert steps == ["job", "route", "gateways", "pod", "port", "probe"]
    assert all(one["ok"] and abs(time.time() - one["at"]) < 60 for one in explanation["findings"])
    assert explanation["findings"][-1]["seen"] == "The app responds with 200"
    good = await world.with_token(world.token())
    assert (good["cause"], good["findings"][0]["step"]) == (None, "token")


# Each fault: the wrong token or the injected fault, and the sentence that names it.


async def test_an_unusable_token_is_explained(world: World) -> None:
    now, sid = time.time(), world.sids["good"]
    forged = SIGNERS["ES256"].sign(make_claims(sid=sid))
    reader = BusReader(world.redis, world.keys)
    await reader.mark_used("t-spent", "open", kept_until=now + 600, now=now)
    given = [
        (forged, "wrong_key", "publish the signing key"),
        (world.token(jti="t-spent"), "token_spent", "was used before"),
        (world.token(now=now - 3600), "token_expired", "has expired"),
        (
            world.token(now=now + 300),
            "clock_skew",
            "s ahead of the controller's clock: synchronise",
        ),
        ("no token", "token_wrong", "does not verify"),
        (world.token(sid=world.sids["fails"]), "other_session", "is for the session"),
    ]
    for token, cause, words in given:
        explanation = await world.with_token(token, sid=sid)
        assert (explanation["cause"], explanation["step"]) == (cause, "token"), explanation
        assert words in explanation["sentence"]
        assert token not in json.dumps(explanation)


async def test_a_revoked_grant_is_explained(world: World) -> None:
    token, sid = world.token(sub="eve"), world.sids["good"]
    await world.controller.call("POST", f"/v1/sessions/{sid}/revoke", {"sub": "eve"})
    explanation = await world.with_token(token)
    assert (explanation["cause"], explanation["step"]) == ("revoked", "grant"), explanation
    assert "The grant was revoked" in explanation["sentence"]
    assert "the user's grants on this session" in explanation["sentence"]
    assert (await world.with_token(world.token(sub="bob")))["cause"] is None


async def test_a_missing_route_is_explained(world: World) -> None:
    sid = world.sids["good"]
    route = await world.redis.hget(world.keys.routes, sid)
    await world.redis.hdel(world.keys.routes, sid)
    try:
        explanation = await world.explain(f"sid={sid}")
    finally:
        await world.redis.hset(world.keys.routes, sid, route)
    assert (explanation["cause"], explanation["step"]) == ("route_missing", "route"), explanation
    assert "has no readable route" in explanation["sentence"]


async def test_an_address_known_only_from_redis_is_not_dialled(world: World) -> None:
    sid, dialled = world.sids["good"], asyncio.Event()
    async with await asyncio.start_server(lambda *_: dialled.set(), "127.0.0.1", 0) as server:
        route = await world.redis.hget(world.keys.routes, sid)
        assert route is not None
        changed = json.loads(route)
        changed["target"]["host"] = "127.0.0.1"
        for port in (server.sockets[0].getsockname()[1], PORT):
            changed["target"]["port"] = port
            await world.redis.hset(world.keys.routes, sid, json.dumps(changed))
            try:
                explanation = await world.explain(f"sid={sid}")
            finally:
                await world.redis.hset(world.keys.routes, sid, route)
            last = explanation["findings"][-1]
            assert (last["step"], last["ok"]) == ("port", None), explanation
            assert last["seen"].startswith("not tried")
    assert not dialled.is_set()


@pytest.mark.parametrize(
    ("report", "cause", "words"),
    [
        ({"seq": 0}, "gateway_behind", "The gateway gateway-1 is behind: it has read event"),
        ({"epoch": "other"}, "gateway_behind", "is behind: it has read another table"),
        ({"at": 100.0}, "clock_skew", "The clock of the gateway gateway-1 is"),
    ],
)
async def test_a_lagging_or_skewed_gateway_is_explained(
    world: World, report: dict[str, Any], cause: str, words: str
) -> None:
    world.report.update(report)
    try:
        await world.report_once()
        explanation = await world.explain(f"sid={world.sids['good']}")
    finally:
        world.report.clear()
        await world.report_once()
    assert (explanation["cause"], explanation["step"]) == (cause, "gateways"), explanation
    assert words in explanation["sentence"]


@pytest.mark.parametrize(
    ("job", "cause", "step", "words"),
    [
        ("typo", "image_missing", "pod", "no-such-image cannot be pulled"),
        ("crashes", "crash_loop", "pod", "last with exit code 3: read the job's log"),
        ("closed", "port_closed", "port", f"Nothing listens at port {PORT} of rank 0"),
        ("fails", "app_error", "probe", "The app responds with 500: read the job's log"),
    ],
)
async def test_a_job_problem_is_explained_by_session_and_by_job(
    world: World, job: str, cause: str, step: str, words: str
) -> None:
    for query in (f"sid={world.sids[job]}", f"job={job}"):
        explanation = await until(world, query, cause)
        assert explanation["step"] == step
        assert words in explanation["sentence"], explanation["sentence"]
        assert (explanation["job"], explanation["sid"]) == (job, world.sids[job])


async def test_a_job_waiting_for_gpus_is_explained(world: World) -> None:
    # Last of these: a later job in its queue may wait behind it.
    await world.controller.submit("greedy", **GREEDY)
    explanation = await until(world, "job=greedy", "pod_pending")
    assert (explanation["step"], explanation["sid"]) == ("pod", None)
    assert ", 64 gpu" in explanation["sentence"], explanation["sentence"]


async def test_a_blocking_network_policy_is_explained(world: World) -> None:
    sid = world.sids["good"]
    world.report["failing"] = {sid: Failure("app_timeout", time.time())}
    try:
        await world.report_once()
        explanation = await world.explain(f"sid={sid}")
    finally:
        world.report.clear()
        await world.report_once()
    assert (explanation["cause"], explanation["step"]) == ("network_blocked", "port"), explanation
    assert "check the NetworkPolicies" in explanation["sentence"]


async def test_the_command_says_the_same_with_a_token_on_standard_input(world: World) -> None:
    def run(what: str, *options: str, given: str = "") -> tuple[int, str]:
        command = [sys.executable, "-m", "controller", "explain", what, *options]
        env = {"PATH": "/usr/bin:/bin"} | world.controller.settings
        done = warm.run(command, cwd=ROOT, env=env, given=given)
        return done.returncode, done.stdout + done.stderr

    url = f"https://{world.sids['good']}.{BASE_DOMAIN}/"
    spent = world.token(jti="t-spent")
    await world.redis.set(world.keys.used("t-spent"), "open")
    code, text = await asyncio.to_thread(run, url, "--token", given=f"{spent}\n")
    assert code == 1, text
    assert text.startswith("The token was used before")
    assert spent not in text
    code, text = await asyncio.to_thread(run, "never-was", "--json")
    assert json.loads(text)["cause"] == "job_unknown"


async def test_a_malformed_explain_request_is_refused(world: World) -> None:
    for query in ("", "?sid=x", "?job=a&sid=" + world.sids["good"], "?token=x"):
        await world.controller.call("GET", f"/v1/explain{query}", expect=422)
    explanation = await world.explain("sid=" + "a" * 26)
    assert (explanation["cause"], explanation["job"]) == ("session_unknown", None)


async def test_an_api_server_that_hangs_is_explained(world: World) -> None:
    query = f"sid={world.sids['good']}"
    await until(world, query, None)
    os.kill(world.cluster.pid("apiserver"), signal.SIGSTOP)
    try:
        explanation = await world.explain(query)
    finally:
        os.kill(world.cluster.pid("apiserver"), signal.SIGCONT)
    assert (explanation["cause"], explanation["step"]) == ("cluster_unavailable", "pod")
    sentence = "The API server is unavailable (it does not respond in time): "
    assert explanation["sentence"].startswith(sentence), explanation
    await until(world, query, None)


# Faults that cannot be undone come last.


async def test_a_missing_hub_is_explained(world: World) -> None:
    query = f"sid={world.sids['shell']}"
    await until(world, query, None)
    await world.hub.kill()
    explanation = await world.explain(query)
    assert (explanation["cause"], explanation["step"]) == ("hub_gone", "port"), explanation
    assert "start a controller with the role hub" in explanation["sentence"]


async def test_a_missing_redis_is_explained(world: World) -> None:
    world.redis_server.kill()
    explanation = await world.explain(f"sid={world.sids['good']}")
    assert (explanation["cause"], explanation["step"]) == ("redis_unavailable", "route"), (
        explanation
    )
    assert explanation["sentence"].startswith("Redis is unavailable")
    # The steps that need no Redis still have findings.
    assert [one["step"] for one in explanation["findings"]][-1] in ("pod", "port", "probe")
