"""Tests which response fields of an app cross, which the gateway drops, and which it adds."""

from __future__ import annotations

import pytest

from tests.contract.conftest import Serve
from tests.contract.messages import Message, read_response, request, response
from tests.contract.rig import Rig
from tests.contract.streams import Stream
from tests.contract.upstream import OK, App, raw_response, websocket

# Fields that the gateway drops from responses or adds to them


@pytest.mark.parametrize(
    "cookie",
    [
        "fumarole=x",
        "fumarole=x; Path=/; HttpOnly",
        " fumarole=x",
        "fumarole =x",
        "fumarole\t=x",
        "fumarole=",
        "fumarole=x; Max-Age=0",
        "=fumarole=x",
        "__Host-fumarole=x; Secure; Path=/",
        "a=1; Domain=localhost",
        "a=1; domain=localhost",
        "a=1; DOMAIN = .localhost",
        "a=1;Domain=x",
        "a=1; Path=/; Domain=localhost; Secure",
        "a=1; Domain=",
        "a=1;\tDomain=x",
        "a=1; Domain",
    ],
)
async def test_an_app_cannot_set_gateway_cookies_or_cookies_for_other_hosts(
    rig: Rig, serve: Serve, cookie: str
) -> None:
    raw = response(
        "200 OK", "Set-Cookie: good=1", f"Set-Cookie: {cookie}", "set-cookie: b=2", body=b""
    )
    session, own = await rig.entered(await serve(raw_response(raw)))
    one = await rig.get(session, fields=own)
    assert one.all("Set-Cookie") == ["good=1", "b=2"]


async def test_cookies_with_similar_names_are_forwarded(rig: Rig, serve: Serve) -> None:
    cookies = [
        "fumarole2=x",
        "my-fumarole=x",
        "a=fumarole=x",
        "domain=x",
        "a=domain=y; Path=/domain",
    ]
    raw = response("200 OK", *(f"Set-Cookie: {cookie}" for cookie in cookies), body=b"")
    session, own = await rig.entered(await serve(raw_response(raw)))
    assert (await rig.get(session, fields=own)).all("Set-Cookie") == cookies


async def test_a_redirect_to_the_apps_own_port_leads_to_the_public_address(
    edge: Rig, serve: Serve
) -> None:
    # nginx in a job does so, and apps that do not trust X-Forwarded-Proto.
    async def to_itself(app: App, stream: Stream) -> None:
        host = (await app.request(stream)).get("Host")
        for there in (
            f"http://{host}/a",
            f"http://{host}:{app.port}/a",
            f"http://localhost:{app.port}/a",
        ):
            stream.send(response("302 Found", f"Location: {there}", body=b""))
            host = (await app.request(stream)).get("Host")

    session, own = await edge.entered(await serve(to_itself))
    for _ in range(3):
        there = (await edge.get(session, fields=own)).get("Location")
        assert there == f"https://{session.host}/a"


async def test_a_cookie_for_the_domain_of_the_session_is_set_for_its_host(
    rig: Rig, serve: Serve
) -> None:
    # code-server sets its sign-in so.
    async def own_domain(app: App, stream: Stream) -> None:
        host = ((await app.request(stream)).get("Host") or "").partition(":")[0]
        stream.send(response("302 Found", f"Set-Cookie: a=1; Domain={host}; Path=/", body=b""))

    session, own = await rig.entered(await serve(own_domain))
    assert (await rig.get(session, fields=own)).all("Set-Cookie") == ["a=1; Path=/"]


@pytest.mark.parametrize("status", ["200 OK", "302 Found", "404 Not Found", "500 Oh"])
async def test_response_fields_that_affect_other_sessions_are_dropped(
    rig: Rig, serve: Serve, status: str
) -> None:
    lines = ["Clear-Site-Data: *", "clear-site-data: cookies", 'Alt-Svc: h3=":443"', "X-A: 1"]
    session, own = await rig.entered(await serve(raw_response(response(status, *lines, body=b"x"))))
    one = await rig.get(session, fields=own)
    assert {"clear-site-data", "alt-svc"}.isdisjoint(one.names())
    assert one.get("X-A") == "1"


async def test_a_refused_upgrade_and_a_103_are_sanitised(rig: Rig, serve: Serve) -> None:
    lines = [
        "Set-Cookie: fumarole=x",
        "Clear-Site-Data: *",
        "Alt-Svc: x",
        "Set-Cookie: a=1; Domain=x",
    ]
    raw = response("403 Forbidden", *lines, body=b"no")
    session, own = await rig.entered(await serve(raw_response(raw)))
    _, one = await rig.upgrade(session, "/", own)
    assert one.status == 403
    assert {"set-cookie", "clear-site-data", "alt-svc"}.isdisjoint(one.names())
    hints = response("103 Early Hints", *lines) + OK
    session, own = await rig.entered(await serve(raw_response(hints)))
    stream = await rig.connect()
    stream.send(request("GET", "/", host=session.host, fields=own))
    hint = await read_response(stream)
    assert {"set-cookie", "clear-site-data", "alt-svc"}.isdisjoint(hint.names())


async def test_the_101_of_an_app_is_sanitised(rig: Rig, serve: Serve) -> None:
    lines = ["Set-Cookie: fumarole=x", "Set-Cookie: a=1", "Set-Cookie: b=1; Domain=x", "Alt-Svc: x"]
    session, own = await rig.entered(await serve(websocket(None, *lines)))
    _, one = await rig.upgrade(session, "/", own)
    assert one.status == 101
    assert one.all("Set-Cookie") == ["a=1"]
    assert "alt-svc" not in one.names()


async def test_cookies_of_a_101_fit_the_host_and_the_frame_of_their_session(
    edge: Rig, serve: Serve
) -> None:
    # Streamlit sets the cookie without which it takes no upload with its 101.
    app = await serve()
    session = await edge.session(app)
    host = session.host.partition(":")[0]
    app.script = websocket(None, "Set-Cookie: a=1", f"Set-Cookie: b=1; Domain={host}")
    frame = [
        ("Origin", session.origin),
        ("Sec-Fetch-Dest", "iframe"),
        ("Sec-Fetch-Site", "cross-site"),
    ]
    attributes = "; SameSite=None; Secure; Partitioned"
    for fields, end in ((frame, attributes), ((), ""), (frame, attributes)):
        opened = await edge.post_open(session, edge.token(session), fields)
        own = edge.own(session, edge.cookie_of(opened))
        for _ in range(2):
            _, one = await edge.upgrade(session, "/", own)
            assert one.all("Set-Cookie") == [f"a=1{end}", f"b=1{end}"]


def frame_ancestors(message: Message) -> list[set[str]]:
    """Return the frame-ancestors of each policy."""
    policies = [p for field in message.all("Content-Security-Policy") for p in field.split(",")]
    directives = [d.split() for policy in policies for d in policy.split(";")]
    return [set(words[1:]) for words in directives if words[:1] == ["frame-ancestors"]]


@pytest.mark.parametrize("own_policy", [None, "default-src 'none'", "frame-ancestors *"])
async def test_responses_state_who_may_frame_the_session(
    rig: Rig, edge: Rig, serve: Serve, own_policy: str | None
) -> None:
    lines = [] if own_policy is None else [f"Content-Security-Policy: {own_policy}"]
    app: App = await serve(raw_response(response("200 OK", *lines, body=b"x")))
    for used, expected in ((rig, {"'self'"}), (edge, {"'self'", "https://portal.example.com"})):
        session, own = await used.entered(app)
        one = await used.get(session, fields=own)
        assert expected in frame_ancestors(one)
        if own_policy is not None:
            assert any(own_policy in field for field in one.all("Content-Security-Policy"))


@pytest.mark.parametrize(
    ("lines", "expected"),
    [
        ([], ["private"]),
        (["Cache-Control: no-store"], ["no-store"]),
        (["Cache-Control: public, max-age=60"], ["public, max-age=60"]),
        (["Cache-Control: no-cache", "Cache-Control: max-age=1"], ["no-cache", "max-age=1"]),
    ],
)
async def test_a_response_without_cache_control_becomes_private(
    rig: Rig, serve: Serve, lines: list[str], expected: list[str]
) -> None:
    session, own = await rig.entered(
        await serve(raw_response(response("200 OK", *lines, body=b"x")))
    )
    assert (await rig.get(session, fields=own)).all("Cache-Control") == expected


async def test_the_response_head_is_rewritten_in_canonical_form(rig: Rig, serve: Serve) -> None:
    """The app gets a request head that is written anew: one space, no white space around values."""
    app = await serve()
    session, own = await rig.entered(app)
    head = f"GET /x HTTP/1.1\r\nHOST:{session.host}\r\nX-A:   b  \t\r\nX-B:\t c\r\n"
    rest = "".join(f"{name}:{value}\r\n" for name, value in own)
    assert (await rig.ask((head + rest + "\r\n").encode())).status == 200
    lines = app.requests[0].raw.decode().split("\r\n")
    assert "X-A: b" in [line.replace("x-a", "X-A") for line in lines]
    assert all(line == line.rstrip() for line in lines)
