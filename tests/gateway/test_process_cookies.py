"""Tests that many or large cookies, of other sessions or of apps, lock no user out of a session."""

from __future__ import annotations

import pytest

from tests.gateway.conftest import World
from tests.gateway.http import HTML
from tests.gateway.upstreams import web_app

SIBLINGS = "; ".join(f"s{n}={'x' * 4000}" for n in range(179))
"""What a script of one session can set for all of the base domain: as many cookies of 4 KB as
browsers keep of a domain, beside the gateway's."""


async def test_cookies_of_a_sibling_host_block_no_user(world: World) -> None:
    async with web_app() as app:
        sid = await world.publish(port=app.port)
        cookie = await world.gateway.open(sid)
        sent = {"Cookie": f"{SIBLINGS}; {cookie}"}
        assert (await world.gateway.ask(sid, "GET", "/", sent)).status == 200
        (theirs,) = [line for line in app.heads[-1].split(b"\r\n") if line[:7] == b"Cookie:"]
        assert theirs.startswith(b"Cookie: s0=x")
        assert len(theirs) <= 32768 + len(b"Cookie: ")


@pytest.mark.parametrize("path", ["/.fumarole/open", "/.fumarole/state"])
async def test_gateway_pages_are_reachable_despite_sibling_cookies(world: World, path: str) -> None:
    sid = await world.publish(port=1)
    cookie = await world.gateway.open(sid)
    response = await world.gateway.ask(sid, "GET", path, {"Cookie": f"{SIBLINGS}; {cookie}"} | HTML)
    assert response.status == 200


async def test_a_session_can_be_opened_despite_sibling_cookies(world: World) -> None:
    sid = await world.publish(port=1)
    token = world.gateway.signer.token(sid)
    sent = {"Cookie": SIBLINGS, "Content-Type": "application/json"}
    body = b'{"token": "%b"}' % token.encode()
    response = await world.gateway.ask(sid, "POST", "/.fumarole/open", sent, body)
    assert response.status == 303


async def test_the_next_user_gets_no_data_of_the_previous_one(world: World) -> None:
    sid = await world.publish(port=1)
    cookie = await world.gateway.open(sid, sub="ada")
    token = world.gateway.signer.token(sid, sub="grace")
    sent = {"Cookie": f"theme=dark; {cookie}", "Content-Type": "application/json"}
    body = b'{"token": "%b", "replace": true}' % token.encode()
    response = await world.gateway.ask(sid, "POST", "/.fumarole/open", sent, body)
    assert response.status == 303
    assert response.headers["clear-site-data"] == '"cache", "storage"'
    assert "theme=; Path=/; Max-Age=0" in str(response.headers)


async def test_the_same_user_keeps_the_apps_stored_data(world: World) -> None:
    sid = await world.publish(port=1)
    cookie = await world.gateway.open(sid, sub="ada")
    token = world.gateway.signer.token(sid, sub="ada")
    sent = {"Cookie": f"theme=dark; {cookie}", "Content-Type": "application/json"}
    body = b'{"token": "%b"}' % token.encode()
    response = await world.gateway.ask(sid, "POST", "/.fumarole/open", sent, body)
    assert response.status == 303
    assert "clear-site-data" not in response.headers
    assert "theme=" not in str(response.headers)
