"""What went wrong at other gateways, once each: docs/security.md names the lesson of each test.

They all ask a whole gateway from outside. Where more is to be said of a lesson, the page names the
tests that say it.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from pathlib import Path

import pytest
from websockets.exceptions import ConnectionClosed, InvalidStatus

from gateway.settings import settings_from
from shared.settings import Environment
from tests.gateway.browser import open_socket
from tests.gateway.conftest import World
from tests.gateway.corpora import read_lines
from tests.gateway.http import Answer, make_request
from tests.gateway.upstreams import App, echo_sockets, listening_on, web_app

UPGRADE = {
    "Connection": "Upgrade",
    "Upgrade": "websocket",
    "Sec-WebSocket-Version": "13",
    "Sec-WebSocket-Key": "dGhlIHNhbXBsZSBub25jZQ==",
}
HTML = {"Accept": "text/html"}


async def upgraded(world: World, sid: str, **headers: str) -> int:
    """Return the status of an upgrade with *headers* (``_`` for ``-``)."""
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return (await world.gateway.ask(sid, "GET", "/ws", UPGRADE | named)).status


async def connections(app: App) -> int:
    await asyncio.sleep(0.05)
    return app.connections


async def test_websockets_need_what_http_needs(world: World) -> None:
    async with web_app() as app:
        for kind in ("web", "vnc", "terminal"):
            sid = await world.publish(port=app.port, kind=kind)
            for path in ("/", "/api?x=1", "/.fumarole/connect", "/.fumarole/state"):
                for method in ("GET", "POST", "OPTIONS", "HEAD", "PUT", "DELETE"):
                    answer = await world.gateway.ask(sid, method, path)
                    assert answer.status in (401, 403), (kind, method, path)
                for origin in ({}, {"Origin": world.gateway.origin(sid)}):
                    answer = await world.gateway.ask(sid, "GET", path, UPGRADE | origin)
                    assert answer.status == 401, (kind, path)
        assert await connections(app) == 0


async def test_websockets_of_other_pages_are_refused(world: World) -> None:
    async with web_app() as app:
        sid, sibling = await world.publish(port=app.port), await world.publish(port=app.port)
        cookie = await world.gateway.open(sid)
        own = world.gateway.origin(sid)
        for origin in (
            "https://evil.example", "null", world.gateway.origin(sibling), own + ".evil.example",
            own.replace("http:", "https:"), own.rpartition(":")[0], own + "/", own + ", " + own, "",
        ):  # fmt: skip
            status = await upgraded(world, sid, Cookie=cookie, Origin=origin)
            assert status == 403, origin
        assert await upgraded(world, sid, Cookie=cookie) == 403, "no Origin at all"
        assert await upgraded(world, sid, Cookie=cookie, Sec_Fetch_Site="same-origin") == 403
        assert await connections(app) == 0
    async with echo_sockets() as port:
        sid = await world.publish(port=port)
        bearer = {"Fumarole-Token": world.gateway.signer.token(sid)}
        answer = await world.gateway.ask(sid, "GET", "/", UPGRADE | bearer)
        assert answer.status == 101, "without Origin by bearer only"


async def test_a_live_socket_ends_with_its_right_and_pings_prolong_nothing(world: World) -> None:
    async with echo_sockets() as port:
        sid = await world.publish(port=port)
        cookie = await world.gateway.open(sid, max_age=3)
        async with open_socket(world.gateway, sid, cookie=cookie, protocol="x", path="/") as socket:
            began = time.monotonic()

            async def stay() -> None:
                while time.monotonic() - began < 20:
                    await socket.ping()
                    await socket.send("still here")
                    await socket.recv()
                    await asyncio.sleep(0.05)

            with pytest.raises(ConnectionClosed) as closed:
                await stay()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 4401
            assert time.monotonic() - began < 10


async def test_an_identifier_is_no_credential(world: World) -> None:
    async with web_app() as app:
        sid = await world.publish(port=app.port)
        for headers in (
            {"Cookie": f"fumarole={sid}"}, {"Cookie": f"__Host-fumarole={sid}"},
            {"Fumarole-Token": sid}, {"Authorization": f"Bearer {sid}"},
            {"X-Forwarded-User": "ada"}, {"Cookie": f"sid={sid}"}, {"X-Session": sid},
        ):  # fmt: skip
            answer = await world.gateway.ask(sid, "GET", f"/?sid={sid}&token={sid}", headers)
            assert answer.status == 401, headers
        posted = await world.gateway.post_token(sid, sid)
        assert posted.status == 401
        assert await connections(app) == 0


async def test_what_lists_sessions_tells_no_secret(world: World) -> None:
    sid = await world.publish(port=1, owner="canary-owner")
    cookie = await world.gateway.open(sid)
    told = (await world.gateway.ask_ops(f"/debug/routes?host={sid}.apps.localhost")).text
    told += (await world.gateway.ask_ops("/debug/routes")).text
    told += (await world.gateway.ask_ops("/metrics")).text
    state = await world.gateway.ask(sid, "GET", "/.fumarole/state", {"Cookie": cookie})
    assert json.loads(state.body).keys() == {"state", "message"}
    for secret in ("canary-owner", cookie.partition("=")[2], "127.0.0.1"):
        assert secret not in told + state.text
    # What operators ask is not asked for where the public asks.
    for path in ("/metrics", "/debug/routes", "/healthz", "/readyz"):
        assert (await world.gateway.ask(sid, "GET", path)).status == 401


async def test_a_cookie_that_a_sibling_sets_authenticates_nobody(world: World) -> None:
    async with web_app() as app:
        sid, sibling = await world.publish(port=app.port), await world.publish(port=app.port)
        mine, theirs = await world.gateway.open(sid), await world.gateway.open(sibling, sub="eve")
        for cookie, status in (
            (f"{mine}; {theirs}", 400), (f"{theirs}; {mine}", 400), (f"{mine}; {mine}", 400),
            (theirs, 403), (f"fumarole=x; {mine}", 400), ("fumarole=", 401),
            (mine.upper(), 401), (f'fumarole="{mine.partition("=")[2]}"', 401),
        ):  # fmt: skip
            answer = await world.gateway.ask(sid, "GET", "/", {"Cookie": cookie})
            assert answer.status == status, cookie[:30]
        assert await connections(app) == 0


async def test_fetch_metadata_is_not_misread(world: World) -> None:
    async with web_app() as app:
        sid = await world.publish(port=app.port)
        cookie = await world.gateway.open(sid)
        refused = [
            {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": mode, "Sec-Fetch-Dest": dest}
            for site in ("cross-site", "same-site", "Same-Origin", "none, none", "nonsense")
            for mode in (
                "no-cors",
                "cors",
                "navigate",
                "same-origin",
                "websocket",
                "nested-navigate",
            )
            for dest in ("empty", "script", "iframe", "image")
        ]
        for said in refused:
            for method in ("GET", "POST"):
                answer = await world.gateway.ask(sid, method, "/", {"Cookie": cookie, **said})
                assert answer.status == 403, (method, said)
        form = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}
        token = world.gateway.signer.token(sid)
        posted = await world.gateway.post_token(sid, token, headers=form)
        assert posted.status == 403
        assert await connections(app) == 0
        # And that cost nobody their link.
        assert (await world.gateway.post_token(sid, token)).status == 303


async def test_redirects_stay_here(world: World) -> None:
    sid = await world.publish(port=1)
    for place in (
        "//evil.example", "/\\evil.example", "\\\\evil.example", "https://evil.example/",
        "/%2fevil.example", "/%5cevil.example", "//evil.example/%2f..", "/.//evil.example",
        "/a\r\nLocation: https://evil.example", "/%0d%0aSet-Cookie:a=b", "/\t/evil.example",
        "///evil.example", "http:evil.example", "javascript:alert(1)", "//user@evil.example/",
        "/..//evil.example", "/%252fevil.example", "/.fumarole/open", "/%2e%66umarole/../x\x00",
    ):  # fmt: skip
        answer = await world.gateway.post_token(sid, world.gateway.signer.token(sid), next=place)
        assert answer.status == 303, place
        location = answer.headers["location"]
        assert location == "/", (place, location)


async def test_targets_lead_nowhere_else(world: World) -> None:
    for host in (
        "169.254.169.254", "10.0.0.1", "::1", "0.0.0.0", "::ffff:169.254.169.254",
        "64:ff9b::a9fe:a9fe", "2002:a9fe:a9fe::1", "fe80::1", "224.0.0.1", "::",
    ):  # fmt: skip
        sid = await world.publish(port=1, target={"host": host})
        cookie = await world.gateway.open(sid)
        answer = await world.gateway.ask(sid, "GET", "/", {"Cookie": cookie})
        assert (answer.status, json.loads(answer.body)["code"]) == (503, "target_forbidden"), host


async def test_secrets_are_in_no_page_and_referrers_are_kept_back(world: World) -> None:
    sid = await world.publish(port=1)
    token = world.gateway.signer.token(sid)
    page = await world.gateway.ask(sid, "GET", f"/.fumarole/open?token={token}", HTML)
    assert page.headers["referrer-policy"] == "same-origin"
    opened = await world.gateway.post_token(sid, token, headers=HTML)
    assert opened.headers["referrer-policy"] == "no-referrer"
    cookie = opened.headers["set-cookie"].partition(";")[0]
    refused = await world.gateway.ask(sid, "GET", f"/{token}", {**HTML, "Cookie": cookie + "x"})
    assert refused.headers["referrer-policy"] == "no-referrer"
    for answer in (page, refused):
        assert token not in answer.text + str(answer.headers)
        assert cookie.partition("=")[2] not in answer.text


class Telling(App):
    """An app that tells the head that it got."""

    async def handle(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        lines = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: %d\r\n\r\n"
        writer.write(lines % len(head) + head)
        await writer.drain()
        writer.close()


async def told_to_app(world: World, sid: str, headers: dict[str, str]) -> str:
    answer = await world.gateway.ask(sid, "GET", "/", headers)
    assert answer.status == 200, answer
    return answer.text


async def test_identity_is_told_by_the_gateway_alone(world: World) -> None:
    app = Telling()
    async with listening_on(app.handle) as port:
        sid = await world.publish(port=port)
        cookie = await world.gateway.open(sid)
        names = [name for name in read_lines("spoofed_fields") if "Forwarded" in name][::7]
        forged = {name: "forged" for name in names if name.lower() != "fumarole-token"}
        told = await told_to_app(world, sid, {"Cookie": cookie} | forged)
        assert "forged" not in told
        assert told.lower().count("x-forwarded-user") == 1
        # Nor can Connection take away what the gateway says.
        nominated = {"Cookie": cookie, "Connection": "X-Forwarded-User, X-Forwarded-For, close"}
        told = await told_to_app(world, sid, nominated)
        assert "X-Forwarded-User: ada" in told
        assert "X-Forwarded-For: 127.0.0.1" in told


async def test_requests_are_not_smuggled_and_connections_not_poisoned(world: World) -> None:
    async with web_app() as app:
        sid = await world.publish(port=app.port)
        cookie = await world.gateway.open(sid)
        for framing in (
            {"Content-Length": "5", "Transfer-Encoding": "chunked"},
            {"Transfer-Encoding": "chunked, identity"}, {"Transfer-Encoding": "\x0bchunked"},
            {"Content-Length": "+5"}, {"Content-Length": "5, 5"}, {"Content-Length ": "5"},
        ):  # fmt: skip
            connection = await world.gateway.connect()
            head = {"Host": world.gateway.host(sid), "Cookie": cookie} | framing
            await connection.send(
                make_request("POST", "/", head) + b"0\r\n\r\nGET /smuggled HTTP/1.1\r\n\r\n"
            )
            answer = await connection.answer()
            assert (answer.status, answer.headers["connection"]) == (400, "close"), framing
            assert await connection.reader.read() == b""
            await connection.close()
        connect = await world.gateway.ask(sid, "CONNECT", "/", {"Cookie": cookie})
        assert connect.status == 405
        assert await connections(app) == 0


async def test_error_pages_are_the_gateways_own(world: World) -> None:
    """No page comes from elsewhere, so that no credential goes there."""
    sid = await world.publish(port=1)
    cookie = await world.gateway.open(sid)
    answer = await world.gateway.ask(sid, "GET", "/", {"Cookie": cookie, **HTML})
    assert answer.status == 502
    sources = re.findall(r"""(?:src|href|action)=["']([^"']*)""", answer.text)
    assert sources
    elsewhere = [one for one in sources if not one.startswith(("/", "#", "data:"))]
    # Links for people, to what the settings name, and no more.
    settings = ("https://orchestrator.example.org", "https://cloud.example.org/jobs/j1?")
    assert all(one.startswith(settings) for one in elsewhere), elsewhere
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'" in policy or "default-src 'self'" in policy


async def test_an_address_that_is_used_again_is_not_the_same_app(world: World) -> None:
    async with echo_sockets() as port:
        sid = await world.publish(port=port)
        cookie = await world.gateway.open(sid)
        async with open_socket(world.gateway, sid, cookie=cookie, protocol="x", path="/") as socket:
            await world.change(sid, port=port, rev=2, target={"id": "pod-2"})
            with pytest.raises(ConnectionClosed) as closed:
                await socket.recv()
            assert closed.value.rcvd is not None
            assert closed.value.rcvd.code == 1012
        # A session that ends gives its address to another; the old cookie opens nothing there.
        await world.remove(sid)
        other = await world.publish(port=port)
        for host in (sid, other):
            with pytest.raises(InvalidStatus) as refused:
                async with open_socket(world.gateway, host, cookie=cookie, protocol="x", path="/"):
                    pass
            assert refused.value.response.status_code in (403, 410)


async def test_logs_are_not_flooded(world: World) -> None:
    before = len(world.gateway.log())
    sid = await world.publish(port=1)
    for _ in range(300):
        connection = await world.gateway.connect()
        await connection.send(b"GET /" + b"x" * 9000 + b" HTTP/1.1\r\nHost: \x00\r\n\r\n")
        await connection.close()
    long = world.gateway.signer.token(sid, sub="u" * 255, name="n" * 255)
    assert (await world.gateway.post_token(sid, long)).status == 303
    too_long = world.gateway.signer.token(sid, sub="u" * 10000)
    assert (await world.gateway.post_token(sid, too_long)).status in (401, 413)
    grown = world.gateway.log()[before:]
    assert len(grown.splitlines()) < 50
    assert len(grown) < 20_000


async def test_a_hostile_app_says_nothing_in_our_name(world: World) -> None:
    async def hostile(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(
            b"HTTP/1.1 200 \x1b[31mOK\r\nSet-Cookie: fumarole=forged; Path=/\r\n"
            b"Content-Length: 2\r\n\r\nok"
        )
        await reader.read()
        writer.close()

    async with listening_on(hostile) as port:
        sid = await world.publish(port=port)
        cookie = await world.gateway.open(sid)
        answer = await world.gateway.ask(sid, "GET", "/", {"Cookie": cookie})
        assert (answer.status, json.loads(answer.body)["code"]) == (502, "app_bad_answer")
        assert "set-cookie" not in answer.headers
    sid = await world.publish(port=1, state="starting", message="<script>alert(1)</script>\x1b[2J")
    cookie = await world.gateway.open(sid)
    page = await world.gateway.ask(sid, "GET", "/", {"Cookie": cookie, **HTML})
    assert page.status == 503
    assert "<script>alert" not in page.text
    assert "\x1b" not in page.text


async def test_nothing_outlives_what_allowed_it(world: World) -> None:
    async with web_app() as app:
        sid = await world.publish(port=app.port)
        cookies = [await world.gateway.open(sid, sub=sub) for sub in ("ada", "bob")]

        async def asked() -> list[int]:
            answers: list[Answer] = [
                await world.gateway.ask(sid, "GET", "/", {"Cookie": one}) for one in cookies
            ]
            return [answer.status for answer in answers]

        assert await asked() == [200, 200]
        await world.revoke(sid=sid, sub="bob")
        assert await asked() == [200, 401]
        await world.revoke(sid=sid)
        assert await asked() == [401, 401]


def test_secrets_have_no_default(tmp_path: Path) -> None:
    """What a gateway needs and nobody gave it is asked for; a guess would be known to all."""
    for key in (b"", b"c2VjcmV0", b"A" * 44, b"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="):
        path = tmp_path / "key"
        path.write_bytes(key)
        environment = Environment({"FUMAROLE_GATEWAY_GRANT_KEY_FILE": str(path)})
        settings_from(environment)
        told = [one for one in environment.problems if "GRANT_KEY_FILE" in one]
        assert told, key
        assert any("LINK_KEY_FILE is not set" in one for one in environment.problems)
