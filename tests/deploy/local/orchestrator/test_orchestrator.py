"""Tests the reference orchestrator: its tokens, their recipients, and its refusals.

The tests play the controller's API, because they check the orchestrator's requests and decisions.
tests/e2e runs it against the real controller.
"""

from __future__ import annotations

import json
import stat
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import aiohttp
import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer
from pytest_aiohttp import AiohttpClient

from deploy.local.orchestrator.controller import Controller
from deploy.local.orchestrator.handlers import Handlers
from deploy.local.orchestrator.keys import SigningKey, ensure_key
from deploy.local.orchestrator.sessions import Sessions
from deploy.local.orchestrator.tokens import Tokens
from shared.jose.jws import read_key_set
from shared.settings import web_url
from shared.tokens import verify_service_token, verify_session_token
from tests.shared.samples import SID

ISSUER = "http://localhost:8480"
Client = TestClient[web.Request, web.Application]


class PlayedController:
    """Stores jobs and sessions as the controller's API does."""

    def __init__(self) -> None:
        self.jobs: dict[str, dict[str, Any]] = {}
        self.sessions: list[dict[str, Any]] = []
        self.tokens: list[str] = []
        self.revoked: list[tuple[str, str]] = []
        self.extended: list[tuple[str, int]] = []
        self.tools: dict[str, dict[str, Any]] = {}
        self.over: set[str] = set()

    def make_app(self) -> web.Application:
        app = web.Application(middlewares=[self._seen])
        app.add_routes(
            [
                web.post("/v1/jobs", self._submit),
                web.get("/v1/jobs", self._list),
                web.get("/v1/jobs/{id}", self._get),
                web.delete("/v1/jobs/{id}", self._delete),
                web.post("/v1/sessions", self._open),
                web.get("/v1/sessions/{sid}", self._session),
                web.post("/v1/sessions/{sid}/revoke", self._revoke),
                web.post("/v1/jobs/{id}/extend", self._extend),
                web.get("/v1/jobs/{id}/logs", self._logs),
                web.get("/v1/jobs/{id}/history", self._history),
                web.get("/v1/jobs/{id}/metrics", self._metrics),
                web.get("/v1/jobs/{id}/tools", self._tools),
                web.post("/v1/jobs/{id}/tools", self._attach),
                web.delete("/v1/jobs/{id}/tools/{tool}", self._remove),
            ]
        )
        return app

    @web.middleware
    async def _seen(self, request: web.Request, handler: Any) -> web.StreamResponse:
        self.tokens.append(request.headers["Authorization"].removeprefix("Bearer "))
        response: web.StreamResponse = await handler(request)
        return response

    async def _submit(self, request: web.Request) -> web.Response:
        (job,) = (await request.json())["items"]
        self.jobs[job["id"]] = job | {"state": "IN_QUEUE", "message": "waiting"}
        return web.json_response({"items": [{"id": job["id"], "result": "created"}]})

    async def _list(self, request: web.Request) -> web.Response:
        user = request.query["user"]
        mine = [job for job in self.jobs.values() if job["owner"]["user"] == user]
        return web.json_response({"items": mine})

    async def _get(self, request: web.Request) -> web.Response:
        job = self.jobs.get(request.match_info["id"])
        if job is None:
            return web.json_response({"code": "not_found", "message": "no such job"}, status=404)
        return web.json_response(job)

    async def _delete(self, request: web.Request) -> web.Response:
        del self.jobs[request.match_info["id"]]
        return web.json_response({})

    async def _open(self, request: web.Request) -> web.Response:
        (item,) = (await request.json())["items"]
        session = {"sid": SID, "hosts": [f"{SID}.localhost"], "kind": "web", "state": "starting"}
        self.sessions.append(item)
        return web.json_response({"items": [session]})

    async def _session(self, request: web.Request) -> web.Response:
        sid = request.match_info["sid"]
        state = "ended" if sid in self.over else "ready"
        return web.json_response({"sid": sid, "hosts": [f"{sid}.localhost"], "state": state})

    async def _revoke(self, request: web.Request) -> web.Response:
        asked = await request.json()
        self.revoked.append((request.match_info["sid"], asked["sub"]))
        return web.json_response({})

    async def _extend(self, request: web.Request) -> web.Response:
        asked = await request.json()
        self.extended.append((request.match_info["id"], asked["seconds"]))
        return web.json_response({"id": request.match_info["id"], "expires_at": 7.0})

    async def _logs(self, request: web.Request) -> web.Response:
        assert request.query["rank"] == "0"
        return web.Response(body=b"line one\n\xff", content_type="text/plain", charset="utf-8")

    async def _history(self, _request: web.Request) -> web.Response:
        update = {"id": 1, "at": 1.5, "attempt": 1, "state": "IN_QUEUE", "reason": "queued"}
        return web.json_response({"attempts": [], "updates": [update | {"message": "waits"}]})

    async def _tools(self, _request: web.Request) -> web.Response:
        other = {"tool": "tensorboard", "rank": 1, "state": "RUNNING"}
        return web.json_response({"items": [*self.tools.values(), other]})

    async def _attach(self, request: web.Request) -> web.Response:
        name = (await request.json())["tool"]
        known = {"tool": name, "rank": 0, "state": "WAITING", "endpoint": f"tool:{name}"}
        self.tools[name] = known | {"reason": "rank", "message": None}
        return web.json_response(self.tools[name], status=201)

    async def _remove(self, request: web.Request) -> web.Response:
        removed = self.tools.pop(request.match_info["tool"], None)
        return web.json_response({"removed": removed is not None})

    async def _metrics(self, _request: web.Request) -> web.Response:
        return web.json_response({"values": {"cpu_cores": 0.5}, "missing": {}, "items": []})


@pytest.fixture
def key(tmp_path: Path) -> SigningKey:
    return ensure_key(tmp_path)


@pytest.fixture
def played() -> PlayedController:
    return PlayedController()


@pytest.fixture
async def client(
    key: SigningKey, played: PlayedController, aiohttp_client: AiohttpClient
) -> AsyncIterator[Client]:
    tokens = Tokens(key, ISSUER)
    async with (
        TestServer(played.make_app()) as server,
        aiohttp.ClientSession(server.make_url("/")) as http,
    ):
        controller = Controller(http, lambda: tokens.for_controller(time.time()))
        sessions = Sessions(
            controller, tokens, gateway=web_url("http://localhost:8488"), clock=time.time
        )
        handlers = Handlers(
            key=key,
            controller=controller,
            sessions=sessions,
            origin=ISSUER,
            gateway_sources="http://*.localhost:8488",
            tools={"tensorboard": "TensorBoard"},
        )
        yield await aiohttp_client(handlers.make_app())


async def sign_in(client: Client, user: str) -> None:
    response = await client.post("/api/login", json={"user": user})
    assert response.status == 200


async def start(client: Client, app: str = "jupyterlab") -> str:
    response = await client.post("/api/jobs", json={"app": app})
    assert response.status == 201
    job: str = (await response.json())["id"]
    return job


async def test_a_link_carries_a_valid_token_only_in_its_fragment(
    client: Client, key: SigningKey, played: PlayedController
) -> None:
    await sign_in(client, "ada")
    job = await start(client)
    response = await client.post(f"/api/jobs/{job}/open", json={})
    url = urlsplit((await response.json())["url"])
    assert (url.netloc, url.path, url.query) == (f"{SID}.localhost:8488", "/.fumarole/open", "")
    fragment = parse_qs(url.fragment)
    assert fragment["next"] == ["/lab"]
    claims = verify_session_token(
        fragment["token"][0],
        keys=read_key_set(json.dumps(key.jwks()).encode()),
        issuer=ISSUER,
        now=time.time(),
    )
    assert (claims.sub, claims.sid, claims.job, claims.rank, claims.kind) == (
        "ada", SID, job, 0, "web",
    )  # fmt: skip
    assert played.sessions == [{"job": job, "rank": 0, "endpoint": "lab"}]


async def test_a_form_post_redirects_to_the_session(client: Client) -> None:
    await sign_in(client, "ada")
    job = await start(client)
    response = await client.post(f"/api/jobs/{job}/open", data={}, allow_redirects=False)
    assert response.status == 303
    assert "/.fumarole/open#token=" in response.headers["Location"]


async def test_reopening_a_job_keeps_the_session_with_a_new_token(
    client: Client, played: PlayedController
) -> None:
    await sign_in(client, "ada")
    job = await start(client)
    urls = [
        (await (await client.post(f"/api/jobs/{job}/open", json={})).json())["url"]
        for _ in range(2)
    ]
    assert len(played.sessions) == 1
    assert urls[0] != urls[1]
    assert urls[0].split("#")[0] == urls[1].split("#")[0]


async def test_users_cannot_see_open_or_stop_jobs_of_others(client: Client) -> None:
    await sign_in(client, "ada")
    job = await start(client)
    await sign_in(client, "bob")
    assert (await (await client.get("/api/jobs")).json())["jobs"] == []
    for action in ("open", "open?tool=shell", "stop", "extend", "share"):
        body = {"user": "ada", "allowed": True}
        response = await client.post(f"/api/jobs/{job}/{action}", json=body)
        assert response.status == 404
    for action in ("attach", "remove", "open"):
        response = await client.post(f"/api/jobs/{job}/tools/tensorboard/{action}", json={})
        assert response.status == 404
    for action in ("log", "history", "metrics", "tools"):
        assert (await client.get(f"/api/jobs/{job}/{action}")).status == 404
    unknown = await client.post("/api/jobs/never-was/open", json={})
    assert unknown.status == 404


async def test_a_shared_job_can_be_opened_until_the_share_is_revoked(
    client: Client, played: PlayedController
) -> None:
    await sign_in(client, "ada")
    job = await start(client)
    for wrong in ({"user": "ada"}, {"user": "eve", "allowed": True}, {"user": "bob", "allowed": 1}):
        assert (await client.post(f"/api/jobs/{job}/share", json=wrong)).status == 400
    allow = {"user": "bob", "allowed": True}
    assert (await client.post(f"/api/jobs/{job}/share", json=allow)).status == 200
    await sign_in(client, "bob")
    (seen,) = (await (await client.get("/api/jobs")).json())["jobs"]
    assert (seen["id"], seen["mine"], seen["owner"]) == (job, False, "ada")
    link = (await (await client.post(f"/api/jobs/{job}/open", json={})).json())["url"]
    assert SID in link
    for action in ("open?tool=shell", "stop", "extend", "share"):
        body = {"user": "ada", "allowed": True}
        assert (await client.post(f"/api/jobs/{job}/{action}", json=body)).status == 404
    assert (await client.get(f"/api/jobs/{job}/log")).status == 404
    await sign_in(client, "ada")
    take = {"user": "bob", "allowed": False}
    assert (await client.post(f"/api/jobs/{job}/share", json=take)).status == 200
    assert played.revoked == [(SID, "bob")]
    await sign_in(client, "bob")
    assert (await client.post(f"/api/jobs/{job}/open", json={})).status == 404


async def test_an_owner_extends_a_job_and_reads_its_log_history_and_metrics(
    client: Client, played: PlayedController
) -> None:
    await sign_in(client, "ada")
    job = await start(client)
    assert (await client.post(f"/api/jobs/{job}/extend", json={})).status == 200
    assert played.extended == [(job, 3600)]
    assert (await (await client.get(f"/api/jobs/{job}/log")).json())["text"] == "line one\n\ufffd"
    (update,) = (await (await client.get(f"/api/jobs/{job}/history")).json())["updates"]
    assert (update["state"], update["message"]) == ("IN_QUEUE", "waits")
    shown = await (await client.get(f"/api/jobs/{job}/metrics")).json()
    assert shown == {"values": {"cpu_cores": 0.5}, "missing": {}, "series": {}}
    # A tool can join a job of any app; no other app can.
    for tool, status in (("shell", 200), ("jupyterlab", 404), ("nothing", 404)):
        response = await client.post(f"/api/jobs/{job}/open?tool={tool}", json={})
        assert response.status == status
    assert [item.get("kind") for item in played.sessions] == ["terminal"]


async def test_an_owner_attaches_opens_and_removes_a_tool(
    client: Client, played: PlayedController
) -> None:
    await sign_in(client, "ada")
    body = await (await client.get("/api/apps")).json()
    assert body["tools"] == [{"name": "tensorboard", "title": "TensorBoard"}]
    job = await start(client)
    board = f"/api/jobs/{job}/tools/tensorboard"
    for action in ("attach", "attach"):
        assert (await client.post(f"{board}/{action}", json={})).status == 200
    (shown,) = (await (await client.get(f"/api/jobs/{job}/tools")).json())["tools"]
    assert (shown["tool"], shown["state"], shown["reason"]) == ("tensorboard", "WAITING", "rank")
    for _ in range(2):
        response = await client.post(f"{board}/open", data={}, allow_redirects=False)
        assert response.status == 303
        assert "/.fumarole/open#token=" in response.headers["Location"]
    assert played.sessions == [{"job": job, "rank": 0, "endpoint": "tool:tensorboard"}]
    # A tool that was attached again has a new session: the old one has ended.
    played.over.add(SID)
    assert (await client.post(f"{board}/open", data={}, allow_redirects=False)).status == 303
    assert len(played.sessions) == 2
    assert (await client.post(f"{board}/remove", json={})).status == 200
    assert (await (await client.get(f"/api/jobs/{job}/tools")).json())["tools"] == []
    for unknown in ("vscode/attach", "tensorboard/start"):
        response = await client.post(f"/api/jobs/{job}/tools/{unknown}", json={})
        assert response.status == 404
    foreign = {"Origin": "http://evil.localhost:8488"}
    assert (await client.post(f"{board}/attach", json={}, headers=foreign)).status == 403
    assert not played.tools


async def test_a_signed_out_user_gets_401(client: Client) -> None:
    for call in (client.get("/api/jobs"), client.post("/api/jobs", json={"app": "shell"})):
        assert (await call).status == 401


async def test_cross_site_requests_are_refused(client: Client, played: PlayedController) -> None:
    await sign_in(client, "ada")
    for origin in ("http://evil.localhost:8488", "null"):
        response = await client.post("/api/jobs", json={"app": "shell"}, headers={"Origin": origin})
        assert response.status == 403
    assert not played.jobs


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b'{"app":"rm"}', b'{"app":["shell"]}'])
async def test_bad_input_is_a_400(client: Client, body: bytes) -> None:
    await sign_in(client, "ada")
    headers = {"Content-Type": "application/json"}
    response = await client.post("/api/jobs", data=body, headers=headers)
    assert response.status == 400


async def test_the_controller_is_called_with_a_service_token(
    client: Client, key: SigningKey, played: PlayedController
) -> None:
    await sign_in(client, "ada")
    await start(client)
    keys = read_key_set(json.dumps(key.jwks()).encode())
    assert played.tokens
    for token in played.tokens:
        verify_service_token(token, keys=keys, issuer=ISSUER, now=time.time())


async def test_the_page_policy_allows_no_inline_code(client: Client) -> None:
    for path in ("/", "/page.js", "/page.css"):
        response = await client.get(path)
        policy = response.headers["Content-Security-Policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
    assert "<script>" not in await (await client.get("/")).text()


def test_the_key_is_created_once_and_readable_only_by_its_owner(tmp_path: Path) -> None:
    first, second = ensure_key(tmp_path), ensure_key(tmp_path)
    assert first.kid == second.kid
    (path,) = tmp_path.iterdir()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    (jwk,) = first.jwks()["keys"]
    assert "d" not in jwk
