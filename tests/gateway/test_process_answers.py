"""What a running gateway answers to those who hold something, and to those who do not."""

from __future__ import annotations

import asyncio
import json
import time

import pytest
from websockets.exceptions import ConnectionClosed

from tests.gateway.browser import open_socket
from tests.gateway.bus.following import sid_of
from tests.gateway.conftest import World
from tests.gateway.http import HTML, code_of
from tests.gateway.upstreams import echo_sockets, web_app

# Bearers


async def test_a_bearer_serves_until_it_expires_and_never_opens(world: World) -> None:
    async with web_app() as app:
        sid = await world.publish(port=app.port)
        token = world.gateway.signer.token(sid)
        for header in ({"Fumarole-Token": token}, {"Authorization": f"Bearer {token}"}):
            assert (await world.gateway.ask(sid, "GET", "/", header)).body == b"hello"
        assert all(token.encode() not in head for head in app.heads)
        answer = await world.gateway.post_token(sid, token)
        assert (answer.status, code_of(answer)) == (401, "token_spent")


async def test_a_token_that_opened_is_no_bearer_any_more(world: World) -> None:
    async with web_app() as app:
        sid = await world.publish(port=app.port)
        token = world.gateway.signer.token(sid)
        assert (await world.gateway.post_token(sid, token)).status == 303
        answer = await world.gateway.ask(sid, "GET", "/", {"Fumarole-Token": token})
        assert (answer.status, code_of(answer)) == (401, "token_spent")
        assert app.connections == 0


async def test_somebody_elses_bearer_is_the_apps_own(world: World) -> None:
    async with web_app() as app:
        sid = await world.publish(port=app.port)
        cookie = await world.gateway.open(sid)
        sent = {"Cookie": cookie, "Authorization": "Bearer of.the.app"}
        assert (await world.gateway.ask(sid, "GET", "/", sent)).status == 200
        assert b"Authorization: Bearer of.the.app\r\n" in app.heads[-1]


# Ends


async def test_an_ended_session_is_410_for_its_people_and_404_for_others(world: World) -> None:
    sid = await world.publish()
    cookie = await world.gateway.open(sid)
    await world.remove(sid)
    gone = await world.gateway.ask(sid, "GET", "/", {"Cookie": cookie})
    assert (gone.status, code_of(gone)) == (410, "session_ended")
    assert (await world.gateway.ask(sid, "GET", "/")).status == 404
    page = await world.gateway.ask(sid, "GET", "/", {"Cookie": cookie, **HTML})
    assert page.status == 410
    assert "session has ended" in page.text


@pytest.mark.parametrize(
    ("what", "code"),
    [("remove", 4410), ("revoke", 4401), ("starting", 1012), ("moved", 1012), ("expired", 4410)],
)
async def test_an_open_websocket_ends_with_its_right(world: World, what: str, code: int) -> None:
    async with echo_sockets() as port:
        sid = await world.publish(port=port)
        cookie = await world.gateway.open(sid)
        async with open_socket(
            world.gateway, sid, cookie=cookie, protocol="x", path="/ws"
        ) as socket:
            await socket.send("hello")
            assert await socket.recv() == "hello"
            start = time.monotonic()
            match what:
                case "remove":
                    await world.remove(sid)
                case "revoke":
                    await world.revoke(sid=sid, sub="ada")
                case "starting":
                    await world.change(sid, port=port, state="starting")
                case "expired":
                    await world.change(sid, port=port, expires_at=time.time())
                case _:
                    await world.change(sid, port=port, target={"id": "pod-2"})
            with pytest.raises(ConnectionClosed) as closed:
                async with asyncio.timeout(5):
                    await socket.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == code
            assert time.monotonic() - start < 1.5


async def test_a_grant_ends_when_its_time_is_over(world: World) -> None:
    async with echo_sockets() as port:
        sid = await world.publish(port=port)
        cookie = await world.gateway.open(sid, max_age=2)
        async with open_socket(
            world.gateway, sid, cookie=cookie, protocol="x", path="/ws"
        ) as socket:
            with pytest.raises(ConnectionClosed) as closed:
                async with asyncio.timeout(5):
                    await socket.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 4401
        over = await world.gateway.ask(sid, "GET", "/", {"Cookie": cookie})
        assert (over.status, code_of(over)) == (401, "grant_ended")


# The rest of the table


async def test_public_links_serve_public_routes_without_asking_and_nothing_of_ours(
    world: World,
) -> None:
    async with web_app() as app:
        sid = await world.publish(port=app.port, public=True, links=["demo.links.localhost"])
        connection = await world.gateway.connect()
        host = f"demo.links.localhost:{world.gateway.public_port}"
        assert (await connection.request("GET", "/", {"Host": host})).body == b"hello"
        assert b"X-Forwarded-User" not in app.heads[-1]
        for path in ("/.fumarole/open", "/.fumarole/state", "/.fumarole/static/x"):
            answer = await connection.request("GET", path, {"Host": host})
            assert answer.status == 404
        await world.change(sid, port=app.port, links=["demo.links.localhost"])
        assert (await connection.request("GET", "/", {"Host": host})).status == 404
        await connection.close()


@pytest.mark.parametrize(
    "host", ["nowhere.example", "apps.localhost:18080", "{sid}.apps.localhost"]
)
async def test_other_hosts_and_ports_are_404(world: World, host: str) -> None:
    sid = await world.publish()
    connection = await world.gateway.connect()
    answer = await connection.request("GET", "/", {"Host": host.format(sid=sid)})
    assert answer.status == 404
    await connection.close()


async def test_a_starting_session_is_503_with_its_own_words(world: World) -> None:
    sid = await world.publish(state="starting", message="Pulling <image>")
    cookie = await world.gateway.open(sid)
    answer = await world.gateway.ask(sid, "GET", "/", {"Cookie": cookie})
    assert (answer.status, code_of(answer)) == (503, "session_starting")
    assert int(answer.headers["retry-after"]) > 0
    page = await world.gateway.ask(sid, "GET", "/", {"Cookie": cookie, **HTML})
    assert page.status == 503
    assert "Pulling &lt;image&gt;" in page.text
    state = await world.gateway.ask(sid, "GET", "/.fumarole/state", {"Cookie": cookie})
    assert json.loads(state.body) == {"state": "starting", "message": "Pulling <image>"}


async def test_a_target_out_of_bounds_is_503_and_one_that_is_not_there_502(world: World) -> None:
    outside = await world.publish(target={"host": "10.1.2.3"})
    cookie = await world.gateway.open(outside)
    answer = await world.gateway.ask(outside, "GET", "/", {"Cookie": cookie})
    assert (answer.status, code_of(answer)) == (503, "target_forbidden")
    async with web_app() as app:
        nobody = await world.publish(port=app.port)
    await asyncio.sleep(0.05)
    cookie = await world.gateway.open(nobody)
    answer = await world.gateway.ask(nobody, "GET", "/", {"Cookie": cookie})
    assert (answer.status, code_of(answer)) == (502, "app_unreachable")
    host = world.gateway.host(nobody).split(":")[0]
    told = json.loads((await world.gateway.ask_ops(f"/debug/routes?host={host}")).text)["host"]
    assert (told["why"], told["failed"]["code"]) == ("failing", "app_unreachable")


async def test_a_route_that_cannot_be_read_is_503_and_told_to_operators(world: World) -> None:
    sid = sid_of(77_777_777)
    await world.publisher.upsert(sid, b'{"sid":"other"}', now=time.time())
    await world.settled()
    answer = await world.gateway.ask(sid, "GET", "/")
    assert (answer.status, code_of(answer)) == (503, "session_unreadable")
    assert '"unreadable": 1' in (await world.gateway.ask_ops("/debug/routes")).text
    await world.publisher.remove(sid, "ended", now=time.time())
