"""Tests which header fields cross in each direction, and which the gateway alone writes."""

from __future__ import annotations

from urllib.parse import unquote

import pytest

from tests.contract.conftest import Serve
from tests.contract.messages import Message, response
from tests.contract.rig import Rig, new_sid
from tests.contract.upstream import raw_response, websocket
from tests.corpora import read_lines

OURS = {"x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-forwarded-user"}


def folded(name: str) -> str:
    """Return *name* as a CGI-like app sees it."""
    return name.lower().replace("_", "-").replace(".", "-")


def is_ours(name: str) -> bool:
    """Return whether an app may believe that the gateway wrote the field *name*."""
    plain = folded(name)
    return plain in ("forwarded", "via", "x-real-ip") or plain.startswith("x-forwarded-")


def said_by_us(message: Message) -> dict[str, list[str]]:
    """Return every field that an app may believe to come from the gateway."""
    return {name: message.all(name) for name, _ in message.fields if is_ours(name)}


# Fields that the gateway adds


async def test_the_app_receives_user_address_host_and_scheme(rig: Rig, serve: Serve) -> None:
    app = await serve(websocket())
    session, own = await rig.entered(app)
    source = "127.77.1.2"
    assert (await rig.get(session, fields=own, source=source)).status == 200
    await rig.tunnel(session, own[1][1])
    for one in app.requests:
        assert one.get("Host") == session.host
        assert one.get("X-Forwarded-Host") == session.host
        assert one.get("X-Forwarded-Proto") == "http"
        assert one.get("X-Forwarded-User") == session.sub
    assert app.requests[0].get("X-Forwarded-For") == source


async def test_behind_a_tls_edge_the_app_receives_the_public_host_and_scheme(
    edge: Rig, serve: Serve
) -> None:
    app = await serve()
    session, own = await edge.entered(app)
    assert (await edge.get(session, fields=own)).status == 200
    one = app.requests[0]
    assert one.get("Host") == one.get("X-Forwarded-Host") == session.host
    assert one.get("X-Forwarded-Proto") == "https"


@pytest.mark.parametrize(
    "sub", ["ada", "ada@example.com", "Jürgen Müller", "a b", "日本", "100%", "a%20b", 'x,y;z="w"']
)
async def test_the_user_is_percent_encoded(rig: Rig, serve: Serve, sub: str) -> None:
    app = await serve()
    session = await rig.session(app)
    fields = [("Fumarole-Token", rig.token(session, sub=sub))]
    assert (await rig.get(session, fields=fields)).status == 200
    value = app.requests[0].get("X-Forwarded-User") or ""
    assert unquote(value, errors="strict") == sub
    assert value.isascii()
    assert " " not in value
    assert value == sub or not sub.isalnum() or not sub.isascii()


@pytest.mark.parametrize(
    ("source", "said", "expected"),
    [
        ("127.15.0.1", ["198.51.100.7"], "198.51.100.7"),
        ("127.15.0.1", ["203.0.113.9, 198.51.100.7"], "198.51.100.7"),
        ("127.15.0.1", ["203.0.113.9", "198.51.100.7"], "198.51.100.7"),
        ("127.15.0.1", ["198.51.100.7, 127.15.3.3"], "198.51.100.7"),
        ("127.15.0.1", ["198.51.100.7, 127.15.3.3, 127.15.0.2"], "198.51.100.7"),
        ("127.15.0.1", ["2001:db8::1"], "2001:db8::1"),
        ("127.33.0.1", ["198.51.100.7"], "127.33.0.1"),
        ("127.33.0.1", ["127.15.0.1, 198.51.100.7"], "127.33.0.1"),
    ],
)
async def test_only_trusted_proxies_are_believed(
    edge: Rig, serve: Serve, source: str, said: list[str], expected: str
) -> None:
    app = await serve()
    session, own = await edge.entered(app)
    fields = [*own, *(("X-Forwarded-For", value) for value in said)]
    assert (await edge.get(session, fields=fields, source=source)).status == 200
    assert app.requests[0].all("X-Forwarded-For") == [expected]


# Fields that clients forge in the gateway's name

SPOOFED = read_lines("spoofed")


AT_ONCE = 40


@pytest.mark.parametrize("first", range(0, len(SPOOFED), AT_ONCE))
async def test_client_fields_with_reserved_names_are_removed(
    rig: Rig, serve: Serve, first: int
) -> None:
    app = await serve(websocket())
    name_of_link = f"link-{new_sid()[:8]}.localhost"
    session, own = await rig.entered(app, links=[name_of_link], public=True)
    spoof = [(name, "root") for name in SPOOFED[first : first + AT_ONCE] for _ in range(2)]
    assert (await rig.get(session, fields=[*spoof, *own, ("X-Other", "1")])).status == 200
    assert (await rig.upgrade(session, "/", [*own, *spoof, ("X-Other", "1")]))[1].status == 101
    host = rig.host_of(name_of_link)
    assert (await rig.get(session, fields=[("X-Other", "1"), *spoof], host=host)).status == 200
    assert len(app.requests) == 3
    for one in app.requests:
        assert set(said_by_us(one)) <= {n for n, _ in one.fields if n.lower() in OURS}
        assert b"root" not in one.raw
        assert one.get("X-Other") == "1"
    for one in app.requests[:2]:
        assert one.get("X-Forwarded-User") == session.sub
    assert app.requests[-1].get("X-Forwarded-User") is None


@pytest.mark.parametrize(
    "nominated",
    [
        "X-Forwarded-User",
        "x-forwarded-user, X-Forwarded-For",
        "X-Forwarded-Host",
        "X-Forwarded-Proto, close",
        "X_Forwarded_User",
        "keep-alive, X-Forwarded-User, X-Forwarded-Host",
    ],
)
async def test_connection_cannot_name_fields_that_the_gateway_adds(
    rig: Rig, serve: Serve, nominated: str
) -> None:
    app = await serve()
    session, own = await rig.entered(app)
    fields = [*own, ("Connection", nominated)]
    assert (await rig.get(session, fields=fields)).status in (200, 400)
    for one in app.requests:
        assert one.names() >= OURS


@pytest.mark.parametrize("nominated", ["Host", "Content-Length", "Transfer-Encoding"])
async def test_connection_cannot_name_framing_or_host(
    rig: Rig, serve: Serve, nominated: str
) -> None:
    app = await serve()
    session, own = await rig.entered(app)
    fields = [*own, ("Connection", f"keep-alive, {nominated}")]
    one = await rig.get(session, fields=fields, method="POST", body=b"hello")
    assert one.status in (200, 400)
    assert [(r.body, r.get("Host")) for r in app.requests] == (
        [(b"hello", session.host)] if one.status == 200 else []
    )


@pytest.mark.parametrize("nominated", ["Cookie", "Fumarole-Token", "Authorization", "Origin"])
async def test_connection_cannot_name_a_credential(rig: Rig, serve: Serve, nominated: str) -> None:
    """Naming a credential's field in Connection changes neither access nor what leaks."""
    app = await serve()
    session, own = await rig.entered(app)
    name = ("Connection", nominated)
    assert (await rig.get(session, fields=[name, own[0]])).status in (400, 401)
    bad = [name, ("Origin", "https://evil.example"), own[1]]
    assert (await rig.get(session, fields=bad)).status in (400, 403)
    assert app.connections == []
    await rig.get(session, fields=[name, *own])
    assert own[1][1].partition("=")[2].encode() not in app.received


# Hop-by-hop fields

HOP_BY_HOP = ("Keep-Alive", "Proxy-Connection", "TE", "Trailer", "Upgrade", "Proxy-Authorization")


async def test_hop_by_hop_request_fields_are_not_forwarded(rig: Rig, serve: Serve) -> None:
    app = await serve()
    session, own = await rig.entered(app)
    fields = [
        *own,
        ("Connection", "keep-alive, X-Hop"),
        ("Connection", "x-hop-2"),
        ("Keep-Alive", "timeout=5"),
        ("Proxy-Connection", "keep-alive"),
        ("TE", "trailers"),
        ("Trailer", "X-T"),
        ("Upgrade", "h2c"),
        ("X-Hop", "1"),
        ("X-Hop-2", "2"),
        ("X-End", "3"),
    ]
    assert (await rig.get(session, fields=fields)).status == 200
    names = app.requests[0].names()
    gone = {"x-hop", "x-hop-2", "keep-alive", "proxy-connection", "te", "trailer", "upgrade"}
    assert names.isdisjoint(gone)
    assert app.requests[0].get("X-End") == "3"


async def test_hop_by_hop_response_fields_are_not_forwarded(rig: Rig, serve: Serve) -> None:
    raw = response(
        "200 OK",
        "Connection: keep-alive, X-Hop, Set-Cookie",
        "Keep-Alive: timeout=5",
        "Proxy-Connection: keep-alive",
        "Upgrade: h2c",
        "X-Hop: 1",
        "X-End: 2",
        body=b"ok",
    )
    session, own = await rig.entered(await serve(raw_response(raw)))
    one = await rig.get(session, fields=own)
    assert {"x-hop", "keep-alive", "proxy-connection", "upgrade"}.isdisjoint(one.names())
    assert one.get("X-End") == "2"


# Fields that cross


async def test_every_other_request_field_is_forwarded_unchanged(rig: Rig, serve: Serve) -> None:
    app = await serve()
    session, own = await rig.entered(app)
    fields = [
        ("Accept", "*/*"),
        ("User-Agent", "Mozilla/5.0 (X11; Linux x86_64) \xe4\xff"),
        ("X-A", "1"),
        ("X-B", 'a "quoted, \\"thing\\""; b=c'),
        ("x-a", "2"),
        ("X-Empty", ""),
        ("X-Tab", "a\tb"),
        ("If-None-Match", 'W/"x"'),
        ("Range", "bytes=0-1"),
        ("Content-Type", "application/json"),
        ("X_Under_Score", "1"),
        ("X.Dot", "2"),
        ("!#$%&'*+-.^_`|~", "odd"),
        ("Sec-Fetch-Site", "same-origin"),
        ("Referer", f"{session.origin}/lab"),
        ("Priority", "u=1"),
    ]
    one = await rig.get(session, fields=[*fields, *own], method="POST", body=b"{}")
    assert one.status == 200
    sent = [(name.lower(), value) for name, value in fields]
    got = [(name.lower(), value) for name, value in app.requests[0].fields]
    assert [pair for pair in got if pair in sent] == sent
    assert app.requests[0].get("Origin") == session.origin


async def test_every_other_response_field_is_forwarded_unchanged(rig: Rig, serve: Serve) -> None:
    fields = [
        "Content-Type: text/html; charset=utf-8",
        "Set-Cookie: a=1; Path=/; HttpOnly",
        "Set-Cookie: b=2; SameSite=None; Secure",
        "X-A: 1",
        "X-A: 2",
        "X-Latin: \xe4\xff",
        "X-Empty:",
        "Location: http://elsewhere.example/x?y#z",
        "WWW-Authenticate: Basic realm=x",
        "Server: app/1.0",
        "Date: Thu, 01 Jan 2026 00:00:00 GMT",
        'ETag: W/"x"',
        "Access-Control-Allow-Origin: *",
        "X-Frame-Options: DENY",
        "Strict-Transport-Security: max-age=1",
    ]
    raw = response("401 Nope, not you", *fields, body=b"x")
    session, own = await rig.entered(await serve(raw_response(raw)))
    one = await rig.get(session, fields=own)
    assert (one.status, one.reason, one.body) == (401, "Nope, not you", b"x")
    pairs = [(name, value.strip()) for name, _, value in (line.partition(":") for line in fields)]
    sent = [(name.lower(), value) for name, value in pairs]
    got = [(name.lower(), value) for name, value in one.fields]
    assert [pair for pair in got if pair in sent] == sent
