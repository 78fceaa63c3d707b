"""Tests the gateway's own pages on a session's host: static, strict, not accessible to the app."""

from __future__ import annotations

import base64
import hashlib
import re

import pytest

from tests.contract.conftest import Serve
from tests.contract.rig import Rig
from tests.contract.tokens import ISSUER


async def test_the_open_page_is_static_with_a_strict_policy(rig: Rig) -> None:
    session = await rig.session()
    response = await rig.get(session, "/.fumarole/open", [("Accept", "text/html")])
    assert response.status == 200
    assert (response.get("Content-Type") or "").startswith("text/html")
    assert response.get("Referrer-Policy") == "same-origin"
    assert response.get("Set-Cookie") is None
    policy = response.get("Content-Security-Policy") or ""
    page = response.body.decode()
    (script,) = re.findall(r"<script[^>]*>(.*?)</script>", page, re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    assert f"script-src 'sha256-{digest}';" in policy
    assert "unsafe-inline" not in policy
    assert not re.search(r"\son[a-z]+\s*=", page)
    links = re.findall(r"""<(\w+)[^<>]*\s(?:src|href|action)=["']?((?:https?:)?//[^"'> ]*)""", page)
    assert all(tag == "a" and link.startswith(ISSUER) for tag, link in links)


async def test_a_sandboxed_frame_gets_the_whole_open_page_in_one_response(rig: Rig) -> None:
    page = (await rig.get(await rig.session(), "/.fumarole/open")).body.decode()
    assert re.findall(r"""<(?:script|link)[^>]*(?:src|href)=["']?/""", page) == []


async def test_the_assets_of_a_terminals_page_are_served(rig: Rig) -> None:
    target = {"scheme": "ws", "base_path": "/terminals/t"}
    session = await rig.session(kind="terminal", target=target)
    own = rig.own(session, await rig.opened(session, kind="terminal"))
    page = (await rig.get(session, "/", own)).body.decode()
    links = re.findall(r"""<(?:script|link)[^>]*(?:src|href)=["']?(/[^"'> ]+)""", page)
    assert links
    for link in links:
        response = await rig.get(session, link)
        assert response.status == 200
        assert response.body


async def test_no_request_under_the_reserved_path_reaches_the_app(rig: Rig, serve: Serve) -> None:
    app = await serve()
    session = await rig.session(app)
    own = rig.own(session, await rig.opened(session))
    for target in ("/.fumarole/", "/.fumarole/nothing", "/.fumarole/sessions", "/.fumarole/x?y"):
        assert (await rig.get(session, target, own)).status == 404, target
    assert app.connections == []


@pytest.mark.parametrize(
    "path",
    [
        "../../../../etc/passwd", "..%2f..%2f..%2f..%2fetc%2fpasswd", "%2e%2e/%2e%2e/etc/passwd",
        "....//....//etc/passwd", "/etc/passwd", "%00", "..%5c..%5cetc%5cpasswd",
        "manifest.json%00.js", "../x", "./../../x", ".", "..", "",
    ],
)  # fmt: skip
async def test_only_built_assets_are_served_as_files(rig: Rig, serve: Serve, path: str) -> None:
    app = await serve()
    session = await rig.session(app)
    own = rig.own(session, await rig.opened(session))
    for folder in ("/.fumarole", "/.fumarole/static"):
        for fields in ([], own):
            response = await rig.get(session, f"{folder}/{path}", fields)
            assert response.status in (400, 401, 403, 404), (folder, response.status)
            assert b"root:" not in response.body
    assert app.connections == []


async def test_a_gateway_page_reads_no_byte_beyond_its_request(rig: Rig, serve: Serve) -> None:
    app = await serve()
    session = await rig.session(app)
    cookie = await rig.opened(session)
    body = f"token={rig.token(session)}".encode()
    lines = ["POST /.fumarole/open HTTP/1.1", f"Host: {session.host}"]
    lines += ["Content-Type: application/x-www-form-urlencoded", f"Content-Length: {len(body)}"]
    behind = f"GET /behind HTTP/1.1\r\nHost: {session.host}\r\nCookie: {cookie}\r\n\r\n"
    stream = await rig.connect()
    stream.send("\r\n".join([*lines, "", ""]).encode() + body + behind.encode())
    text = await stream.read_to_end()
    assert text.startswith(b"HTTP/1.1 303 ")
    assert text.count(b"HTTP/1.1") == 1
    assert b"/behind" not in app.received


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", "/.fumarole/open", "GET, HEAD, POST"),
        ("DELETE", "/.fumarole/sign-out", "GET, HEAD, POST"),
        ("POST", "/.fumarole/state", "GET, HEAD"),
        # A registered method that aiohttp does not know.
        ("VERSION-CONTROL", "/.fumarole/state", "GET, HEAD"),
    ],
)
async def test_other_methods_of_an_own_page_get_405_with_the_allowed_ones(
    rig: Rig, method: str, path: str, allowed: str
) -> None:
    session = await rig.session()
    own = rig.own(session, await rig.opened(session))
    response = await rig.get(session, path, own, method=method)
    assert (response.status, response.get("Allow")) == (405, allowed)


async def test_a_refusal_of_the_session_comes_before_that_of_the_method(rig: Rig) -> None:
    session = await rig.session()
    response = await rig.get(session, "/.fumarole/state", method="PUT")
    assert (response.status, response.get("Allow")) == (401, None)
