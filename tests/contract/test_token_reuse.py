"""Tests that a token opens its session once, and replaces no other user's session."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from tests.contract.conftest import Serve
from tests.contract.rig import Rig
from tests.contract.tokens import Ed25519Key, new_jti

# One use


async def test_a_token_opens_once(rig: Rig) -> None:
    session = await rig.session()
    token = rig.token(session)
    assert (await rig.post_open(session, token)).status == 303
    assert (await rig.post_open(session, token)).status == 401


async def test_one_of_many_simultaneous_attempts_opens(rig: Rig) -> None:
    session = await rig.session()
    token = rig.token(session)
    responses = await asyncio.gather(*(rig.post_open(session, token) for _ in range(12)))
    assert sorted(response.status for response in responses) == [303] + [401] * 11


async def test_a_token_opened_at_another_gateway_is_refused(rig: Rig) -> None:
    session = await rig.session()
    for mark in ("open", "bearer"):
        jti = new_jti()
        await rig.bus.redis.set(rig.bus.key(f"used:{jti}"), mark, ex=120)
        assert (await rig.post_open(session, rig.token(session, jti=jti))).status == 401


async def test_the_used_token_mark_outlives_the_token(rig: Rig) -> None:
    session = await rig.session()
    jti, now = new_jti(), int(time.time())
    await rig.opened(session, jti=jti, exp=now + 100)
    key = rig.bus.key(f"used:{jti}")
    assert await rig.bus.redis.get(key) == b"open"
    assert 155 <= await rig.bus.redis.ttl(key) <= 161


async def test_a_token_that_opened_a_session_is_refused_as_bearer(rig: Rig, serve: Serve) -> None:
    app = await serve()
    session = await rig.session(app)
    token = rig.token(session)
    assert (await rig.post_open(session, token)).status == 303
    for fields in ([("Authorization", f"Bearer {token}")], [("Fumarole-Token", token)]):
        assert (await rig.get(session, fields=fields)).status == 401
    assert app.connections == []


async def test_a_token_used_as_bearer_cannot_open_a_session(rig: Rig, serve: Serve) -> None:
    session = await rig.session(await serve())
    jti = new_jti()
    token = rig.token(session, jti=jti)
    for _ in range(3):
        fields = [("Authorization", f"Bearer {token}")]
        assert (await rig.get(session, fields=fields)).status == 200
    assert await rig.bus.redis.get(rig.bus.key(f"used:{jti}")) == b"bearer"
    assert (await rig.post_open(session, token)).status == 401
    assert (await rig.get(session, fields=[("Fumarole-Token", token)])).status == 200


# Tokens of other routes, and revoked ones


async def test_a_token_for_an_unknown_host_is_404(rig: Rig) -> None:
    session = rig.make_session()
    jti = new_jti()
    token = rig.token(session, jti=jti)
    assert (await rig.post_open(session, token)).status == 404
    assert not await rig.bus.is_used(jti)


@pytest.mark.parametrize(
    ("route", "status"), [({"state": "closing"}, 410), ({"expires_at": 1}, 410)]
)
async def test_a_closing_or_expired_route_cannot_be_opened(
    rig: Rig, route: dict[str, Any], status: int
) -> None:
    session = await rig.session(**route)
    jti = new_jti()
    assert (await rig.post_open(session, rig.token(session, jti=jti))).status == status
    assert not await rig.bus.is_used(jti)


@pytest.mark.parametrize(
    "claims",
    [{"job": "other"}, {"rank": 1}, {"kind": "vnc"}, {"kind": "terminal"}],
    ids=str,
)
async def test_a_token_for_something_else_is_refused(rig: Rig, claims: dict[str, Any]) -> None:
    session = await rig.session()
    jti = new_jti()
    token = rig.token(session, **({"jti": jti} | claims))
    assert (await rig.post_open(session, token)).status == 403
    assert not await rig.bus.is_used(jti)
    assert (await rig.post_open(session, rig.token(session, jti=jti))).status == 303


async def test_a_token_for_another_session_is_refused(rig: Rig) -> None:
    session, other = await rig.session(), await rig.session()
    token = rig.token(other)
    assert (await rig.post_open(session, token)).status == 403
    assert (await rig.post_open(other, token)).status == 303


@pytest.mark.parametrize("what", ["jti", "sub", "all"])
async def test_a_revoked_token_does_not_open(rig: Rig, what: str) -> None:
    session = await rig.session()
    jti = new_jti()
    token = rig.token(session, jti=jti, iat=int(time.time()) - 2)
    one = {"jti": {"jti": jti}, "sub": {"sub": session.sub}, "all": {}}[what]
    await rig.bus.revoke(sid=session.sid, **one)
    await rig.settled()
    assert (await rig.post_open(session, token)).status == 401
    assert not await rig.bus.is_used(jti)


@pytest.mark.parametrize("what", ["sub", "all"])
async def test_a_later_token_opens_again(rig: Rig, what: str) -> None:
    session = await rig.session()
    await rig.bus.revoke(sid=session.sid, **({"sub": session.sub} if what == "sub" else {}))
    await rig.settled()
    token = rig.token(session, iat=int(time.time()) + 2)
    assert (await rig.post_open(session, token)).status == 303


async def test_a_revoked_key_opens_nothing(rig: Rig) -> None:
    session, key = await rig.session(), rig.keys.spare[0]
    token, later = rig.token(session, key), rig.token(session, key, iat=int(time.time()) + 5)
    await rig.bus.revoke(kid=key.kid)
    await rig.settled()
    assert (await rig.post_open(session, token)).status == 401
    assert (await rig.post_open(session, later)).status == 401


async def test_a_key_added_to_the_set_is_found(rig: Rig) -> None:
    session, key = await rig.session(), Ed25519Key("added-later")
    Path(rig.process.settings["FUMAROLE_GATEWAY_TOKEN_JWKS"]).write_bytes(rig.keys.key_set(key))
    # the gateway fetches keys for an unknown kid at most every 10 s
    deadline = time.monotonic() + 12
    while (response := await rig.post_open(session, rig.token(session, key))).status != 303:
        assert response.status == 401
        assert time.monotonic() < deadline
        await asyncio.sleep(0.5)


# Another user's cookie


async def test_a_valid_cookie_of_another_user_requires_confirmation(rig: Rig) -> None:
    session = await rig.session()
    cookie = await rig.opened(session, sub="bob")
    token = rig.token(session, sub="eve")
    first = await rig.post_open(session, token, [("Cookie", cookie)])
    assert first.status == 409
    assert first.get("Set-Cookie") is None
    again = await rig.post_open(session, token, [("Cookie", cookie)], replace="1")
    assert again.status == 303
    assert rig.cookie_of(again) != cookie


async def test_the_confirmation_for_a_browser_is_a_page(rig: Rig) -> None:
    session = await rig.session()
    cookie = await rig.opened(session, sub="bob")
    fields = [("Cookie", cookie), ("Accept", "text/html"), ("Origin", session.origin)]
    token = rig.token(session, sub="eve", name="<b>Eve</b>")
    response = await rig.post_open(session, token, fields)
    assert response.status == 409
    assert (response.get("Content-Type") or "").startswith("text/html")
    assert b"&lt;b&gt;Eve&lt;/b&gt;" in response.body
    assert b"<b>" not in response.body


@pytest.mark.parametrize("value", ["0", "", "2", "true"])
async def test_only_replace_1_confirms_the_replacement(rig: Rig, value: str) -> None:
    session = await rig.session()
    cookie = await rig.opened(session, sub="bob")
    token = rig.token(session, sub="eve")
    response = await rig.post_open(session, token, [("Cookie", cookie)], replace=value)
    assert response.status in (400, 409)


async def test_a_cookie_of_the_same_user_or_an_expired_one_needs_no_confirmation(rig: Rig) -> None:
    session = await rig.session()
    cookie = await rig.opened(session)
    again = await rig.post_open(session, rig.token(session), [("Cookie", cookie)])
    assert again.status == 303
    assert rig.cookie_of(again) != cookie
    jti = new_jti()
    revoked = await rig.opened(session, sub="bob", jti=jti)
    await rig.bus.revoke(sid=session.sid, jti=jti)
    await rig.settled()
    for dead in (revoked, "fumarole=nonsense"):
        response = await rig.post_open(session, rig.token(session), [("Cookie", dead)])
        assert response.status == 303


async def test_two_gateway_cookies_are_refused_at_opening(rig: Rig) -> None:
    session = await rig.session()
    cookie = await rig.opened(session)
    fields = [("Cookie", f"{cookie}; {cookie}")]
    token = rig.token(session)
    assert (await rig.post_open(session, token, fields)).status == 400
    assert (await rig.post_open(session, token)).status == 303
