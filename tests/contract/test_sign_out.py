"""Tests sign-out: only a click on a page of the session's own host signs a user out."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest

from tests.contract.conftest import EDGE_URL, PORTAL, Serve
from tests.contract.frames import alive, last_frame
from tests.contract.messages import request
from tests.contract.rig import Rig, Session, running_rig
from tests.contract.test_audit import until
from tests.contract.test_workers import tunnels_on_each
from tests.contract.tokens import new_jti
from tests.contract.upstream import friendly, websocket

PATH = "/.fumarole/sign-out"
WAIT_SECONDS = 30.0
HTML = ("Accept", "text/html")


def click(session: Session, cookie: str) -> list[tuple[str, str]]:
    """Return the fields that a browser sends when the user presses the page's button."""
    return [
        ("Origin", session.origin),
        ("Sec-Fetch-Site", "same-origin"),
        ("Sec-Fetch-Mode", "navigate"),
        ("Sec-Fetch-Dest", "document"),
        ("Content-Type", "application/x-www-form-urlencoded"),
        ("Cookie", cookie),
        HTML,
    ]


async def asked(rig: Rig) -> list[dict[Any, Any]]:
    """Return the sign-out requests that the controller receives."""
    return [fields or {} for _, fields in await rig.bus.redis.xrange(rig.bus.key("asks")) or []]


async def test_signing_out_ends_this_grant_and_no_other(rig: Rig, serve: Serve) -> None:
    session = await rig.session(await serve(websocket()))
    jti, iat = new_jti(), int(time.time()) - 2
    hers = await rig.opened(session, sub="ada", jti=jti, iat=iat)
    his, again = await rig.opened(session, sub="bob"), await rig.opened(session, sub="ada")
    tunnel, other = await rig.tunnel(session, hers), await rig.tunnel(session, his)
    page = await rig.get(session, PATH, [("Cookie", hers), HTML])
    assert page.status == 200
    assert b'method="post"' in page.body
    assert b"ada" in page.body
    response = await rig.get(
        session, PATH, click(session, f"{hers}; app=1"), method="POST", body=b""
    )
    assert response.status == 200, response
    assert b"signed out" in response.body
    assert response.get("Clear-Site-Data") == '"cache", "storage"'
    assert response.get("Cache-Control") == "no-store"
    expired = {line.partition("=")[0]: line for line in response.all("Set-Cookie")}
    assert "Max-Age=0" in expired[rig.cookie_name]
    assert "Max-Age=0" in expired["app"]
    assert (await last_frame(tunnel, WAIT_SECONDS)).code == 4401
    refused = await rig.get(session, "/.fumarole/state", [("Cookie", hers)])
    assert refused.status == 401
    assert b"grant_revoked" in refused.body
    # The session's other users stay connected, and so does another grant of the same user.
    await alive(other)
    for cookie in (his, again):
        assert (await rig.get(session, "/.fumarole/state", [("Cookie", cookie)])).status == 200
    mine = {b"sid": session.sid.encode(), b"jti": jti.encode()}
    assert [one for one in await asked(rig) if one[b"sid"] == mine[b"sid"]] == [mine]
    audit = await until(rig, lambda found: any(one["event"] == "signed_out" for one in found))
    (record,) = [one for one in audit if one["event"] == "signed_out" and one["jti"] == jti]
    assert (record["subject"], record["sid"]) == ("ada", session.sid)


async def test_a_sign_out_takes_effect_everywhere_though_the_client_left(
    rig: Rig, serve: Serve
) -> None:
    session = await rig.session(await serve(friendly))
    jti = new_jti()
    cookie = await rig.opened(session, jti=jti)
    stream = await rig.connect()
    await rig.bus.redis.client_pause(700, all=False)
    fields = click(session, cookie)
    stream.send(request("POST", PATH, host=session.host, fields=fields, body=b""))
    await rig.becomes(session, cookie, 401)
    stream.close()
    deadline = time.monotonic() + WAIT_SECONDS
    while not [one for one in await asked(rig) if one[b"jti"] == jti.encode()]:
        assert time.monotonic() < deadline
        await asyncio.sleep(0.05)
    wanted = ("signed_out", jti)
    await until(rig, lambda found: wanted in {(one["event"], one.get("jti")) for one in found})


async def test_a_sign_out_ends_the_grant_on_every_worker(tmp_path: Path, serve: Serve) -> None:
    async with running_rig(tmp_path, {"WORKERS": "2"}) as rig:
        session = await rig.session(await serve(websocket()))
        cookie = await rig.opened(session)
        tunnels = await tunnels_on_each(rig, session, cookie)
        response = await rig.get(session, PATH, click(session, cookie), method="POST", body=b"")
        assert response.status == 200
        assert {(await last_frame(one, WAIT_SECONDS)).code for one in tunnels} == {4401}
        for _ in range(10):
            assert (await rig.get(session, "/", [("Cookie", cookie)])).status == 401


ELSEWHERE: list[list[tuple[str, str]]] = [
    [],
    [("Origin", "null")],
    [("Origin", "https://evil.example")],
    [("Origin", "https://evil.example"), ("Sec-Fetch-Site", "same-origin")],
    [("Sec-Fetch-Site", "cross-site")],
    [("Sec-Fetch-Site", "same-site")],
    [
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Mode", "navigate"),
        ("Sec-Fetch-Dest", "document"),
    ],
]


@pytest.mark.parametrize("fields", ELSEWHERE)
async def test_a_cross_site_request_cannot_sign_a_user_out(
    rig: Rig, serve: Serve, fields: list[tuple[str, str]]
) -> None:
    session = await rig.session(await serve(friendly))
    cookie = await rig.opened(session)
    sent = [*fields, ("Cookie", cookie), HTML]
    kind = ("Content-Type", "application/x-www-form-urlencoded")
    response = await rig.get(session, PATH, [*sent, kind], method="POST", body=b"")
    assert response.status == 403
    assert not response.all("Set-Cookie")
    assert not response.all("Clear-Site-Data")
    assert await rig.status(session, cookie) == 200
    assert not [one for one in await asked(rig) if one[b"sid"] == session.sid.encode()]


async def test_a_page_of_a_sibling_host_cannot_sign_a_user_out(rig: Rig, serve: Serve) -> None:
    session, sibling = await rig.session(await serve(friendly)), rig.make_session()
    cookie = await rig.opened(session)
    sent = [("Origin", sibling.origin), ("Sec-Fetch-Site", "same-site"), ("Cookie", cookie)]
    assert (await rig.get(session, PATH, sent, method="POST", body=b"")).status == 403
    assert await rig.status(session, cookie) == 200


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "DELETE", "OPTIONS"])
async def test_a_sign_out_by_any_other_method_is_refused(
    rig: Rig, serve: Serve, method: str
) -> None:
    session = await rig.session(await serve(friendly))
    cookie = await rig.opened(session)
    await rig.get(session, PATH, click(session, cookie), method=method)
    assert await rig.status(session, cookie) == 200


async def test_a_sign_out_without_grant_has_no_effect(rig: Rig, serve: Serve) -> None:
    session, other = await rig.session(await serve(friendly)), await rig.session()
    theirs = await rig.opened(other)
    for fields in ([], [("Cookie", theirs)], [("Cookie", theirs + "x")]):
        sent = [("Origin", session.origin), *fields]
        response = await rig.get(session, PATH, sent, method="POST", body=b"")
        assert response.status in (401, 403)
        assert not response.all("Set-Cookie")
    assert (await rig.get(session, PATH, [HTML])).status == 401
    assert (await rig.get(other, "/.fumarole/state", [("Cookie", theirs)])).status == 200


async def test_a_program_signs_out_with_its_token(rig: Rig, serve: Serve) -> None:
    session = await rig.session(await serve(friendly))
    token = [("Fumarole-Token", rig.token(session))]
    assert (await rig.get(session, "/", token)).status == 200
    response = await rig.get(session, PATH, token, method="POST", body=b"")
    assert (response.status, response.body) == (200, b'{"signed_out": true, "everywhere": true}')
    assert (await rig.get(session, "/", token)).status == 401


async def test_repeated_sign_outs_of_one_user_do_not_block_other_users(
    rig: Rig, serve: Serve
) -> None:
    session = await rig.session(await serve(friendly))
    sent = [[("Fumarole-Token", rig.token(session, sub="eve"))] for _ in range(21)]
    responses = [await rig.get(session, PATH, one, method="POST", body=b"") for one in sent]
    assert [one.status for one in responses] == [200] * 20 + [429]
    assert 1 <= int(responses[-1].get("Retry-After") or 0) <= 3
    token = [("Fumarole-Token", rig.token(session, sub="ada"))]
    assert (await rig.get(session, PATH, token, method="POST", body=b"")).status == 200
    other = await rig.session(await serve(friendly))
    token = [("Fumarole-Token", rig.token(other, sub="eve"))]
    assert (await rig.get(other, PATH, token, method="POST", body=b"")).status == 200


async def test_without_redis_a_sign_out_ends_the_grant_locally_and_reports_this(
    tmp_path: Path, serve: Serve
) -> None:
    async with running_rig(tmp_path) as rig:
        session = await rig.session(await serve(friendly))
        cookie = await rig.opened(session)
        rig.beating = False
        rig.server.kill()
        response = await rig.get(session, PATH, click(session, cookie), method="POST", body=b"")
        assert response.status == 200
        assert b"Other gateways will do so" in response.body
        assert await rig.status(session, cookie) == 401
        rig.server.start()
        await rig.bus.rebuild()
        sid = session.sid.encode()
        deadline = time.monotonic() + WAIT_SECONDS
        while not [one for one in await asked(rig) if one[b"sid"] == sid]:
            assert time.monotonic() < deadline, rig.process.tail()
        # The data now in Redis lacks the sign-out, and the grant still stays ended.
        await rig.bus.upsert(session.sid, session.route)
        await rig.settled()
        assert await rig.status(session, cookie) == 401


async def test_in_an_embedding_frame_a_sign_out_expires_both_cookies(
    edge: Rig, serve: Serve
) -> None:
    session = await edge.session(await serve(friendly))
    cookie = await edge.opened(session)
    response = await edge.get(session, PATH, click(session, cookie), method="POST", body=b"")
    ours = [one for one in response.all("Set-Cookie") if one.startswith(f"{edge.cookie_name}=")]
    assert len(ours) == 2
    assert all("Secure" in one and "Max-Age=0" in one for one in ours)
    assert sum("Partitioned" in one for one in ours) == 1
    # The portal may open sessions, but not sign users out.
    again = await edge.opened(session)
    sent = [("Origin", PORTAL), ("Cookie", again)]
    assert (await edge.get(session, PATH, sent, method="POST", body=b"")).status == 403
    assert EDGE_URL.startswith("https:")
