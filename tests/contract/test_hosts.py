"""Tests the names under which a session is reached: its own host, and public links."""

from __future__ import annotations

from typing import Any

import pytest

from tests.contract.conftest import Serve
from tests.contract.rig import Rig, new_sid
from tests.contract.upstream import websocket

# Hosts


@pytest.mark.parametrize(
    "spelling",
    [
        "{name}",
        "{name}:81",
        "{name}:",
        "{name}.:{port}",
        "{name}.",
        "x{name}:{port}",
        "x.{name}:{port}",
        "localhost:{port}",
        "127.0.0.1:{port}",
        "{sid}.evil.example:{port}",
        "{sid}:{port}",
    ],
)
async def test_an_unknown_host_is_not_found(rig: Rig, serve: Serve, spelling: str) -> None:
    app = await serve()
    session = await rig.session(app)
    name, _, port = session.host.partition(":")
    host = spelling.format(name=name, port=port, sid=session.sid)
    fields = [("Cookie", await rig.opened(session))]
    response = await rig.get(session, fields=fields, host=host)
    assert response.status in ((400, 404) if host.endswith(":") else (404,))
    assert app.connections == []


@pytest.mark.parametrize(
    ("suffix", "status"), [("", 200), (":443", 200), (":80", 404), (":8443", 404), (".", 404)]
)
async def test_the_default_port_may_be_omitted_from_host(
    edge: Rig, serve: Serve, suffix: str, status: int
) -> None:
    session = await edge.session(await serve())
    fields = [("Cookie", await edge.opened(session))]
    response = await edge.get(session, fields=fields, host=session.host + suffix)
    assert response.status == status


# Public links


def link_of(rig: Rig) -> tuple[str, str]:
    """Return a link's host name, and the Host that browsers send for it."""
    name = f"link-{new_sid()[:8]}.{rig.url.hostname}"
    return name, rig.host_of(name)


async def test_a_public_link_needs_no_credential(rig: Rig, serve: Serve) -> None:
    app = await serve(websocket())
    name, host = link_of(rig)
    session = await rig.session(app, links=[name], public=True)
    foreign = ("Origin", "https://evil.example")
    for method in ("GET", "POST", "OPTIONS"):
        response = await rig.get(session, "/x", [foreign], method=method, host=host)
        assert response.status == 200
    _, response = await rig.upgrade(session, "/", [foreign], host=host)
    assert response.status == 101
    for request in app.requests:
        assert "x-forwarded-user" not in request.names()
        assert request.get("Host") == host


async def test_a_public_link_ignores_credentials(rig: Rig, serve: Serve) -> None:
    app = await serve()
    name, host = link_of(rig)
    session = await rig.session(app, links=[name], public=True)
    grant, token = await rig.opened(session), rig.token(session)
    for fields in (
        [("Cookie", "fumarole=nonsense; a=1")],
        [("Cookie", f"{grant}; a=1")],
        [("Fumarole-Token", "nonsense"), ("Cookie", "a=1")],
        [("Fumarole-Token", token), ("Cookie", "a=1")],
        [("Authorization", f"Bearer {token}"), ("Cookie", "a=1")],
        [("X-Forwarded-User", "root"), ("Cookie", "a=1")],
    ):
        assert (await rig.get(session, fields=fields, host=host)).status == 200
    for request in app.requests:
        hidden = {"x-forwarded-user", "fumarole-token", "authorization"}
        assert hidden.isdisjoint(request.names())
        assert request.all("Cookie") == ["a=1"]


async def test_the_private_host_of_a_public_session_needs_a_credential(
    rig: Rig, serve: Serve
) -> None:
    app = await serve()
    name, _ = link_of(rig)
    session = await rig.session(app, links=[name], public=True)
    assert (await rig.get(session)).status == 401
    assert app.connections == []


async def test_a_link_of_a_session_that_is_not_public_serves_nothing(
    rig: Rig, serve: Serve
) -> None:
    app = await serve()
    name, host = link_of(rig)
    session = await rig.session(app, links=[name], public=False)
    cookie = await rig.opened(session)
    for fields in ([], [("Cookie", cookie)], [("Fumarole-Token", rig.token(session))]):
        response = await rig.get(session, fields=fields, host=host)
        assert response.status in (401, 403, 404)
    assert app.connections == []


async def test_gateway_pages_are_not_found_on_public_links(rig: Rig, serve: Serve) -> None:
    app = await serve()
    name, host = link_of(rig)
    session = await rig.session(app, links=[name], public=True)
    for target in ("/.fumarole/", "/.fumarole/open", "/.fumarole/connect", "/.fumarole/state"):
        assert (await rig.get(session, target, host=host)).status == 404
    response = await rig.get(session, "/.fumarole/open", method="POST", body=b"", host=host)
    assert response.status == 404
    assert app.connections == []


@pytest.mark.parametrize("state", ["starting", "closing", "expired"])
async def test_a_public_link_follows_its_route(rig: Rig, serve: Serve, state: str) -> None:
    app = await serve()
    name, host = link_of(rig)
    how: dict[str, Any] = {"expires_at": 1} if state == "expired" else {"state": state}
    session = await rig.session(app, links=[name], public=True, **how)
    response = await rig.get(session, host=host)
    assert response.status == (503 if state == "starting" else 410)
    assert app.connections == []


async def test_a_host_claimed_by_two_routes_is_not_served(rig: Rig, serve: Serve) -> None:
    apps = [await serve(), await serve()]
    name, host = link_of(rig)
    first = await rig.session(apps[0], links=[name], public=True)
    assert (await rig.get(first, host=host)).status == 200
    second = await rig.session(apps[1], links=[name], public=True)
    before = [len(app.requests) for app in apps]
    assert (await rig.get(first, host=host)).status >= 400
    assert [len(app.requests) for app in apps] == before
    await rig.bus.remove(first.sid)
    await rig.settled()
    assert (await rig.get(second, host=host)).status == 200
    assert len(apps[1].requests) == 1


async def test_no_route_can_claim_the_host_of_another_session(rig: Rig, serve: Serve) -> None:
    """Otherwise, a link's publisher would receive the requests of the other session."""
    own, thief = await serve(), await serve()
    session = await rig.session(own)
    cookie = await rig.opened(session)
    name = session.route["hosts"][0]
    await rig.session(thief, links=[name], public=True)
    await rig.get(session, fields=[("Cookie", cookie)])
    await rig.get(session)
    assert thief.connections == []
