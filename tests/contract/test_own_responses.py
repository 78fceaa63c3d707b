"""Tests the gateway's own responses: a page for a browser, JSON for other clients, no secrets."""

from __future__ import annotations

import base64
import hashlib
import re
import time
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.contract.conftest import Serve
from tests.contract.messages import Response, request
from tests.contract.rig import Rig, Session
from tests.contract.tokens import ISSUER
from tests.contract.upstream import App, raw_response

Fields = list[tuple[str, str]]
Case = Callable[[Rig, App], Awaitable[tuple[Session, str, Fields]]]


async def ready(rig: Rig, app: App, **route: Any) -> tuple[Session, Fields]:
    session = await rig.session(app, **route)
    return session, [("Cookie", await rig.opened(session))]


async def no_credential(rig: Rig, app: App) -> tuple[Session, str, Fields]:
    return await rig.session(app), "GET", []


async def bad_cookie(rig: Rig, app: App) -> tuple[Session, str, Fields]:
    return await rig.session(app), "GET", [("Cookie", "fumarole=nonsense")]


async def bad_bearer(rig: Rig, app: App) -> tuple[Session, str, Fields]:
    return await rig.session(app), "GET", [("Fumarole-Token", "nonsense")]


async def revoked(rig: Rig, app: App) -> tuple[Session, str, Fields]:
    session, fields = await ready(rig, app)
    await rig.bus.revoke(sid=session.sid)
    await rig.settled()
    return session, "GET", fields


async def elsewhere(rig: Rig, app: App) -> tuple[Session, str, Fields]:
    _, fields = await ready(rig, app)
    return await rig.session(app), "GET", fields


async def foreign(rig: Rig, app: App) -> tuple[Session, str, Fields]:
    session, fields = await ready(rig, app)
    return session, "POST", [*fields, ("Origin", "https://evil.example")]


async def unknown(rig: Rig, app: App) -> tuple[Session, str, Fields]:
    return rig.make_session(app), "GET", []


async def ended(rig: Rig, app: App) -> tuple[Session, str, Fields]:
    session, fields = await ready(rig, app)
    await rig.bus.remove(session.sid)
    await rig.settled()
    return session, "GET", fields


async def closing(rig: Rig, app: App) -> tuple[Session, str, Fields]:
    session, fields = await ready(rig, app)
    await rig.change(session, state="closing")
    return session, "GET", fields


async def expired(rig: Rig, app: App) -> tuple[Session, str, Fields]:
    session, fields = await ready(rig, app)
    await rig.change(session, expires_at=time.time() - 1)
    return session, "GET", fields


async def starting(rig: Rig, app: App) -> tuple[Session, str, Fields]:
    session, fields = await ready(rig, app)
    await rig.change(session, state="starting")
    return session, "GET", fields


async def out_of_bounds(rig: Rig, app: App) -> tuple[Session, str, Fields]:
    session, fields = await ready(rig, app, target={"host": "::1"})
    return session, "GET", fields


async def unreachable(rig: Rig, app: App) -> tuple[Session, str, Fields]:
    session, fields = await ready(rig, app, target={"port": 1})
    return session, "GET", fields


async def nonsense(rig: Rig, app: App) -> tuple[Session, str, Fields]:
    app.script = raw_response(b"nonsense\r\n\r\n")
    session, fields = await ready(rig, app)
    return session, "GET", fields


async def traced(rig: Rig, app: App) -> tuple[Session, str, Fields]:
    session, fields = await ready(rig, app)
    return session, "TRACE", fields


async def unheard_of(rig: Rig, app: App) -> tuple[Session, str, Fields]:
    session, fields = await ready(rig, app)
    return session, "FOO", fields


async def two_cookies(rig: Rig, app: App) -> tuple[Session, str, Fields]:
    session, fields = await ready(rig, app)
    return session, "GET", fields * 2


ROWS: dict[Case, int] = {
    no_credential: 401,
    bad_cookie: 401,
    bad_bearer: 401,
    revoked: 401,
    elsewhere: 403,
    foreign: 403,
    unknown: 404,
    ended: 410,
    closing: 410,
    expired: 410,
    starting: 503,
    out_of_bounds: 503,
    unreachable: 502,
    nonsense: 502,
    traced: 405,
    unheard_of: 501,
    two_cookies: 400,
}
FOR_BROWSERS = ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "text/html")
FOR_OTHERS = (None, "*/*", "application/json", "text/plain", "text/event-stream", "image/png")


def assert_harmless(page: Response) -> None:
    """Assert that a page loads nothing foreign, is not cached, and inlines only declared code."""
    policy = page.get("Content-Security-Policy") or ""
    assert "default-src 'none'" in policy or "default-src 'self'" in policy
    assert "unsafe-inline" not in policy
    assert "unsafe-eval" not in policy
    text = page.body.decode()
    for script in re.findall(r"<script[^>]*>(.*?)</script>", text, re.DOTALL):
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        assert not script or f"'sha256-{digest}'" in policy
    assert not re.search(r"<[^>]+\son[a-z]+\s*=", text)
    links = re.findall(r"""<(\w+)[^<>]*\s(?:src|href|action)=["']?((?:https?:)?//[^"'> ]*)""", text)
    assert all(tag == "a" and link.startswith(ISSUER) for tag, link in links), links
    assert "no-store" in (page.get("Cache-Control") or "")
    assert page.get("Referrer-Policy") == "no-referrer"


@pytest.mark.parametrize(("case", "status"), ROWS.items(), ids=lambda v: getattr(v, "__name__", v))
async def test_each_error_response_is_a_page_or_json(
    rig: Rig, serve: Serve, case: Case, status: int
) -> None:
    session, method, fields = await case(rig, await serve())

    async def ask(accept: str | None) -> Response:
        more = [] if accept is None else [("Accept", accept)]
        response = await rig.get(session, "/", [*more, *fields], method=method)
        assert response.status == status, (accept, response.status)
        assert response.get("Set-Cookie") is None
        assert response.get("Server") is None
        if status == 503:
            assert int(response.get("Retry-After") or "0") >= 1
        return response

    for accept in FOR_OTHERS:
        response = await ask(accept)
        words = response.json()
        told = {"reason"} if words["code"] == "app_bad_answer" else set()
        assert words.keys() == {"code", "message"} | told
        assert re.fullmatch(r"[a-z][a-z0-9_]*", words["code"])
        assert words["message"]
    # A browser never sends an invalid method.
    for accept in FOR_BROWSERS if method in ("GET", "POST") else ():
        page = await ask(accept)
        assert (page.get("Content-Type") or "").startswith("text/html")
        assert_harmless(page)


async def test_an_error_page_never_reflects_client_input(rig: Rig, serve: Serve) -> None:
    """Our responses repeat no part of a request, neither text nor script."""
    session, fields = await ready(rig, await serve(), target={"port": 1})
    evil = "<script>alert(1)</script>"
    target = f"/{evil}?q={evil}"
    for accept in ("text/html", "*/*"):
        more = [("Accept", accept), ("User-Agent", evil), ("Referer", evil), ("X-A", evil)]
        for sent in (fields, [("Cookie", f"fumarole={evil}")], [("Fumarole-Token", evil)]):
            response = await rig.get(session, target, [*more, *sent])
            assert response.status in (400, 401, 502)
            assert b"alert(1)" not in response.body


async def test_a_routes_message_is_escaped_as_text(rig: Rig, serve: Serve) -> None:
    session, fields = await ready(rig, await serve())
    await rig.change(session, state="starting", message="<script>alert(1)</script>&\"'\x1b[2J")
    page = await rig.get(session, "/", [*fields, ("Accept", "text/html")])
    assert page.status == 503
    assert b"<script>alert(1)" not in page.body
    assert b"\x1b" not in page.body
    response = await rig.get(session, "/", fields)
    assert response.json().keys() == {"code", "message"}


async def test_a_response_to_head_has_no_body(rig: Rig) -> None:
    for accept in ("text/html", "*/*"):
        stream = await rig.connect()
        session = rig.make_session()
        fields = [("Accept", accept), ("Connection", "close")]
        stream.send(request("HEAD", "/", host=session.host, fields=fields))
        text = await stream.read_to_end()
        assert text.startswith(b"HTTP/1.1 404 ")
        assert text.endswith(b"\r\n\r\n")
        assert text.count(b"\r\n\r\n") == 1


async def test_only_an_authorized_user_sees_the_state_of_a_route(rig: Rig, serve: Serve) -> None:
    app = await serve()
    session, fields = await ready(rig, app)
    secret = session.route["target"]
    for sent in ([], fields, [("Cookie", "fumarole=x")]):
        response = await rig.get(session, "/.fumarole/state", sent)
        # The response names neither the target's address nor the app behind it.
        assert f":{secret['port']}".encode() not in response.body
        assert secret["id"].encode() not in response.body
    assert app.connections == []


async def test_the_ops_listener_is_not_the_public_one(rig: Rig, serve: Serve) -> None:
    app = await serve()
    session, fields = await ready(rig, app)
    paths = ["/healthz", "/readyz", "/metrics", "/debug/routes"]
    for path in paths:
        assert (await rig.get(session, path)).status == 401
        assert (await rig.get(session, path, fields)).status == 200
    assert [one.target for one in app.requests] == [
        "/healthz",
        "/readyz",
        "/metrics",
        "/debug/routes",
    ]
    assert (await rig.process.ops_response("/metrics")).status == 200
    assert (await rig.process.ops_response("/.fumarole/open")).status == 404
