"""Which requests are admitted, for which user, and what the app learns of it."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import pytest

from gateway.core.access.decision import ServePage
from gateway.core.access.site import Site
from gateway.relay.http.admission import access_right_of
from shared.tokens import SessionClaims
from tests.gateway.relay.harness import (
    BASE,
    COOKIE,
    GRANT,
    HOST,
    NETWORKS,
    OTHER_SID,
    PORT,
    SID,
    answer,
    code_of,
    cookie,
    request,
    rig,
    route,
    status_of,
    table_of,
    upgrade,
)

OURS = "e30.eyJhdWQiOiJmdW1hcm9sZS1nYXRld2F5In0.e30"
"""A token whose payload names our audience."""


def claims(**changes: Any) -> SessionClaims:
    now = int(time.time())
    fields: dict[str, Any] = {
        "sub": "ada", "name": None, "iat": now, "exp": now + 60, "jti": "b1", "sid": SID,
        "job": "j1", "rank": 0, "kind": "web", "mode": "control", "max_age": 100, "kid": "k1",
        "issued_at": now,
    }  # fmt: skip
    return SessionClaims(**(fields | changes))


ASKS = {
    "GET": request("/", credential=None),
    "POST": request("/", method="POST", body=b"x", credential=None),
    "OPTIONS": request("/", method="OPTIONS", credential=None),
    "upgrade": upgrade(credential=None),
}


@pytest.mark.parametrize("state", ["ready", "starting", "closing", "expired", "unreadable", "gone"])
@pytest.mark.parametrize("ask", ASKS)
async def test_no_route_state_admits_a_request_without_credential(state: str, ask: str) -> None:
    async with rig() as r:
        match state:
            case "expired":
                r.world.upsert(route(r.app.port, expires_at=1.0))
            case "unreadable":
                r.world.upsert(route(r.app.port, kind="later"))
            case "gone":
                r.world.remove()
            case _:
                r.world.upsert(route(r.app.port, state=state))
        status, _ = await r.ask(ASKS[ask])
        assert status == {"unreadable": 503, "gone": 404}.get(state, 401)
        await asyncio.sleep(0.01)
        assert r.app.count == 0


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"state": "starting", "message": "pulling"}, 503, "session_starting"),
        ({"state": "starting", "target": None}, 503, "session_starting"),
        ({"state": "closing"}, 410, "session_closing"),
        ({"expires_at": 1.0}, 410, "session_expired"),
        ({"kind": "later"}, 503, "session_unreadable"),
    ],
)
async def test_each_route_state_has_its_response_for_authorized_users(
    change: dict[str, Any], status: int, code: str
) -> None:
    async with rig() as r:
        r.world.upsert(route(r.app.port) | change)
        browser = await r.browser()
        browser.send(request())
        head, body = await browser.answer()
        assert (status_of(head), code_of(body)) == (status, code)
        assert (b"Retry-After: " in head) == (status == 503)
        if change.get("message"):
            assert b"pulling" in body
        assert r.app.count == 0


@pytest.mark.parametrize(
    ("credential", "status", "code"),
    [
        (cookie(sid=OTHER_SID), 403, "other_session"),
        (cookie(ends_at=1.0), 401, "grant_ended"),
        (cookie(mode="view"), 403, "view_only"),
        (COOKIE[:-1], 401, "bad_credential"),
    ],
)
async def test_unusable_cookies_are_refused(credential: str, status: int, code: str) -> None:
    async with rig() as r:
        browser = await r.browser()
        browser.send(request(credential=f"Cookie: {credential}"))
        head, body = await browser.answer()
        assert (status_of(head), code_of(body)) == (status, code)
        assert r.app.count == 0


async def test_neither_gateway_cookie_nor_token_is_forwarded() -> None:
    async with rig() as r:
        r.gate.tokens["good"] = claims()
        raw = request(
            "/",
            f"Cookie: a=1;  {COOKIE} ;b=2; __Host-fumarole=old; c",
            f"Authorization: Bearer {OURS}",
            "Fumarole-Token: good",
            "fumarole_token: good",
            "Proxy-Authorization: Basic x",
            credential=None,
        )
        _, _, head = await r.joined(raw)
        assert b"Cookie: a=1;b=2; c\r\n" in head
        for secret in (COOKIE[9:].encode(), OURS.encode(), b"good", b"Authorization", b"old"):
            assert secret not in head


async def test_the_apps_own_authorization_is_forwarded_unchanged() -> None:
    async with rig() as r:
        theirs = "Authorization: Bearer e30.eyJhdWQiOiJhcHAifQ.e30"
        _, _, head = await r.joined(request("/", theirs))
        assert theirs.encode() + b"\r\n" in head


@pytest.mark.parametrize("credential", ["Fumarole-Token: good", f"Authorization: bEaReR  {OURS} "])
async def test_a_token_is_marked_as_used_after_all_other_checks(credential: str) -> None:
    async with rig() as r:
        r.gate.tokens |= {"good": claims(), OURS: claims()}
        browser, app, head = await r.joined(request(credential=credential))
        assert b"X-Forwarded-User: ada\r\n" in head
        assert r.gate.marks == ["b1"]
        app.send(answer())
        await browser.answer()
        # No Origin is asked of those who do not use a cookie.
        browser.send(request("/", credential=credential, method="POST", body=b"x"))
        assert (await app.head()).startswith(b"POST")


@pytest.mark.parametrize("credential", ["Fumarole-Token: good", f"Authorization: Bearer {OURS}"])
@pytest.mark.parametrize("without", [None, "Authorization: Bearer the-apps-own"])
async def test_a_bearer_authorizes_only_its_own_request(
    credential: str, without: str | None
) -> None:
    """A cached decision may rest on a cookie, which later requests repeat, but never on a token."""
    async with rig() as r:
        r.gate.tokens |= {"good": claims(), OURS: claims()}
        browser, app, _ = await r.joined(request(credential=credential))
        app.send(answer())
        assert status_of((await browser.answer())[0]) == 200
        browser.send(request("/without", credential=without))
        head, body = await browser.answer()
        assert (status_of(head), code_of(body)) == (401, "no_credential")
        assert await app.silent()


@pytest.mark.parametrize(
    ("change", "status", "code"),
    [
        ({"sid": OTHER_SID}, 403, "other_session"),
        ({"job": "j2"}, 403, "other_session"),
        ({"rank": 1}, 403, "other_session"),
        ({"kind": "vnc"}, 403, "other_session"),
        ({"mode": "view"}, 403, "view_only"),
        ({"iat": 1000, "exp": 1001}, 401, "grant_ended"),
    ],
)
async def test_a_token_for_another_purpose_is_refused_and_not_spent(
    change: dict[str, Any], status: int, code: str
) -> None:
    async with rig() as r:
        r.gate.tokens["good"] = claims(**change)
        browser = await r.browser()
        browser.send(request(credential="Fumarole-Token: good"))
        head, body = await browser.answer()
        assert (status_of(head), code_of(body)) == (status, code)
        assert r.gate.marks == []
        assert r.app.count == 0


@pytest.mark.parametrize("code", ["token_spent", "bus_lost", "token_unsure"])
async def test_a_token_that_cannot_be_marked_is_refused(code: str) -> None:
    async with rig() as r:
        r.gate.tokens["good"] = claims()
        r.gate.refuse_mark = code
        status, raw = await r.ask(request(credential="Fumarole-Token: good"))
        assert status == (401 if code == "token_spent" else 503)
        assert code.encode() in raw
        assert r.app.count == 0


async def test_a_tunnel_opened_by_a_token_ends_at_its_max_age() -> None:
    async with rig() as r:
        r.gate.tokens["good"] = claims(iat=int(time.time()) - 1, max_age=2)
        browser, _ = await r.tunnel(upgrade(credential="Fumarole-Token: good", origin=None))
        assert (await browser.rest())[2:4] == (4401).to_bytes(2, "big")


async def test_a_valid_grant_for_an_unknown_host_waits_for_one_repair() -> None:
    async with rig() as r:
        table = r.world.table
        r.world.table = table_of()

        def found() -> None:
            r.world.table = table

        r.world.repaired = found
        _, _, head = await r.joined(request("/found"))
        assert head.startswith(b"GET /found")
        assert r.world.repairs == 1


async def test_a_valid_grant_for_an_ended_session_is_410_after_one_repair() -> None:
    async with rig() as r:
        r.world.remove()
        status, _ = await r.ask(request())
        assert status == 410
        assert r.world.repairs == 1


@pytest.mark.parametrize(
    "credential",
    [
        None,
        f"Cookie: {COOKIE}x",
        f"Cookie: {cookie(sid=OTHER_SID)}",
        f"Cookie: {COOKIE}; {COOKIE}",
        f"Fumarole-Token: x\r\nCookie: {COOKIE}",
    ],
)
async def test_without_a_grant_an_unknown_host_is_404_at_once(credential: str | None) -> None:
    async with rig() as r:
        r.world.remove()
        status, _ = await r.ask(request(credential=credential))
        assert status == 404
        assert r.world.repairs == 0


async def test_a_host_claimed_by_two_routes_is_not_served() -> None:
    async with rig() as r:
        hosts = [f"{OTHER_SID}.{BASE}", "demo.example.org"]
        r.world.upsert(route(r.app.port, sid=OTHER_SID, hosts=hosts, public=True))
        hosts = [f"{SID}.{BASE}", "demo.example.org"]
        r.world.upsert(route(r.app.port, hosts=hosts, public=True))
        status, _ = await r.ask(request(host=f"demo.example.org:{PORT}"))
        assert status == 404


async def test_a_public_host_needs_and_reads_no_credential() -> None:
    public = {"hosts": [f"{SID}.{BASE}", "demo.example.org"], "public": True}
    async with rig(route_changes=public) as r:
        raw = request(
            "/",
            "Origin: https://evil.example",
            "Fumarole-Token: whatever",
            f"Authorization: Bearer {OURS}",
            "Cookie: fumarole=a; fumarole=b; own=1",
            credential=None,
            host=f"demo.example.org:{PORT}",
            method="POST",
            body=b"x",
        )
        browser, app, head = await r.joined(raw)
        assert b"Cookie: own=1\r\n" in head
        assert b"X-Forwarded-Host: demo.example.org:8443\r\n" in head
        for word in (b"X-Forwarded-User", b"Authorization", b"Token"):
            assert word not in head
        assert r.gate.marks == []
        await app.exactly(1)
        app.send(answer())
        await browser.answer()
        browser.send(request("/.fumarole/open", host=f"demo.example.org:{PORT}"))
        assert status_of((await browser.answer())[0]) == 404


async def test_further_hosts_of_a_private_route_are_404() -> None:
    async with rig(route_changes={"hosts": [f"{SID}.{BASE}", "demo.example.org"]}) as r:
        status, _ = await r.ask(request(host=f"demo.example.org:{PORT}"))
        assert status == 404


async def test_connections_of_two_users_are_never_shared() -> None:
    async with rig() as r:
        first, app, _ = await r.joined(request())
        app.send(answer())
        await first.answer()
        second = await r.browser()
        second.send(request("/eve", credential=f"Cookie: {cookie(sub='eve', jti='t2')}"))
        other = await r.app.connection()
        assert b"X-Forwarded-User: eve\r\n" in await other.head()
        other.send(answer())
        await second.answer()
        third = await r.browser()
        third.send(request("/ada"))
        assert b"X-Forwarded-User: ada\r\n" in await app.head()
        assert r.app.count == 2


async def test_one_connection_can_carry_two_users_requests() -> None:
    async with rig() as r:
        browser, app, _ = await r.joined(request())
        app.send(answer())
        await browser.answer()
        browser.send(request("/eve", credential=f"Cookie: {cookie(sub='ü/e', jti='t2')}"))
        other = await r.app.connection()
        assert b"X-Forwarded-User: %C3%BC%2Fe\r\n" in await other.head()


@pytest.mark.parametrize(
    ("forwarded", "peer_trusted", "seen"),
    [
        ("9.9.9.9", False, "127.0.0.1"),
        ("9.9.9.9", True, "9.9.9.9"),
        ("1.1.1.1, 9.9.9.9, 127.0.0.2", True, "9.9.9.9"),
        ("1.1.1.1, rubbish, 127.0.0.2", True, "127.0.0.2"),
        ("2001:db8::1", True, "2001:db8::1"),
    ],
)
async def test_the_clients_address_is_believed_of_trusted_proxies_only(
    forwarded: str, peer_trusted: bool, seen: str
) -> None:
    site = Site(
        scheme="http",
        base=BASE,
        port=PORT,
        trusted_proxies=NETWORKS if peer_trusted else (),
    )
    async with rig(site=site) as r:
        _, _, head = await r.joined(request("/", f"X-Forwarded-For: {forwarded}"))
        assert f"X-Forwarded-For: {seen}\r\n".encode() in head
        assert head.lower().count(b"x-forwarded-for") == 1


@pytest.mark.parametrize("size", [66_000, 200_000])
async def test_a_large_body_received_during_token_verification_blocks_no_request(
    size: int,
) -> None:
    body = b"x" * size
    async with rig() as r:
        r.gate.tokens["good"] = claims()
        proven = asyncio.Event()
        verify = r.gate.verify

        async def slow(token: str, *, address: str) -> SessionClaims:
            await proven.wait()
            return await verify(token, address=address)

        r.gate.verify = slow  # type: ignore[method-assign]  # only slower
        browser = await r.browser()
        browser.send(request(method="POST", body=body, credential="Fumarole-Token: good"))
        await asyncio.sleep(0.05)
        proven.set()
        app = await r.app.connection()
        await app.head()
        assert await app.exactly(len(body)) == body
        app.send(answer())
        await browser.answer()
        browser.send(request("/next"))
        assert (await app.head()).startswith(b"GET /next")


async def test_an_internal_error_during_token_verification_gets_a_response(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with rig() as r:

        async def broken(token: str, *, address: str) -> SessionClaims:
            raise RuntimeError("a fault")

        r.gate.verify = broken  # type: ignore[method-assign]  # only worse
        browser = await r.browser()
        browser.send(request(credential="Fumarole-Token: good"))
        assert await browser.gone() == b""
        assert not r.connections
    assert "a background task failed" in caplog.text


async def test_another_method_with_the_same_fields_is_authorized_anew() -> None:
    elsewhere = (
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Mode: navigate",
        "Sec-Fetch-Dest: document",
    )
    async with rig() as r:
        browser, app, _ = await r.joined(request("/", *elsewhere))
        app.send(answer())
        await browser.answer()
        browser.send(request("/", *elsewhere, method="DELETE"))
        assert status_of((await browser.answer())[0]) == 403
        assert await app.silent()


def test_a_page_without_user_acquires_no_access_right() -> None:
    known = table_of(route(PORT)).route(SID)
    assert access_right_of(ServePage(host=HOST, sid=SID, route=known)) is None
    assert access_right_of(ServePage(host=HOST, sid=SID, route=None, grant=GRANT)) is None
    right = access_right_of(ServePage(host=HOST, sid=SID, route=known, grant=GRANT))
    assert right is not None
    assert (right.route, right.grant) == (known, GRANT)
