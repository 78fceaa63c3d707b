"""Tests opening a session: the browser's POST, the cookie in the response, and the redirect."""

from __future__ import annotations

import gzip
import json
import re
import time
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.contract.conftest import PORTAL
from tests.contract.messages import Response
from tests.contract.rig import Rig, Session
from tests.contract.tokens import ISSUER
from tests.corpora import read_corpus, unescape

JSON = ("Content-Type", "application/json")


def attributes(response: Response, name: str) -> dict[str, str]:
    """Return the attributes of the cookie *name* that is set, with lower-case names."""
    (cookie,) = [
        value
        for value in response.all("Set-Cookie")
        if value.startswith(f"{name}=") and not value.startswith(f"{name}=;")
    ]
    parts = [part.strip().partition("=") for part in cookie.split(";")[1:]]
    assert len({name.lower() for name, _, _ in parts}) == len(parts), cookie
    return {name.lower(): value for name, _, value in parts}


# The response to a valid token


async def test_opening_redirects_to_next_and_sets_a_cookie(rig: Rig) -> None:
    session = await rig.session()
    response = await rig.post_open(session, rig.token(session), next="/lab?x=1")
    assert response.status == 303
    assert response.get("Location") == "/lab?x=1"
    assert response.get("Referrer-Policy") == "no-referrer"
    cookie = attributes(response, "fumarole")
    assert "httponly" in cookie
    assert cookie["samesite"].lower() == "lax"
    assert cookie["path"] == "/"
    assert 43200 - 10 <= int(cookie["max-age"]) <= 43200
    assert "domain" not in cookie


async def test_opening_over_https_sets_a_host_prefixed_cookie(edge: Rig) -> None:
    session = await edge.session()
    response = await edge.post_open(session, edge.token(session), next="/")
    assert response.status == 303
    cookie = attributes(response, "__Host-fumarole")
    assert {"secure", "httponly"} <= cookie.keys()
    assert "domain" not in cookie
    assert "partitioned" not in cookie
    assert (cookie["samesite"].lower(), cookie["path"]) == ("lax", "/")


async def test_opening_in_a_frame_sets_a_partitioned_cookie(edge: Rig) -> None:
    session = await edge.session()
    fields = [("Origin", session.origin), ("Sec-Fetch-Dest", "iframe")]
    response = await edge.post_open(session, edge.token(session), fields)
    cookie = attributes(response, "__Host-fumarole")
    assert {"secure", "httponly", "partitioned"} <= cookie.keys()
    assert cookie["samesite"].lower() == "none"
    # A browser may send both kinds in one request, so the other one is removed.
    (removed,) = [one for one in response.all("Set-Cookie") if "Max-Age=0" in one]
    assert "samesite=lax" in removed.lower()


@pytest.mark.parametrize("how", ["the post", "a field of the gateway's own page"])
async def test_opening_in_a_frame_of_the_same_site_sets_the_usual_cookie(
    edge: Rig, how: str
) -> None:
    session = await edge.session()
    fields = [("Origin", session.origin), ("Sec-Fetch-Dest", "iframe")]
    if how == "the post":
        fields.append(("Sec-Fetch-Site", "same-site"))
        response = await edge.post_open(session, edge.token(session), fields)
    else:
        body = json.dumps({"token": edge.token(session), "frame": "same-site"}).encode()
        response = await edge.get(
            session, "/.fumarole/open", [JSON, *fields], method="POST", body=body
        )
    cookie = attributes(response, "__Host-fumarole")
    assert cookie["samesite"].lower() == "lax"
    assert "partitioned" not in cookie


async def test_without_embed_origins_a_frame_gets_no_partitioned_cookie(rig: Rig) -> None:
    session = await rig.session()
    fields = [("Origin", session.origin), ("Sec-Fetch-Dest", "iframe")]
    response = await rig.post_open(session, rig.token(session), fields)
    assert response.status == 303
    cookie = attributes(response, "fumarole")
    assert cookie["samesite"].lower() == "lax"
    assert "partitioned" not in cookie


async def test_opening_accepts_json(rig: Rig) -> None:
    session = await rig.session()
    body = json.dumps({"token": rig.token(session), "next": "/lab"}).encode()
    response = await rig.get(session, "/.fumarole/open", [JSON], method="POST", body=body)
    assert (response.status, response.get("Location")) == (303, "/lab")


@pytest.mark.parametrize("key", ["ed25519", "p256", "rsa"])
async def test_each_algorithm_opens(rig: Rig, key: str) -> None:
    session = await rig.session()
    token = rig.token(session, getattr(rig.keys, key))
    assert (await rig.post_open(session, token)).status == 303


@pytest.mark.parametrize("kind", ["web", "vnc", "terminal"])
@pytest.mark.parametrize("mode", ["control", "view"])
async def test_each_kind_and_mode_opens_except_a_web_session_for_viewing(
    rig: Rig, kind: str, mode: str
) -> None:
    scheme = {"web": "http", "vnc": "tcp", "terminal": "ws"}[kind]
    session = await rig.session(kind=kind, target={"scheme": scheme})
    response = await rig.post_open(session, rig.token(session, mode=mode))
    assert response.status == (403 if (kind, mode) == ("web", "view") else 303)


@pytest.mark.parametrize(
    "claims",
    [
        {"exp": -5},
        {"nbf": 5},
        {"nbf": -5},
        {"name": "Ada Lovelace"},
        {"max_age": 1},
        {"max_age": 86400},
        {"sub": "x" * 255},
        {"sub": "ada@example.com/ü ß"},
        {"unknown": {"a": [1]}},
    ],
    ids=str,
)
async def test_tokens_with_valid_claims_open(rig: Rig, claims: dict[str, Any]) -> None:
    session = await rig.session()
    now = int(time.time())
    times: dict[str, Any] = {name: now + claims[name] for name in ("exp", "nbf") if name in claims}
    issued: dict[str, Any] = {"iat": now - 30} if "exp" in claims else {}
    token = rig.token(session, **(claims | times | issued))
    assert (await rig.post_open(session, token)).status == 303


async def test_the_longest_life_of_a_token_is_3600_seconds(rig: Rig) -> None:
    session = await rig.session()
    now = int(time.time())
    good, bad = (rig.token(session, iat=now, exp=now + life) for life in (3600, 3601))
    assert (await rig.post_open(session, bad)).status == 401
    assert (await rig.post_open(session, good)).status == 303


async def test_the_cookie_lives_as_long_as_the_grant(rig: Rig) -> None:
    session = await rig.session()
    response = await rig.post_open(session, rig.token(session, max_age=600))
    assert 590 <= int(attributes(response, "fumarole")["max-age"]) <= 600
    await rig.change(session, expires_at=time.time() + 100)
    response = await rig.post_open(session, rig.token(session, max_age=600))
    assert 90 <= int(attributes(response, "fumarole")["max-age"]) <= 100


async def test_a_token_issued_in_the_future_does_not_extend_the_grant(rig: Rig) -> None:
    session = await rig.session()
    now = int(time.time())
    response = await rig.post_open(session, rig.token(session, iat=now + 8, max_age=600))
    assert response.status == 303
    assert int(attributes(response, "fumarole")["max-age"]) <= 601


# The field ``next``


async def test_next_never_leaves_this_origin(rig: Rig) -> None:
    session = await rig.session()
    for raw, expected in read_corpus("next", 2, "\t"):
        response = await rig.post_open(session, rig.token(session), next=unescape(raw))
        assert (response.status, response.get("Location")) == (303, expected), raw
        assert re.fullmatch(r"/([!-.0-\[\]-~][!-\[\]-~]*)?", expected), raw
        assert {"x=1"}.isdisjoint(response.all("Set-Cookie"))


async def test_without_next_the_redirect_leads_to_the_root(rig: Rig) -> None:
    session = await rig.session()
    assert (await rig.post_open(session, rig.token(session))).get("Location") == "/"


# Origins of the POST


def origins_of(rig: Rig, session: Session, sibling: Session) -> dict[str, str]:
    scheme, host = rig.url.scheme, session.host
    other_scheme = "https" if scheme == "http" else "http"
    return {
        "own": session.origin,
        "issuer": ISSUER,
        "portal": PORTAL,
        "null": "null",
        "foreign": "https://evil.example",
        "sibling": sibling.origin,
        "other scheme": f"{other_scheme}://{host}",
        "other port": f"{scheme}://{host.partition(':')[0]}:81",
        "base": f"{scheme}://{rig.host_of(rig.url.hostname or '')}",
        "suffix": f"{session.origin}.evil.example",
        "issuer's suffix": f"{ISSUER}.evil.example",
        "issuer over http": ISSUER.replace("https", "http"),
        "issuer's port": f"{ISSUER}:8443",
        "empty": "",
        "path": f"{session.origin}/",
        "two": f"{session.origin} https://evil.example",
    }


MALFORMED = {"empty", "path", "two"}
ACCEPTED = {"local": {"own", "issuer"}, "edge": {"own", "portal"}}


@pytest.mark.parametrize("where", ["local", "edge"])
async def test_tokens_may_be_posted_from_the_own_and_from_open_origins(
    where: str, request: pytest.FixtureRequest, rig: Rig, edge: Rig
) -> None:
    used = {"local": rig, "edge": edge}[where]
    session, sibling = await used.session(), await used.session()
    taken, token = set(), used.token(session)
    for name, origin in origins_of(used, session, sibling).items():
        response = await used.post_open(session, token, [("Origin", origin)])
        if response.status == 303:
            taken.add(name)
            token = used.token(session)
        else:
            # The same token stays valid: a refused attempt does not spend it.
            assert response.status in ((400, 403) if name in MALFORMED else (403,)), name
    assert taken == ACCEPTED[where]


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
@pytest.mark.parametrize("mode", ["navigate", "cors", "no-cors", None])
async def test_a_post_from_elsewhere_without_origin_is_refused(
    rig: Rig, site: str, mode: str | None
) -> None:
    session = await rig.session()
    fields = [("Sec-Fetch-Site", site)] + ([("Sec-Fetch-Mode", mode)] if mode else [])
    token = rig.token(session)
    assert (await rig.post_open(session, token, fields)).status == 403
    assert (await rig.post_open(session, token)).status == 303


# Sizes


@pytest.mark.parametrize("field", ["next", "token", "other"])
async def test_a_body_over_16_kib_is_refused(rig: Rig, field: str) -> None:
    session = await rig.session()
    form = {"token": rig.token(session), "next": "/"} | {field: "/" + "x" * 16384}
    fields = [("Content-Type", "application/x-www-form-urlencoded")]
    body = urlencode(form).encode()
    response = await rig.get(session, "/.fumarole/open", fields, method="POST", body=body)
    assert response.status == 413


async def test_a_chunked_body_over_16_kib_is_refused(rig: Rig) -> None:
    session = await rig.session()
    head = f"POST /.fumarole/open HTTP/1.1\r\nHost: {session.host}\r\n"
    kind = "Content-Type: application/x-www-form-urlencoded\r\nTransfer-Encoding: chunked\r\n\r\n"
    body = f"5000\r\n{'x' * 0x5000}\r\n0\r\n\r\n"
    response = await rig.ask((head + kind + body).encode())
    assert response.status == 413


async def test_a_compressed_body_is_refused_undecoded(rig: Rig) -> None:
    session = await rig.session()
    head = f"POST /.fumarole/open HTTP/1.1\r\nHost: {session.host}\r\nContent-Encoding: gzip\r\n"
    kind = "Content-Type: application/x-www-form-urlencoded\r\n"
    body = gzip.compress(urlencode({"token": rig.token(session)}).encode())
    length = f"Content-Length: {len(body)}\r\n\r\n"
    response = await rig.ask((head + kind + length).encode() + body)
    assert response.status == 400


async def test_a_chunked_form_opens(rig: Rig) -> None:
    session = await rig.session()
    head = f"POST /.fumarole/open HTTP/1.1\r\nHost: {session.host}\r\n"
    kind = "Content-Type: application/x-www-form-urlencoded\r\nTransfer-Encoding: chunked\r\n\r\n"
    form = f"token={rig.token(session)}&next=/lab"
    body = f"5\r\n{form[:5]}\r\n{len(form) - 5:x}\r\n{form[5:]}\r\n0\r\n\r\n"
    response = await rig.ask((head + kind + body).encode())
    assert (response.status, response.get("Location")) == (303, "/lab")


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("application/json", b"{"),
        ("application/json", b"[]"),
        ("application/json", b'{"token": 7}'),
        ("application/json", b'{"token": null, "next": "/"}'),
        ("application/json", b"\xff\xfe"),
        ("application/x-www-form-urlencoded", b""),
        ("application/x-www-form-urlencoded", b"next=/"),
        ("application/x-www-form-urlencoded", b"token="),
        ("application/x-www-form-urlencoded", b"token=%ff%fe"),
        ("application/x-www-form-urlencoded", b"\xff\x00"),
        ("application/json", b"[" * 16000),
    ],
)
async def test_a_body_without_a_token_is_refused(rig: Rig, kind: str, body: bytes) -> None:
    session = await rig.session()
    fields = [("Content-Type", kind)]
    response = await rig.get(session, "/.fumarole/open", fields, method="POST", body=body)
    assert response.status in (400, 401)
