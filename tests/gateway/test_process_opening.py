"""Opening at a running gateway: which tokens open what, from where, and how often."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import re
import time
from typing import Any

import pytest
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from tests.gateway.bus.following import sid_of
from tests.gateway.conftest import World
from tests.gateway.http import HTML, code_of
from tests.gateway.signing import Signer
from tests.gateway.upstreams import web_app


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
