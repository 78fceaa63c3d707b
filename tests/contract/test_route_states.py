"""Tests the responses of a session's host in each state of its route, for each kind of client."""

from __future__ import annotations

import asyncio
import json
import time
from typing import Any

import pytest

from tests.contract.conftest import Serve
from tests.contract.rig import Rig, Session, new_sid
from tests.contract.upstream import App, websocket

METHODS = ("GET", "HEAD", "POST", "OPTIONS", "PUT", "upgrade")


async def asked_with(rig: Rig, session: Session, method: str, fields: Any = ()) -> int:
    """Return the status of the response to *method*."""
    if method == "upgrade":
        return (await rig.upgrade(session, "/", [("Origin", session.origin), *fields]))[1].status
    return (await rig.get(session, fields=fields, method=method)).status


async def make(rig: Rig, app: App, state: str) -> Session:
    """Return a session in a state; not every state is a state of a route."""
    match state:
        case "unknown":
            return rig.make_session(app)
        case "removed":
            session = await rig.session(app)
            await rig.bus.remove(session.sid)
            await rig.settled()
            return session
        case "expired":
            return await rig.session(app, expires_at=time.time() - 5)
        case "unreadable":
            session = rig.make_session(app)
            await rig.publish_text(session, "{}")
            return session
        case "vnc" | "terminal":
            scheme = {"vnc": "tcp", "terminal": "ws"}[state]
            return await rig.session(app, kind=state, target={"scheme": scheme})
        case _:
            return await rig.session(app, state=state)


WITHOUT_CREDENTIAL = {
    "ready": {401},
    "vnc": {401},
    "terminal": {401},
    "unknown": {404},
    "removed": {404},
    # For these states the contract leaves open whether the response reveals the state.
    "starting": {401, 503},
    "closing": {401, 410},
    "expired": {401, 404, 410},
    "unreadable": {401, 404, 503},
}


@pytest.mark.parametrize("state", WITHOUT_CREDENTIAL)
async def test_without_a_credential_no_route_state_forwards_a_request(
    rig: Rig, serve: Serve, state: str
) -> None:
    app = await serve(websocket())
    session = await make(rig, app, state)
    for method in METHODS:
        assert await asked_with(rig, session, method) in WITHOUT_CREDENTIAL[state], method
    for target in ("/.fumarole/connect", "/.fumarole/state", "/x/../.fumarole/connect"):
        _, response = await rig.upgrade(session, target, [("Origin", session.origin)])
        assert 400 <= response.status < 600
    assert app.connections == []


@pytest.mark.parametrize(
    ("state", "status"), [("starting", 503), ("closing", 410), ("removed", 410), ("expired", 410)]
)
async def test_a_user_with_a_grant_sees_the_route_state(
    rig: Rig, serve: Serve, state: str, status: int
) -> None:
    app = await serve(websocket())
    session = await rig.session(app)
    cookie = await rig.opened(session)
    if state == "removed":
        await rig.bus.remove(session.sid)
        await rig.settled()
    elif state == "expired":
        await rig.change(session, expires_at=time.time() - 1)
    else:
        await rig.change(session, state=state)
    for method in METHODS:
        own = rig.own(session, cookie)
        fields = own[1:] if method == "upgrade" else own
        assert await asked_with(rig, session, method, fields) == status, method
    assert app.connections == []


async def test_a_starting_route_responds_with_retry_after(rig: Rig) -> None:
    session = await rig.session()
    cookie = await rig.opened(session)
    await rig.change(session, state="starting", message="pulling the image")
    response = await rig.get(session, fields=[("Cookie", cookie)])
    assert response.status == 503
    assert int(response.get("Retry-After") or "0") >= 1
    assert response.json().keys() == {"code", "message"}


async def test_a_cookie_set_while_starting_is_valid_once_ready(rig: Rig, serve: Serve) -> None:
    session = await rig.session(await serve())
    cookie = await rig.opened(session)
    await rig.change(session, state="starting", target={"id": "next"})
    assert (await rig.get(session, fields=[("Cookie", cookie)])).status == 503
    await rig.change(session, state="ready")
    assert (await rig.get(session, fields=[("Cookie", cookie)])).status == 200


async def test_a_starting_route_may_have_no_target_yet(rig: Rig, serve: Serve) -> None:
    app = await serve()
    session = await rig.session(app)
    cookie = await rig.opened(session)
    target = session.route["target"]
    session.route |= {"target": None, "state": "starting", "rev": 2}
    await rig.bus.upsert(session.sid, session.route)
    await rig.settled()
    assert (await rig.get(session, fields=[("Cookie", cookie)])).status == 503
    session.route |= {"target": target, "state": "ready", "rev": 3}
    await rig.bus.upsert(session.sid, session.route)
    await rig.settled()
    assert (await rig.get(session, fields=[("Cookie", cookie)])).status == 200


# Unreadable routes


def spoiled(route: dict[str, Any], how: str) -> str:
    """Return *route* as JSON with one error."""
    target = route["target"]
    whole: dict[str, str] = {
        "empty object": "{}",
        "list": "[]",
        "number": "7",
        "null": "null",
        "no JWS": '"nonsense"',
        "unsigned JWS": '"e30.e30."',
    }
    if how in whole:
        return whole[how]
    parts: dict[str, dict[str, Any]] = {
        "no kind": {"kind": ...},
        "unknown kind": {"kind": "ssh"},
        "unknown state": {"state": "paused"},
        "rank is text": {"rank": "0"},
        "negative rank": {"rank": -1},
        "no hosts": {"hosts": []},
        "hosts is text": {"hosts": route["hosts"][0]},
        "another sid": {"sid": new_sid()},
        "no target": {"target": ...},
        "unknown scheme": {"target": target | {"scheme": "ftp"}},
        "scheme of another kind": {"target": target | {"scheme": "tcp"}},
        "port 0": {"target": target | {"port": 0}},
        "port 65536": {"target": target | {"port": 65536}},
        "port is text": {"target": target | {"port": "80"}},
        "no host": {"target": target | {"host": ""}},
        "base path with CRLF": {"target": target | {"base_path": "/a\r\nX: y"}},
        "base path without slash": {"target": target | {"base_path": "a"}},
        "public is text": {"public": "no"},
        "expires_at is text": {"expires_at": "never"},
    }
    changed = {k: v for k, v in (route | parts[how]).items() if v is not ...}
    return json.dumps(changed)


UNREADABLE = (
    "empty object", "list", "number", "null", "no JWS", "unsigned JWS", "no kind", "unknown kind",
    "unknown state", "rank is text", "negative rank", "no hosts", "hosts is text", "another sid",
    "no target", "unknown scheme", "scheme of another kind", "port 0", "port 65536",
    "port is text", "no host", "base path with CRLF", "base path without slash", "public is text",
    "expires_at is text",
)  # fmt: skip


@pytest.mark.parametrize("how", UNREADABLE)
async def test_an_unreadable_route_is_not_served(rig: Rig, serve: Serve, how: str) -> None:
    app = await serve()
    session = await rig.session(app)
    cookie = [("Cookie", await rig.opened(session))]
    await rig.publish_text(session, spoiled(session.route, how))
    assert (await rig.get(session, fields=cookie)).status == 503
    assert app.connections == []
    await rig.change(session)
    assert (await rig.get(session, fields=cookie)).status == 200


async def test_an_unknown_route_field_is_ignored(rig: Rig, serve: Serve) -> None:
    session = await rig.session(await serve(), colour="red", target={"weight": 7})
    cookie = [("Cookie", await rig.opened(session))]
    assert (await rig.get(session, fields=cookie)).status == 200


# Paths


@pytest.mark.parametrize(
    ("base", "expected"), [("/", ""), ("/app", "/app"), ("/a/b", "/a/b"), ("/a%20b", "/a%20b")]
)
@pytest.mark.parametrize(
    "target",
    [
        "/",
        "/x?y=1&y=2",
        "/a/../b",
        "/%2e%2e/x",
        "//x//y",
        "/a;b=c?d=%zz&e=%",
        "/?",
        "/x?u=http://evil.example/?q",
        "/!$&'()*+,;=:@-._~[]{}|^`\"<>",
        "/..",
    ],
)
async def test_the_base_path_is_prepended_to_the_received_path(
    rig: Rig, serve: Serve, base: str, expected: str, target: str
) -> None:
    app = await serve()
    session = await rig.session(app, target={"base_path": base})
    cookie = [("Cookie", await rig.opened(session))]
    assert (await rig.get(session, target, cookie)).status == 200
    assert app.requests[0].target == expected + target


async def test_an_absolute_form_target_is_forwarded_in_origin_form(rig: Rig, serve: Serve) -> None:
    app = await serve()
    session = await rig.session(app)
    cookie = [("Cookie", await rig.opened(session))]
    target = f"http://{session.host}/x?y"
    assert (await rig.get(session, target, cookie)).status == 200
    assert app.requests[0].target == "/x?y"
    assert app.requests[0].get("Host") == session.host


async def test_an_absolute_form_target_does_not_bypass_the_reserved_paths(
    rig: Rig, serve: Serve
) -> None:
    app = await serve()
    session = await rig.session(app)
    cookie = [("Cookie", await rig.opened(session))]
    target = f"http://{session.host}/.fumarole/nothing"
    assert (await rig.get(session, target, cookie)).status == 404
    assert app.connections == []


# Time


async def test_a_route_expires_without_an_event(rig: Rig, serve: Serve) -> None:
    session = await rig.session(await serve())
    cookie = [("Cookie", await rig.opened(session))]
    assert (await rig.get(session, fields=cookie)).status == 200
    await rig.change(session, expires_at=time.time() + 1)
    await asyncio.sleep(1.2)
    assert (await rig.get(session, fields=cookie)).status == 410


async def test_a_changed_expires_at_takes_effect(rig: Rig, serve: Serve) -> None:
    session = await rig.session(await serve())
    cookie = [("Cookie", await rig.opened(session))]
    await rig.announce_change(session, expires_at=time.time() + 1)
    await rig.change(session, expires_at=time.time() + 3600)
    await asyncio.sleep(1.2)
    assert (await rig.get(session, fields=cookie)).status == 200
    fresh = [("Cookie", await rig.opened(session))]
    assert (await rig.get(session, fields=fresh)).status == 200
