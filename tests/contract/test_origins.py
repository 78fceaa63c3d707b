"""Tests the allowed origins of requests with a cookie, over every combination of fields."""

from __future__ import annotations

import itertools

import pytest

from tests.contract.conftest import PORTAL, Serve
from tests.contract.messages import read_response, request
from tests.contract.rig import Rig, Session
from tests.contract.upstream import websocket

SITES = (None, "none", "same-origin", "same-site", "cross-site", "nonsense")
MODES = (None, "navigate", "cors", "no-cors", "same-origin", "websocket")
DESTS = (None, "document", "iframe", "frame", "object", "embed", "empty", "script", "image")
METHODS = ("GET", "HEAD", "POST", "OPTIONS", "DELETE")

Asked = dict[str, str | None]


def every_combination() -> list[Asked]:
    """Return every combination without contradictions of ``Origin`` and ``Sec-Fetch-*``."""
    everything = itertools.product(METHODS, (None, "own", "foreign"), SITES, MODES, DESTS)
    names = ("method", "origin", "site", "mode", "dest")
    asked = [dict(zip(names, values, strict=True)) for values in everything]
    return [one for one in asked if one["origin"] is None or one["site"] is None]


def may_pass(asked: Asked, *, embedded: bool) -> bool:
    """Return whether docs/session-token.md allows the combination, clause by clause."""
    origin, site = asked["origin"], asked["site"]
    if origin is not None:
        return origin == "own"
    if site in ("same-origin", "none"):
        return True
    if site is None and asked["method"] in ("GET", "HEAD"):
        return True
    top_level = ("document", "iframe", "frame") if embedded else ("document",)
    navigation = asked["mode"] == "navigate" and asked["dest"] in top_level
    return asked["method"] == "GET" and navigation


def is_open_to_reading(asked: Asked) -> bool:
    """Return whether the contract leaves it open: a navigation with an origin, or without a
    site.
    """
    navigation = asked["mode"] == "navigate" and asked["method"] == "GET"
    old_frame = asked["dest"] == "frame"
    return navigation and (asked["origin"] == "foreign" or asked["site"] == "nonsense" or old_frame)


def fields_of(session: Session, asked: Asked) -> list[tuple[str, str]]:
    """Return the request fields of a combination."""
    origins = {None: None, "own": session.origin, "foreign": "https://evil.example"}
    named = {
        "Origin": origins[asked["origin"]],
        "Sec-Fetch-Site": asked["site"],
        "Sec-Fetch-Mode": asked["mode"],
        "Sec-Fetch-Dest": asked["dest"],
    }
    return [(name, value) for name, value in named.items() if value is not None]


@pytest.mark.parametrize("where", ["local", "edge"])
async def test_every_origin_and_fetch_site_combination_matches_the_contract(
    where: str, rig: Rig, edge: Rig, serve: Serve
) -> None:
    used = {"local": rig, "edge": edge}[where]
    app = await serve()
    session = await used.session(app)
    cookie = ("Cookie", await used.opened(session))
    wrong, passed, stream = [], 0, await used.connect()
    for asked in every_combination():
        if is_open_to_reading(asked):
            continue
        method = asked["method"] or "GET"
        fields = [cookie, *fields_of(session, asked)]
        stream.send(request(method, "/", host=session.host, fields=fields))
        response = await read_response(stream, method)
        expected = 200 if may_pass(asked, embedded=used is edge) else 403
        passed += expected == 200
        if response.status != expected:
            wrong.append((asked, response.status))
        if response.get("Connection") == "close" or stream.ended:
            stream.close()
            stream = await used.connect()
    assert not wrong, f"{len(wrong)} wrong, such as {wrong[:5]}"
    assert len(app.requests) == passed


def foreign_origins(rig: Rig, session: Session, sibling: Session) -> list[str]:
    """Return origins that are not the session's own."""
    name, _, port = session.host.partition(":")
    other = "http" if rig.url.scheme == "https" else "https"
    base = rig.host_of(rig.url.hostname or "")
    return [
        "null",
        "https://evil.example",
        PORTAL,
        sibling.origin,
        f"{rig.url.scheme}://{base}",
        f"{other}://{session.host}",
        f"{rig.url.scheme}://{name}:8",
        f"{rig.url.scheme}://{name}.evil.example" + (f":{port}" if port else ""),
        f"{rig.url.scheme}://x.{session.host}",
        f"{session.origin}.",
        f"{session.origin}@evil.example",
        f"file://{session.host}",
        session.host,
    ]


@pytest.mark.parametrize("where", ["local", "edge"])
async def test_a_foreign_origin_is_refused_for_reads_writes_and_upgrades(
    where: str, rig: Rig, edge: Rig, serve: Serve
) -> None:
    used = {"local": rig, "edge": edge}[where]
    app = await serve(websocket())
    session, sibling = await used.session(app), await used.session(app)
    cookie = ("Cookie", await used.opened(session))
    for origin in foreign_origins(used, session, sibling):
        fields = [("Origin", origin), cookie]
        for method in ("GET", "HEAD", "POST", "OPTIONS"):
            response = await used.get(session, fields=fields, method=method)
            assert response.status in (400, 403), (method, origin)
        _, response = await used.upgrade(session, "/", fields)
        assert response.status in (400, 403), origin
    assert app.connections == []


async def test_two_origins_are_refused(rig: Rig, serve: Serve) -> None:
    app = await serve()
    session = await rig.session(app)
    own = rig.own(session, await rig.opened(session))
    for fields in ([*own, ("Origin", "https://evil.example")], [("Origin", "null"), *own]):
        for method in ("GET", "POST"):
            assert (await rig.get(session, fields=fields, method=method)).status in (400, 403)
    assert app.connections == []


@pytest.mark.parametrize(
    "fields",
    [
        [],
        [("Sec-Fetch-Site", "same-origin")],
        [("Sec-Fetch-Site", "none")],
        [("Sec-Fetch-Site", "same-origin"), ("Sec-Fetch-Mode", "websocket")],
        [("Sec-Fetch-Mode", "navigate"), ("Sec-Fetch-Dest", "document")],
        [("Origin", "null")],
    ],
    ids=str,
)
async def test_an_upgrade_with_a_cookie_needs_the_exact_origin(
    rig: Rig, serve: Serve, fields: list[tuple[str, str]]
) -> None:
    app = await serve(websocket())
    session = await rig.session(app)
    cookie = ("Cookie", await rig.opened(session))
    _, response = await rig.upgrade(session, "/", [cookie, *fields])
    assert response.status == 403
    assert app.connections == []


@pytest.mark.parametrize("kind", ["vnc", "terminal"])
async def test_vnc_and_terminal_upgrades_need_the_exact_origin(
    rig: Rig, serve: Serve, kind: str
) -> None:
    app = await serve()
    scheme = {"vnc": "tcp", "terminal": "ws"}[kind]
    protocol = {"vnc": "binary", "terminal": "fumarole.terminal.v1"}[kind]
    session = await rig.session(app, kind=kind, target={"scheme": scheme})
    cookie = ("Cookie", await rig.opened(session))
    offer = ("Sec-WebSocket-Protocol", protocol)
    for extra in ([], [("Origin", "null")], [("Origin", "https://evil.example")]):
        _, response = await rig.upgrade(session, "/.fumarole/connect", [cookie, offer, *extra])
        assert response.status == 403
    _, response = await rig.upgrade(session, "/.fumarole/connect", [offer])
    assert response.status == 401
    assert app.connections == []


async def test_preflights_get_401(rig: Rig, serve: Serve) -> None:
    app = await serve()
    session = await rig.session(app)
    fields = [
        ("Origin", "https://evil.example"),
        ("Access-Control-Request-Method", "PUT"),
        ("Access-Control-Request-Headers", "authorization"),
    ]
    response = await rig.get(session, fields=fields, method="OPTIONS")
    assert response.status == 401
    assert not any(name.startswith("access-control-") for name in response.names())
    assert app.connections == []


async def test_a_navigation_from_the_orchestrators_page_is_allowed(rig: Rig, serve: Serve) -> None:
    session = await rig.session(await serve())
    fields = [
        ("Cookie", await rig.opened(session)),
        ("Sec-Fetch-Site", "cross-site"),
        ("Sec-Fetch-Mode", "navigate"),
        ("Sec-Fetch-User", "?1"),
        ("Sec-Fetch-Dest", "document"),
    ]
    assert (await rig.get(session, fields=fields)).status == 200
    assert (await rig.get(session, fields=fields, method="POST")).status == 403
