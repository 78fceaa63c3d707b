"""Tests which credential counts, and that the app receives no part of it."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import pytest

from tests.contract import frames
from tests.contract.conftest import Serve
from tests.contract.rig import Rig, Session
from tests.contract.tokens import base64url, new_jti
from tests.contract.upstream import App, websocket


def broken(token: str) -> str:
    """Return *token* with a signature that does not verify."""
    head, _, signature = token.rpartition(".")
    data = bytearray(base64.urlsafe_b64decode(signature + "=="))
    data[0] ^= 1
    return f"{head}.{base64url(bytes(data))}"


async def present(rig: Rig, session: Session, what: str) -> list[tuple[str, str]]:
    """Return fields for *what*, such as ``+header -cookie +bearer``: + is valid, - is invalid."""
    fields = []
    for word in what.split():
        good, place = word[0] == "+", word[1:]
        token = rig.token(session)
        if place == "cookie":
            value = await rig.opened(session) if good else f"{rig.cookie_name}=nonsense"
            fields.append(("Cookie", value))
        else:
            value = token if good else broken(token)
            header = place == "header"
            fields.append(
                ("Fumarole-Token", value) if header else ("Authorization", f"Bearer {value}")
            )
    return fields


@pytest.mark.parametrize(
    ("what", "status"),
    [
        ("+header", 200),
        ("+cookie", 200),
        ("+bearer", 200),
        ("+header -cookie -bearer", 200),
        ("+cookie -bearer", 200),
        ("+header +cookie +bearer", 200),
        ("-header", 401),
        ("-cookie", 401),
        ("-bearer", 401),
        ("-header +cookie +bearer", 401),
        ("-header +cookie", 401),
        ("-header +bearer", 401),
        ("-cookie +bearer", 401),
    ],
)
async def test_the_first_credential_decides_without_fallback(
    rig: Rig, serve: Serve, what: str, status: int
) -> None:
    app = await serve()
    session = await rig.session(app)
    fields = await present(rig, session, what)
    for order in (fields, fields[::-1]):
        assert (await rig.get(session, fields=order)).status == status
    assert len(app.requests) == (2 if status == 200 else 0)
    assert bool(app.connections) == (status == 200)
    # No part of any credential reached the app.
    for _, value in fields:
        secret = value.rpartition(" ")[2].rpartition("=")[2]
        assert secret.encode() not in app.received


@pytest.mark.parametrize("what", ["+header", "+cookie", "+bearer", "+cookie +bearer"])
async def test_no_gateway_credential_is_forwarded_in_a_websocket_upgrade(
    rig: Rig, serve: Serve, what: str
) -> None:
    app = await serve(websocket())
    session = await rig.session(app)
    fields = await present(rig, session, what)
    _, response = await rig.upgrade(session, "/", [("Origin", session.origin), *fields])
    assert response.status == 101
    assert {"fumarole-token", "cookie", "authorization"}.isdisjoint(app.requests[0].names())


@pytest.mark.parametrize("value", ["", " ", "x", "Bearer x"])
async def test_an_empty_or_foreign_fumarole_token_is_refused(
    rig: Rig, serve: Serve, value: str
) -> None:
    app = await serve()
    session = await rig.session(app)
    fields = [("Fumarole-Token", value), ("Cookie", await rig.opened(session))]
    assert (await rig.get(session, fields=fields)).status in (400, 401)
    assert app.connections == []


# Authorization fields that belong to the app


def foreign_bearer(audience: object) -> str:
    """Return a bearer token of another issuer."""
    head = base64url(json.dumps({"alg": "HS256"}).encode())
    return f"Bearer {head}.{base64url(json.dumps({'aud': audience}).encode())}.{base64url(b'x')}"


@pytest.mark.parametrize(
    "value",
    [
        "Basic YWRhOnNlY3JldA==",
        "token 0123456789abcdef",
        "Bearer 0123456789abcdef",
        "Bearer a.b.c",
        "Bearer ....",
        "Bearer",
        'Digest username="ada", uri="/", nonce="fumarole-gateway"',
        foreign_bearer("jupyter"),
        foreign_bearer(["a", "b"]),
        foreign_bearer("fumarole-gateway2"),
        foreign_bearer(None),
        "bearer  two-spaces",
        "\xfcber",
    ],
)
async def test_foreign_authorization_is_forwarded_to_the_app(
    rig: Rig, serve: Serve, value: str
) -> None:
    app = await serve()
    session = await rig.session(app)
    fields = [("Authorization", value), ("Cookie", await rig.opened(session))]
    assert (await rig.get(session, fields=fields)).status == 200
    assert app.requests[0].all("Authorization") == [value]
    assert (await rig.get(session, fields=fields[:1])).status == 401
    assert len(app.requests) == 1


@pytest.mark.parametrize("scheme", ["Bearer", "bearer", "BEARER"])
async def test_a_gateway_bearer_token_is_never_forwarded(
    rig: Rig, serve: Serve, scheme: str
) -> None:
    app = await serve()
    session = await rig.session(app)
    token = rig.token(session)
    fields = [("Authorization", f"{scheme} {token}"), ("Cookie", await rig.opened(session))]
    assert (await rig.get(session, fields=fields)).status == 200
    assert token.encode() not in app.received


async def test_with_fumarole_token_authorization_is_forwarded_to_the_app(
    rig: Rig, serve: Serve
) -> None:
    app = await serve()
    session = await rig.session(app)
    fields = [("Fumarole-Token", rig.token(session)), ("Authorization", "Basic YTpi")]
    assert (await rig.get(session, fields=fields)).status == 200
    assert app.requests[0].get("Authorization") == "Basic YTpi"


# Places where the gateway reads no token


@pytest.mark.parametrize("name", ["token", "access_token", "fumarole-token", "jwt"])
async def test_a_token_in_the_query_is_ignored(rig: Rig, serve: Serve, name: str) -> None:
    app = await serve()
    session = await rig.session(app)
    assert (await rig.get(session, f"/?{name}={rig.token(session)}")).status == 401
    assert app.connections == []


async def test_a_token_in_a_subprotocol_is_ignored(rig: Rig, serve: Serve) -> None:
    app = await serve(websocket())
    session = await rig.session(app)
    offer = ("Sec-WebSocket-Protocol", f"bearer, {rig.token(session)}")
    _, response = await rig.upgrade(session, "/", [("Origin", session.origin), offer])
    assert response.status == 401
    assert app.connections == []


async def test_the_session_identifier_is_no_credential(rig: Rig, serve: Serve) -> None:
    app = await serve()
    session = await rig.session(app)
    for value in (session.sid, base64url(session.sid.encode())):
        for fields in (
            [("Cookie", f"fumarole={value}")],
            [("Authorization", f"Bearer {value}")],
            [("Fumarole-Token", value)],
        ):
            assert (await rig.get(session, f"/?sid={value}", fields)).status == 401
    assert app.connections == []


# Tokens for something else


async def test_a_cookie_of_another_session_is_refused(rig: Rig, serve: Serve) -> None:
    app = await serve()
    session, other = await rig.session(app), await rig.session(app)
    cookie = await rig.opened(other)
    assert (await rig.get(session, fields=[("Cookie", cookie)])).status == 403
    assert app.connections == []
    assert (await rig.get(other, fields=[("Cookie", cookie)])).status == 200


@pytest.mark.parametrize("claims", [{"job": "x"}, {"rank": 3}, {"kind": "vnc"}], ids=str)
async def test_a_bearer_for_something_else_is_refused(
    rig: Rig, serve: Serve, claims: dict[str, Any]
) -> None:
    app = await serve()
    session = await rig.session(app)
    fields = [("Authorization", f"Bearer {rig.token(session, **claims)}")]
    assert (await rig.get(session, fields=fields)).status == 403
    assert app.connections == []


async def test_a_bearer_for_viewing_a_web_session_is_refused(rig: Rig, serve: Serve) -> None:
    app = await serve()
    session = await rig.session(app)
    fields = [("Fumarole-Token", rig.token(session, mode="view"))]
    assert (await rig.get(session, fields=fields)).status == 403
    assert app.connections == []


async def test_a_bearer_of_another_session_is_refused(rig: Rig, serve: Serve) -> None:
    app = await serve()
    session, other = await rig.session(app), await rig.session(app)
    for name in ("Authorization", "Fumarole-Token"):
        value = ("Bearer " if name == "Authorization" else "") + rig.token(other)
        assert (await rig.get(session, fields=[(name, value)])).status == 403
    assert app.connections == []


async def test_a_token_marked_as_bearer_by_another_gateway_stays_usable_as_bearer(
    rig: Rig, serve: Serve
) -> None:
    session = await rig.session(await serve())
    for mark, status in (("bearer", 200), ("open", 401)):
        jti = new_jti()
        await rig.bus.redis.set(rig.bus.key(f"used:{jti}"), mark, ex=120)
        fields = [("Fumarole-Token", rig.token(session, jti=jti))]
        assert (await rig.get(session, fields=fields)).status == status


async def test_a_bearer_is_refused_after_its_token_expires(rig: Rig, serve: Serve) -> None:
    session = await rig.session(await serve())
    now = int(time.time())
    # Ten seconds of leeway: the first token is within it, the second one is not.
    late, gone = (rig.token(session, iat=now - 60, exp=now + ago) for ago in (-7, -11))
    assert (await rig.get(session, fields=[("Fumarole-Token", late)])).status == 200
    assert (await rig.get(session, fields=[("Fumarole-Token", gone)])).status == 401


# Cookies


async def test_two_gateway_cookies_are_refused(rig: Rig, serve: Serve) -> None:
    app = await serve()
    session = await rig.session(app)
    good = await rig.opened(session)
    for values in (
        [f"{good}; {good}"],
        [good, good],
        [f"{good}; fumarole=x"],
        [f"fumarole=x; {good}"],
        [f"fumarole=; {good}"],
        [f"a=1; {good}; b=2", "fumarole=x"],
        [f"{good};fumarole=x"],
    ):
        response = await rig.get(session, fields=[("Cookie", value) for value in values])
        assert response.status == 400, values
    assert app.connections == []


COOKIES = [
    ("{G}", []),
    ("a=1; {G}", ["a=1"]),
    ("{G}; a=1", ["a=1"]),
    ("a=1; {G}; b=2", ["a=1", "b=2"]),
    ('a="x y"; {G}; b=%20\\,', ['a="x y"', "b=%20\\,"]),
    ("a=1; a=2; {G}; a=1", ["a=1", "a=2", "a=1"]),
    ("{G}; Fumarole=1; fumarole2=2; xfumarole=3; fumarole-x=4", None),
    ("a=b=c==; {G}", ["a=b=c=="]),
    ("a={v:1}; {G}; b=[1,2]", ["a={v:1}", "b=[1,2]"]),
    ("\xe4=\xfc\xff; {G}", ["\xe4=\xfc\xff"]),
    ("a=; {G}; =b; c", ["a=", "=b", "c"]),
]


@pytest.mark.parametrize(("sent", "expected"), COOKIES)
async def test_the_apps_cookies_are_forwarded_byte_for_byte(
    rig: Rig, serve: Serve, sent: str, expected: list[str] | None
) -> None:
    app = await serve()
    session = await rig.session(app)
    grant = await rig.opened(session)
    response = await rig.get(session, fields=[("Cookie", sent.replace("{G}", grant))])
    assert response.status == 200
    fields = app.requests[0].all("Cookie")
    got = [cookie.strip(" ") for field in fields for cookie in field.split(";")]
    whole = [cookie.strip(" ") for cookie in sent.split(";")]
    assert got == [cookie for cookie in whole if cookie != "{G}"]
    assert expected is None or got == expected
    assert grant.partition("=")[2].encode() not in app.received


@pytest.mark.parametrize("value", ['a=1;b=2;  c="3;"', "a", ";", "a=1;", "a=1;;b=2", "\xff=\xfe"])
async def test_a_cookie_field_without_gateway_cookie_is_forwarded_unchanged(
    rig: Rig, serve: Serve, value: str
) -> None:
    app = await serve()
    session = await rig.session(app)
    fields = [("Fumarole-Token", rig.token(session)), ("Cookie", value)]
    assert (await rig.get(session, fields=fields)).status == 200
    assert app.requests[0].all("Cookie") == [value]


async def test_a_cookie_changed_at_any_position_is_refused(rig: Rig, serve: Serve) -> None:
    """Change the grant at one place after the other; the changed grant must not verify."""
    app = await serve()
    session = await rig.session(app)
    name, _, value = (await rig.opened(session)).partition("=")
    for place in range(0, len(value) - 2, max(1, len(value) // 24)):
        other = "A" if value[place] != "A" else "B"
        spoiled = f"{name}={value[:place]}{other}{value[place + 1 :]}"
        assert (await rig.get(session, fields=[("Cookie", spoiled)])).status == 401, place
    for spoiled in (value[:-1], value + "A", value[1:], "", value * 2, f'"{value}"'):
        response = await rig.get(session, fields=[("Cookie", f"{name}={spoiled}")])
        assert response.status in (400, 401), spoiled
    assert app.connections == []


async def test_each_request_of_a_connection_is_authorized_separately(
    rig: Rig, serve: Serve
) -> None:
    app = await serve()
    session, other = await rig.session(app), await rig.session(app)
    cookie = await rig.opened(session)
    stream = await rig.connect()
    plain = f"Host: {session.host}\r\n"
    good = f"GET /1 HTTP/1.1\r\n{plain}Cookie: {cookie}\r\n\r\n"
    bad = f"GET /2 HTTP/1.1\r\n{plain}\r\n"
    stream.send((good + bad).encode())
    text = await stream.read_until(b"HTTP/1.1 401")
    assert text.startswith(b"HTTP/1.1 200")
    stream = await rig.connect()
    elsewhere = f"GET /3 HTTP/1.1\r\nHost: {other.host}\r\nCookie: {cookie}\r\n\r\n"
    stream.send((good + elsewhere).encode())
    assert b"HTTP/1.1 403" in await stream.read_until(b"HTTP/1.1 403")
    assert b"/2" not in app.received
    assert b"/3" not in app.received


async def test_a_bearer_may_open_a_websocket_without_origin(rig: Rig, serve: Serve) -> None:
    session = await rig.session(await serve(websocket()))
    fields = [("Authorization", f"Bearer {rig.token(session)}")]
    stream, response = await rig.upgrade(session, "/", fields)
    assert response.status == 101
    stream.send(frames.encode(frames.TEXT, b"x", mask=frames.MASK))
    assert (await frames.read_frame(stream)).payload == b"x"


async def test_a_request_without_credential_reaches_no_app(rig: Rig, serve: Serve) -> None:
    app: App = await serve(websocket())
    session = await rig.session(app)
    for method in ("GET", "HEAD", "POST", "OPTIONS", "PUT", "DELETE", "PROPFIND"):
        assert (await rig.get(session, method=method)).status == 401
    _, response = await rig.upgrade(session, "/", [("Origin", session.origin)])
    assert response.status == 401
    assert app.connections == []
