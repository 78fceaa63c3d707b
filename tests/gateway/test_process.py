"""The gateway as a process, from outside: contract by contract, answer by answer."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import re
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from websockets.exceptions import ConnectionClosed

from shared.bus import connect
from tests.gateway.browser import open_socket
from tests.gateway.conftest import World
from tests.gateway.following import make_route, published, sid_of
from tests.gateway.http import Answer, Connection
from tests.gateway.process import ROOT, GatewayProcess
from tests.gateway.signing import Signer
from tests.gateway.upstreams import App, echo_sockets, listening_on, web_app
from tests.programs import RedisServer, redis_program

HTML = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def code_of(answer: Answer) -> str:
    """Return the code in a JSON refusal, after looking at how it was sent."""
    assert answer.headers["cache-control"] == "no-store"
    assert answer.headers["content-type"].startswith("application/json")
    told = json.loads(answer.body)
    assert set(told) == {"code", "message"}
    return str(told["code"])


# Opening


async def test_a_token_opens_its_session_once_and_the_cookie_works_on(world: World) -> None:
    async with web_app() as app:
        sid = await world.publish(port=app.port)
        token = world.gateway.signer.token(sid)
        answer = await world.gateway.post_token(sid, token, next="/lab?x=1")
        assert (answer.status, answer.headers["location"]) == (303, "/lab?x=1")
        assert answer.headers["cache-control"] == "no-store"
        cookie = answer.headers["set-cookie"].partition(";")[0]
        assert cookie.startswith("fumarole=")
        for _ in range(2):
            got = await world.gateway.ask(sid, "GET", "/", {"Cookie": cookie})
            assert (got.status, got.body) == (200, b"hello")
        again = await world.gateway.post_token(sid, token)
        assert (again.status, code_of(again)) == (401, "token_spent")


async def test_the_cookie_lives_no_longer_than_its_session(world: World) -> None:
    sid = await world.publish(port=1, expires_at=time.time() + 100)
    answer = await world.gateway.post_token(sid, world.gateway.signer.token(sid))
    (age,) = re.findall(r"Max-Age=(\d+)", answer.headers["set-cookie"])
    assert 90 <= int(age) <= 100


async def test_the_app_sees_neither_cookie_nor_token_of_ours(world: World) -> None:
    async with web_app() as app:
        sid = await world.publish(port=app.port)
        cookie = await world.gateway.open(sid, sub="ada lövelace")
        sent = {"Cookie": f"a=1; {cookie}; b=2", "X-Forwarded-User": "root", "X_Real_IP": "1.2.3.4"}
        assert (await world.gateway.ask(sid, "GET", "/", sent)).status == 200
        head = app.heads[-1]
        assert cookie.partition("=")[2].encode() not in head
        assert b"Cookie: a=1; b=2\r\n" in head
        assert b"X-Forwarded-User: ada%20l%C3%B6velace\r\n" in head
        assert b"root" not in head
        assert b"1.2.3.4" not in head
        token = world.gateway.signer.token(sid)
        assert (await world.gateway.ask(sid, "GET", "/", {"Fumarole-Token": token})).status == 200
        assert token.encode() not in app.heads[-1]


async def test_without_a_token_the_link_opens_nothing_and_nothing_is_dialled(world: World) -> None:
    async with web_app() as app:
        for state in ("ready", "starting", "closing"):
            sid = await world.publish(port=app.port, state=state)
            for method in ("GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE"):
                answer = await world.gateway.ask(sid, method, "/secret")
                assert answer.status == 401, (state, method)
                assert answer.headers["www-authenticate"].startswith("Bearer")
            upgrade = {
                "Origin": world.gateway.origin(sid),
                "Connection": "Upgrade",
                "Upgrade": "websocket",
                "Sec-WebSocket-Version": "13",
                "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
            }
            assert (await world.gateway.ask(sid, "GET", "/ws", upgrade)).status == 401
        assert app.connections == 0


def hs256_with_public_key(signer: Signer, token: str) -> str:
    """Return *token* signed again, with the public key as if it were a secret."""
    header = {"alg": "HS256", "kid": signer.kid, "typ": "JWT"}
    head = base64.urlsafe_b64encode(json.dumps(header).encode()).rstrip(b"=")
    signed = head + b"." + token.split(".")[1].encode()
    public = signer.private.public_key().public_bytes(
        Encoding.PEM, PublicFormat.SubjectPublicKeyInfo
    )
    mark = hmac.new(public, signed, hashlib.sha256).digest()
    return (signed + b"." + base64.urlsafe_b64encode(mark).rstrip(b"=")).decode()


def unsigned(token: str) -> str:
    """Return *token* with ``alg`` none."""
    header = {"alg": "none", "kid": "k1", "typ": "JWT"}
    head = base64.urlsafe_b64encode(json.dumps(header).encode()).rstrip(b"=").decode()
    return f"{head}.{token.split('.')[1]}."


@pytest.mark.parametrize(
    ("how", "status"),
    [
        ("foreign", 401),
        ("none", 401),
        ("hs256", 401),
        ("expired", 401),
        ("early", 401),
        ("audience", 401),
        ("issuer", 401),
        ("kid", 401),
        ("long", 401),
        ("bool rank", 401),
        ("garbage", 401),
        ("sid", 403),
        ("job", 403),
        ("rank", 403),
        ("kind", 403),
        ("view", 403),
    ],
)
async def test_a_token_that_proves_nothing_here_is_refused_and_costs_nobody_their_link(
    world: World, how: str, status: int
) -> None:
    async with web_app() as app:
        sid = await world.publish(port=app.port)
        token = bad_token(world.gateway.signer, sid, how)
        answer = await world.gateway.post_token(sid, token)
        assert answer.status == status, answer.body
        code_of(answer)
        as_bearer = {"Fumarole-Token": token}
        assert (await world.gateway.ask(sid, "GET", "/", as_bearer)).status == status
        assert app.connections == 0
        # The same jti, in a good token, is not spent.
        good = world.gateway.signer.token(sid, jti=f"jti-{sid}-{how.replace(' ', '-')}")
        assert (await world.gateway.post_token(sid, good)).status == 303


def bad_token(signer: Signer, sid: str, how: str) -> str:
    """Return a token that is wrong in one way, with the jti that a good one will have."""
    now = int(time.time())
    jti = f"jti-{sid}-{how.replace(' ', '-')}"
    changed: dict[str, dict[str, Any]] = {
        "expired": {"iat": now - 100, "exp": now - 11},
        "early": {"nbf": now + 30},
        "audience": {"aud": ["fumarole-gateway", "other"]},
        "issuer": {"iss": "https://elsewhere.example"},
        "long": {"exp": now + 3601},
        "bool rank": {"rank": False},
        "job": {"job": "j2"},
        "rank": {"rank": 1},
        "kind": {"kind": "terminal"},
        "view": {"mode": "view"},
    }
    match how:
        case "foreign":
            return Signer(signer.kid).token(sid, jti=jti)
        case "kid":
            return Signer("k9").token(sid, jti=jti)
        case "none":
            return unsigned(signer.token(sid, jti=jti))
        case "hs256":
            return hs256_with_public_key(signer, signer.token(sid, jti=jti))
        case "sid":
            return signer.token(sid_of(99), jti=jti)
        case "garbage":
            return "a.b.c"
        case _:
            return signer.token(sid, jti=jti, **changed[how])


async def test_the_public_key_is_no_secret_under_which_tokens_verify(world: World) -> None:
    sid = await world.publish()
    pem = world.gateway.signer.private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
    signed = unsigned(world.gateway.signer.token(sid)).rpartition(".")[0]
    mark = base64.urlsafe_b64encode(hmac.digest(pem, signed.encode(), "sha256")).rstrip(b"=")
    assert (await world.gateway.post_token(sid, f"{signed}.{mark.decode()}")).status == 401


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({}, 303),
        ({"Origin": "own"}, 303),
        ({"Origin": "own", "Sec-Fetch-Site": "same-origin"}, 303),
        ({"Origin": "https://orchestrator.example.org", "Sec-Fetch-Site": "cross-site"}, 303),
        ({"Origin": "null"}, 403),
        ({"Origin": "https://evil.example"}, 403),
        ({"Sec-Fetch-Site": "cross-site"}, 403),
        ({"Origin": "sibling", "Sec-Fetch-Site": "same-site"}, 403),
    ],
)
async def test_tokens_are_taken_from_known_pages_only(
    world: World, headers: dict[str, str], status: int
) -> None:
    sid = await world.publish()
    names = {"own": world.gateway.origin(sid), "sibling": world.gateway.origin(sid_of(5))}
    sent = {name: names.get(value, value) for name, value in headers.items()}
    token = world.gateway.signer.token(sid)
    answer = await world.gateway.post_token(sid, token, headers=sent)
    assert answer.status == status
    if status == 403:
        assert code_of(answer) == "other_origin"
        assert (await world.gateway.post_token(sid, token)).status == 303


async def test_a_body_that_is_too_large_or_unreadable_is_refused(world: World) -> None:
    sid = await world.publish()
    large = await world.gateway.post_token(sid, "a" * 20_000)
    assert (large.status, code_of(large)) == (413, "body_too_large")
    sent = {"Content-Type": "application/json"}
    broken = await world.gateway.ask(sid, "POST", "/.fumarole/open", sent, b"{")
    assert (broken.status, code_of(broken)) == (400, "bad_request")


async def test_another_user_is_asked_first_and_the_link_is_not_spent_by_it(world: World) -> None:
    sid = await world.publish()
    cookie = await world.gateway.open(sid, sub="ada")
    token = world.gateway.signer.token(sid, sub="grace", name="<b>Grace</b>")
    asked = await world.gateway.post_token(sid, token, headers={"Cookie": cookie})
    assert (asked.status, code_of(asked)) == (409, "other_user")
    page = await world.gateway.post_token(sid, token, headers={"Cookie": cookie, **HTML})
    assert page.status == 409
    assert "&lt;b&gt;Grace&lt;/b&gt;" in page.text
    assert "<b>" not in page.text
    done = await world.gateway.post_token(sid, token, headers={"Cookie": cookie}, replace="1")
    assert done.status == 303


async def test_the_same_user_opens_again_without_being_asked(world: World) -> None:
    sid = await world.publish()
    cookie = await world.gateway.open(sid, sub="ada")
    token = world.gateway.signer.token(sid, sub="ada")
    answer = await world.gateway.post_token(sid, token, headers={"Cookie": cookie})
    assert answer.status == 303


@pytest.mark.parametrize(
    ("then", "status", "code"),
    [
        ({"state": "closing"}, 410, "session_closing"),
        ({"expires_at": 1.0}, 410, "session_expired"),
        ({"state": "starting"}, 303, None),
    ],
)
async def test_what_opens_depends_on_the_routes_state(
    world: World, then: dict[str, Any], status: int, code: str | None
) -> None:
    sid = await world.publish(**then)
    answer = await world.gateway.post_token(sid, world.gateway.signer.token(sid))
    assert answer.status == status
    if code is not None:
        assert code_of(answer) == code


async def test_a_host_that_is_not_known_yet_gets_one_repair_and_then_404(world: World) -> None:
    unknown = sid_of(123_456)
    start = time.monotonic()
    answer = await world.gateway.post_token(unknown, world.gateway.signer.token(unknown))
    assert (answer.status, code_of(answer)) == (404, "not_found")
    assert time.monotonic() - start < 1.5
    assert (await world.gateway.ask(unknown, "GET", "/")).status == 404


async def test_a_revoked_kid_opens_nothing_and_ends_what_it_opened(world: World) -> None:
    signer = Signer(f"k-{time.time_ns()}")
    gateway = world.gateway
    gateway.signer.publish(gateway.keys, signer)
    sid = await world.publish()
    await asyncio.sleep(0)
    token = signer.token(sid)
    answer = await gateway.post_token(sid, token)
    if answer.status == 401:  # an unknown kid was asked for less than 10 s ago
        await asyncio.sleep(10.5)
        answer = await gateway.post_token(sid, token)
    assert answer.status == 303
    cookie = answer.headers["set-cookie"].partition(";")[0]
    await world.revoke(kid=signer.kid)
    assert (await gateway.post_token(sid, signer.token(sid))).status == 401
    ended = await gateway.ask(sid, "GET", "/", {"Cookie": cookie})
    assert (ended.status, code_of(ended)) == (401, "grant_revoked")


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


async def test_a_route_that_cannot_be_read_is_503_and_told_to_operators(world: World) -> None:
    sid = sid_of(77_777_777)
    await world.publisher.upsert(sid, b'{"sid":"other"}', now=time.time())
    await world.settled()
    answer = await world.gateway.ask(sid, "GET", "/")
    assert (answer.status, code_of(answer)) == (503, "session_unreadable")
    assert '"unreadable": 1' in (await world.gateway.ask_ops("/debug/routes")).text
    await world.publisher.remove(sid, "ended", now=time.time())


# Operators


async def test_the_ops_listener_tells_health_readiness_and_metrics(world: World) -> None:
    assert (await world.gateway.ask_ops("/healthz")).status == 200
    assert (await world.gateway.ask_ops("/readyz")).status == 200
    await world.gateway.ask(sid_of(8), "GET", "/")
    metrics = (await world.gateway.ask_ops("/metrics")).text
    for line in (
        'fumarole_gateway_bus{state="following"} 1.0',
        "fumarole_gateway_seq ",
        "fumarole_gateway_routes{",
        'fumarole_gateway_refusals_total{code="not_found"}',
    ):
        assert line in metrics
    sid = await world.publish()
    told = await world.gateway.ask_ops(f"/debug/routes?host={sid}.apps.localhost")
    assert json.loads(told.body)["host"]["why"] == "served"


# Its life


@asynccontextmanager
async def alone(folder: Path, **settings: str) -> AsyncIterator[tuple[World, RedisServer]]:
    """A gateway and a Redis of this test's own, to be harmed."""
    with RedisServer(redis_program(), folder) as server:
        client = connect(server.url)
        publisher = await published(client)
        try:
            async with GatewayProcess(folder, server.url, **settings) as gateway:
                yield World(gateway, publisher), server
        finally:
            await client.aclose()


async def test_a_restarted_gateway_knows_its_people_again(tmp_path: Path) -> None:
    async with alone(tmp_path) as (world, _), web_app() as app:
        sid = await world.publish(port=app.port)
        cookie = await world.gateway.open(sid)
        world.gateway.kill()
        await world.gateway.start()
        answer = await world.gateway.ask(sid, "GET", "/", {"Cookie": cookie})
        assert (answer.status, answer.body) == (200, b"hello")


async def test_sigterm_drains_and_ends_in_time(tmp_path: Path) -> None:
    async with alone(tmp_path) as (world, _), echo_sockets() as port:
        sid = await world.publish(port=port)
        cookie = await world.gateway.open(sid)
        async with open_socket(
            world.gateway, sid, cookie=cookie, protocol="x", path="/ws"
        ) as socket:
            start = time.monotonic()
            world.gateway.signal(signal.SIGTERM)
            with pytest.raises(ConnectionClosed) as closed:
                await socket.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1001
        assert await world.gateway.wait() == 0
        assert time.monotonic() - start < 4
        with pytest.raises(ConnectionRefusedError):
            await world.gateway.connect()


async def test_a_second_signal_ends_at_once(tmp_path: Path) -> None:
    async with (
        alone(tmp_path, FUMAROLE_GATEWAY_DRAIN_SECONDS="60") as (world, _),
        slow_app() as app,
    ):
        sid = await world.publish(port=app.port)
        cookie = await world.gateway.open(sid)
        connection = await world.gateway.connect()
        head = f"GET / HTTP/1.1\r\nHost: {world.gateway.host(sid)}\r\nCookie: {cookie}\r\n\r\n"
        await connection.send(head.encode())
        async with asyncio.timeout(5):
            while not app.connections:
                await asyncio.sleep(0.01)
        world.gateway.signal(signal.SIGTERM)
        async with asyncio.timeout(5):
            while (await world.gateway.ask_ops("/readyz")).status != 503:
                await asyncio.sleep(0.02)
        start = time.monotonic()
        world.gateway.signal(signal.SIGTERM)
        assert await world.gateway.wait() == 1
        assert time.monotonic() - start < 1
        await connection.close()


@asynccontextmanager
async def slow_app() -> AsyncIterator[App]:
    """An app that takes a request and never answers."""

    class Slow(App):
        async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            self.connections += 1
            await reader.read(-1)
            writer.close()

    app = Slow()
    async with listening_on(app.handle) as app.port:
        yield app


async def test_a_lost_redis_opens_nothing_serves_what_is_known_and_then_closes(
    tmp_path: Path,
) -> None:
    async with (
        alone(tmp_path, FUMAROLE_GATEWAY_BUS_GRACE_SECONDS="1") as (world, server),
        echo_sockets() as port,
        web_app() as app,
    ):
        sid = await world.publish(port=port)
        page = await world.publish(port=app.port)
        cookie = await world.gateway.open(sid)
        reading = await world.gateway.open(page)
        bearer = {"Fumarole-Token": world.gateway.signer.token(page)}
        assert (await world.gateway.ask(page, "GET", "/", bearer)).status == 200
        async with open_socket(
            world.gateway, sid, cookie=cookie, protocol="x", path="/ws"
        ) as socket:
            server.kill()
            answer = await world.gateway.post_token(sid, world.gateway.signer.token(sid))
            assert (answer.status, code_of(answer)) == (503, "bus_lost")
            known = await world.gateway.ask(page, "GET", "/", {"Cookie": reading})
            assert known.status == 200
            assert (await world.gateway.ask(page, "GET", "/", bearer)).status == 200
            fresh = {"Fumarole-Token": world.gateway.signer.token(page)}
            assert (await world.gateway.ask(page, "GET", "/", fresh)).status == 503
            assert (await world.gateway.ask_ops("/readyz")).status == 200
            with pytest.raises(ConnectionClosed) as closed:
                async with asyncio.timeout(12):
                    await socket.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1012
        lost = await world.gateway.ask(page, "GET", "/", {"Cookie": reading})
        assert (lost.status, code_of(lost)) == (503, "bus_lost")
        assert int(lost.headers["retry-after"]) > 0
        assert (await world.gateway.ask_ops("/readyz")).status == 503


async def test_a_silent_controller_leaves_what_is_open_and_dials_nothing(tmp_path: Path) -> None:
    async with (
        alone(tmp_path, FUMAROLE_GATEWAY_CONTROLLER_GRACE_SECONDS="1") as (world, _),
        echo_sockets() as port,
        web_app() as app,
    ):
        sid = await world.publish(port=port)
        page = await world.publish(port=app.port)
        cookie, reading = await world.gateway.open(sid), await world.gateway.open(page)
        async with open_socket(
            world.gateway, sid, cookie=cookie, protocol="x", path="/ws"
        ) as socket:
            await asyncio.sleep(1.3)
            answer = await world.gateway.ask(page, "GET", "/", {"Cookie": reading})
            assert (answer.status, code_of(answer)) == (503, "controller_silent")
            assert app.connections == 0
            await socket.send("still there")
            assert await socket.recv() == "still there"
            await world.publisher.beat(now=time.time())
            await asyncio.sleep(0.1)
            assert (await world.gateway.ask(page, "GET", "/", {"Cookie": reading})).status == 200


async def test_a_token_from_before_redis_forgot_is_503_for_both_uses(tmp_path: Path) -> None:
    async with alone(tmp_path) as (world, _):
        sid = await world.publish()
        route = make_route(sid, hosts=[f"{sid}.apps.localhost"])
        raw = json.dumps(route).encode()
        await world.publisher.rebuild(
            {sid: raw}, {}, epoch="e2", now=time.time(), since=time.time()
        )
        await world.settled()
        token = world.gateway.signer.token(sid)
        answer = await world.gateway.post_token(sid, token)
        assert (answer.status, code_of(answer)) == (503, "token_unsure")
        answer = await world.gateway.ask(sid, "GET", "/", {"Fumarole-Token": token})
        assert (answer.status, code_of(answer)) == (503, "token_unsure")


async def test_a_gateway_without_a_redis_starts_says_so_and_waits(tmp_path: Path) -> None:
    gateway = GatewayProcess(tmp_path, f"unix://{tmp_path}/redis.sock")
    try:
        await gateway.start(ready=False)
        ready = await gateway.ask_ops("/readyz")
        assert ready.status == 503
        assert "no route table" in ready.text
        assert (await gateway.ask(sid_of(1), "GET", "/")).status == 503
        with RedisServer(redis_program(), tmp_path) as server:
            client = connect(server.url)
            await published(client)
            await client.aclose()
            async with asyncio.timeout(10):
                while (await gateway.ask_ops("/readyz")).status != 200:
                    await asyncio.sleep(0.05)
    finally:
        gateway.kill()


async def test_bad_settings_end_it_with_every_problem(tmp_path: Path) -> None:
    done = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "gateway"],
        env={"PATH": "/usr/bin:/bin", "FUMAROLE_GATEWAY_LISTEN": "nowhere"},
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 2
    assert done.stderr.count("error: FUMAROLE_") >= 7
    assert "Traceback" not in done.stderr


async def test_an_address_that_is_taken_ends_it_with_a_word(tmp_path: Path) -> None:
    taken = await asyncio.start_server(lambda _r, _w: None, "127.0.0.1", 0)
    port = taken.sockets[0].getsockname()[1]
    gateway = GatewayProcess(
        tmp_path, f"unix://{tmp_path}/no", FUMAROLE_GATEWAY_LISTEN=f"127.0.0.1:{port}"
    )
    try:
        with pytest.raises(AssertionError):
            await gateway.start()
        assert await gateway.wait() == 1
        assert "cannot start" in gateway.log()
        assert "Traceback" not in gateway.log()
    finally:
        taken.close()
        await taken.wait_closed()


async def test_no_secret_is_found_in_what_it_wrote(tmp_path: Path) -> None:
    async with alone(tmp_path) as (world, _), web_app() as app:
        sid = await world.publish(port=app.port)
        token = world.gateway.signer.token(sid, jti="canary-jti")
        cookie = (await world.gateway.post_token(sid, token)).headers["set-cookie"]
        value = cookie.partition(";")[0].partition("=")[2]
        seen = b""
        for headers in (
            {"Cookie": f"fumarole={value}x"},
            {"Fumarole-Token": token},
            {"Authorization": f"Bearer {token}"},
            {"Cookie": f"fumarole={value}; fumarole={value}"},
        ):
            for accept in ({}, HTML):
                answer = await world.gateway.ask(sid, "GET", f"/?token={token}", headers | accept)
                seen += answer.body + str(answer.headers).encode()
        seen += (await world.gateway.ask_ops("/metrics")).body
        seen += (await world.gateway.ask_ops(f"/debug/routes?host={sid}.apps.localhost")).body
        seen += world.gateway.log().encode()
        secrets = [token, value, "canary-jti", (tmp_path / "link").read_text()]
        for secret in [*secrets, (tmp_path / "grant").read_text()]:
            assert secret.encode() not in seen


async def test_pages_answer_one_request_and_never_the_next(world: World) -> None:
    sid = await world.publish()
    connection: Connection = await world.gateway.connect()
    head = f"GET /.fumarole/open HTTP/1.1\r\nHost: {world.gateway.host(sid)}\r\n\r\n".encode()
    await connection.send(head + head)
    answer = await connection.answer()
    assert answer.status == 200
    assert answer.headers["connection"] == "close"
    async with asyncio.timeout(5):
        assert await connection.reader.read() == b""
    await connection.close()
