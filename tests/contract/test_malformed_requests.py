"""Tests that malformed requests get the right status and a closed connection, and never cross."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.contract import frames
from tests.contract.conftest import Serve
from tests.contract.messages import read_response, request
from tests.contract.rig import Rig, Session
from tests.contract.streams import Stream
from tests.contract.upstream import App, raw_response, responding, websocket
from tests.corpora import bytes_of, read_corpus

STATUS_LINES = re.compile(rb"^HTTP/1\.[01] ([0-9]{3}) ", re.MULTILINE)


@contextmanager
def naming(case: str) -> Iterator[None]:
    """Name the *case* of a corpus in a failure."""
    try:
        yield
    except BaseException as error:
        error.add_note(case)
        raise


def filled(raw: str, session: Session, cookie: str) -> bytes:
    """Return the bytes of a case for *session*."""
    name, _, port = session.host.rpartition(":")
    upgrade = "".join(f"{field}: {said}\r\n" for field, said in frames.HANDSHAKE)
    words = {"host": session.host, "name": name, "port": port, "value": cookie}
    return bytes_of(raw, cookie=f"Cookie: {cookie}", upgrade=upgrade, **words)


def probe(session: Session, cookie: str) -> bytes:
    """Return a valid request, which must not be processed after a malformed one."""
    return request("GET", "/behind", host=session.host, fields=[("Cookie", cookie)])


async def refused(rig: Rig, data: bytes, status: int) -> None:
    """Assert that *data* gets one response with *status*, and then the end of the connection."""
    stream = await rig.connect()
    stream.send(data)
    text = await stream.read_to_end()
    stream.close()
    assert [int(code) for code in STATUS_LINES.findall(text)] == [status], text[:300]


# These statuses end the connection: the following bytes may belong to the refused request.
MALFORMED = ("400", "405", "501")


async def test_a_malformed_request_reaches_no_app(rig: Rig, serve: Serve) -> None:
    app = await serve(websocket())
    session = await rig.session(app)
    cookie = await rig.opened(session)
    for status, name, raw in read_corpus("refused_requests", 3):
        data = filled(raw, session, cookie)
        with naming(name):
            if status in MALFORMED:
                await refused(rig, data + probe(session, cookie), int(status))
            else:
                method = data.split(b" ", 1)[0].decode()
                assert (await rig.ask(data, method=method)).status == int(status)
            assert app.connections == []


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"HEAD / HTTP/1.1\r\nHost: %h\r\nX : 1\r\n\r\n", 400),
        (b"HEAD  / HTTP/1.1\r\nHost: %h\r\n\r\n", 400),
        (b"\r\nHEAD / HTTP/1.1\r\n\r\n", 400),
        (b"HEAD / HTTP/1.1\r\nHost: %h\r\nUpgrade: websocket\r\n\r\n", 400),
        (b"HEAD /%l HTTP/1.1\r\nHost: %h\r\n\r\n", 414),
        (b"HEAD / HTTP/1.1\r\nHost: %h\r\nX: %l%l%l%l%l%l%l%l\r\n\r\n", 431),
    ],
)
async def test_a_refused_head_request_gets_no_content(
    rig: Rig, serve: Serve, head: bytes, status: int
) -> None:
    """A client would take the content for its next response (RFC 9110, section 9.3.2)."""
    session = await rig.session(await serve(websocket()))
    stream = await rig.connect()
    stream.send(head.replace(b"%h", session.host.encode()).replace(b"%l", b"x" * 17_000))
    text = await stream.read_to_end()
    stream.close()
    assert [int(code) for code in STATUS_LINES.findall(text)] == [status], text[:300]
    said = re.search(rb"\r\nContent-Length: (\d+)\r\n", text)
    assert said is not None
    assert int(said[1]) > 0
    assert text.endswith(b"\r\n\r\n")


CHUNKS = read_corpus("chunks", 2)


def chunked(session: Session, cookie: str, body: bytes) -> bytes:
    """Return a POST with *body* unchanged."""
    fields = [("Cookie", cookie), ("Origin", session.origin), ("Transfer-Encoding", "chunked")]
    return request("POST", "/x", host=session.host, fields=fields) + body


@pytest.mark.parametrize(("name", "raw"), CHUNKS, ids=[case[0] for case in CHUNKS])
async def test_a_malformed_chunked_body_reaches_no_app_whole(
    rig: Rig, serve: Serve, name: str, raw: str
) -> None:
    app = await serve()
    session = await rig.session(app)
    cookie = await rig.opened(session)
    data = chunked(session, cookie, bytes_of(raw))
    await refused(rig, data + probe(session, cookie), 400)
    assert app.requests == []
    assert b"/behind" not in app.received


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"5;" + b"x" * 200 + b"\r\nhello\r\n0\r\n\r\n", 200),
        (b"5;" + b"x" * 300 + b"\r\nhello\r\n0\r\n\r\n", 400),
        (b"0000000000000005\r\nhello\r\n0\r\n\r\n", 200),
        (b"5\r\nhello\r\n0\r\n" + b"A: b\r\n" * 1000 + b"\r\n", 200),
        (b"5\r\nhello\r\n0\r\n" + b"A: b\r\n" * 1400 + b"\r\n", 400),
        (b"5\r\nhello\r\n0\r\nA: " + b"b" * 9000 + b"\r\n\r\n", 400),
    ],
    ids=[
        "extension of 200 bytes",
        "extension of 300 bytes",
        "size of 16 digits",
        "trailers under 8 KiB",
        "trailers over 8 KiB",
        "trailer over 8 KiB",
    ],
)
async def test_chunk_extensions_and_trailers_are_bounded(
    rig: Rig, serve: Serve, body: bytes, status: int
) -> None:
    app = await serve()
    session = await rig.session(app)
    cookie = await rig.opened(session)
    response = await rig.ask(chunked(session, cookie, body))
    assert response.status == status
    assert [one.body for one in app.requests] == ([b"hello"] if status == 200 else [])


# Sizes


@pytest.mark.parametrize(
    ("status", "target", "fields"),
    [
        (200, "/" + "x" * 4000, []),
        (200, "/", [("A", "x" * 30000)]),
        (200, "/", [(f"A{n}", "x") for n in range(240)]),
        (414, "/" + "x" * 70000, []),
        (414, "/?" + "x" * 200000, []),
        (431, "/", [("A", "x" * 70000)]),
        (431, "/", [("Cookie", "a=" + "x" * 400_000)]),
        (431, "/", [(f"A{n}", "x" * 1000) for n in range(70)]),
        (431, "/", [(f"A{n}", "x") for n in range(257)]),
        (431, "/", [("x" * 70000, "A")]),
    ],
    ids=[
        "target of 4 KB", "head of 30 KB", "240 fields", "target of 70 KB", "target of 200 KB",
        "field of 70 KB", "cookie of 400 KB", "70 fields of 1 KB", "257 more fields",
        "name of 70 KB",
    ],
)  # fmt: skip
async def test_request_heads_are_limited_in_size(
    rig: Rig, serve: Serve, status: int, target: str, fields: list[tuple[str, str]]
) -> None:
    app = await serve()
    session = await rig.session(app)
    cookie = ("Cookie", await rig.opened(session))
    data = request("GET", target, host=session.host, fields=[cookie, *fields])
    if status == 200:
        assert (await rig.ask(data)).status == 200
    else:
        await refused(rig, data + probe(session, cookie[1]), status)
        assert app.connections == []


@pytest.mark.parametrize(
    ("status", "target", "fields"),
    [
        (400, "/", [("Content-Length", "x")]),
        (414, "/?" + "x" * 30_000, []),
        (431, "/", [("A", "x" * 70_000)]),
        (431, "/", [("Cookie", "a=" + "x" * 400_000)]),
    ],
)
@pytest.mark.parametrize("accept", ["text/html,*/*;q=0.8", "*/*"])
async def test_refused_heads_are_answered_with_a_page_in_browsers(
    rig: Rig, serve: Serve, status: int, target: str, fields: list[tuple[str, str]], accept: str
) -> None:
    session = await rig.session(await serve())
    own = [("Accept", accept), ("Accept-Language", "de"), *fields]
    data = request("GET", target, host=session.host, fields=own)
    response = await rig.ask(data)
    assert response.status == status
    is_page = b'<html lang="de">' in response.body
    assert is_page is (accept != "*/*")


# Methods

# The registry of HTTP methods (iana.org/assignments/http-methods), without CONNECT, TRACE and
# the reserved ones (PRI and *); and other methods that parsers accept.
REGISTERED, NOT_REGISTERED = (names for _, names in read_corpus("methods", 2))


@pytest.mark.parametrize("method", REGISTERED.split())
async def test_every_registered_method_reaches_the_app(rig: Rig, serve: Serve, method: str) -> None:
    app = await serve()
    session = await rig.session(app)
    own = rig.own(session, await rig.opened(session))
    assert (await rig.get(session, "/x", own, method=method)).status == 200
    assert [(one.method, one.target) for one in app.requests] == [(method, "/x")]


@pytest.mark.parametrize("method", NOT_REGISTERED.split())
async def test_an_unknown_method_is_501(rig: Rig, serve: Serve, method: str) -> None:
    app = await serve()
    session = await rig.session(app)
    own = rig.own(session, await rig.opened(session))
    assert (await rig.get(session, "/x", own, method=method)).status == 501
    assert app.connections == []


@pytest.mark.parametrize(
    ("method", "target"),
    [("CONNECT", "{host}"), ("CONNECT", "/x"), ("CONNECT", "evil.example:443"), ("TRACE", "/x")],
)
async def test_connect_and_trace_are_not_allowed(
    rig: Rig, serve: Serve, method: str, target: str
) -> None:
    app = await serve()
    session = await rig.session(app)
    own = rig.own(session, await rig.opened(session))
    target = target.format(host=session.host)
    data = request(method, target, host=session.host, fields=own)
    assert (await rig.ask(data)).status == 405
    assert app.connections == []


# Malformed responses of apps


async def ask_twice(rig: Rig, session: Session, own: list[tuple[str, str]]) -> list[int]:
    """Return the statuses of two consecutive requests of one user."""
    return [(await rig.get(session, f"/{n}", own)).status for n in (1, 2)]


def asked_once(connections: list[Stream]) -> bool:
    """Return whether no connection served a second request."""
    return all(bytes(one.received).count(b" HTTP/1.1\r\n") == 1 for one in connections)


async def test_a_malformed_response_is_502(rig: Rig, serve: Serve) -> None:
    said = b""

    async def script(app: App, stream: Stream) -> None:
        while True:
            await app.request(stream)
            stream.send(said)

    app = await serve(script)
    session, own = await rig.entered(app)
    for name, raw in read_corpus("broken_answers", 2):
        said = bytes_of(raw)
        with naming(name):
            assert await ask_twice(rig, session, own) == [502, 502]
            assert asked_once(app.connections)
        app.connections.clear()


@pytest.mark.parametrize("said", [b"hello", b"HTTP/1.1 200 OK\r\nA: b\r\n"])
async def test_a_response_head_that_never_ends_is_502(rig: Rig, serve: Serve, said: bytes) -> None:
    app = await serve(raw_response(said, then_close=True))
    assert await ask_twice(rig, *await rig.entered(app)) == [502, 502]
    assert asked_once(app.connections)


@pytest.mark.parametrize(
    ("method", "raw"),
    [
        ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nokHTTP/1.1 200 EVIL\r\n\r\n"),
        ("GET", b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok\r\n"),
        ("GET", b"HTTP/1.1 204 No\r\n\r\nHTTP/1.1 200 EVIL\r\nContent-Length: 0\r\n\r\n"),
        ("GET", b"HTTP/1.1 304 No\r\nContent-Length: 4\r\n\r\nevil"),
        (
            "GET",
            b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
            b"HTTP/1.1 200 EVIL\r\n\r\n",
        ),
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nevil"),
        ("HEAD", b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nHTTP/1.1 200 EVIL\r\n\r\n"),
    ],
)
async def test_bytes_beyond_a_response_are_not_delivered(
    rig: Rig, serve: Serve, method: str, raw: bytes
) -> None:
    app = await serve(raw_response(raw))
    session = await rig.session(app)
    cookie = ("Cookie", await rig.opened(session))
    stream = await rig.connect()
    for number in (1, 2):
        stream.send(request(method, f"/{number}", host=session.host, fields=[cookie]))
        response = await read_response(stream, method)
        assert b"EVIL" not in response.raw
        assert b"evil" not in response.body
        if response.get("Connection") == "close":
            stream = await rig.connect()
    assert b"EVIL" not in stream.received
    assert all(bytes(one.received).count(b" HTTP/1.1\r\n") == 1 for one in app.connections)


async def test_response_heads_are_limited_in_size(rig: Rig, serve: Serve) -> None:
    for big in ("A: " + "x" * 70000, "\r\n".join(f"A{n}: {'x' * 1000}" for n in range(80))):
        raw = f"HTTP/1.1 200 OK\r\n{big}\r\nContent-Length: 2\r\n\r\nok".encode()
        app = await serve(responding(raw))
        assert await ask_twice(rig, *await rig.entered(app)) == [502, 502]


CHUNKED_HEAD = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"


@pytest.mark.parametrize(
    "raw",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhello",
        CHUNKED_HEAD + b"5\r\nhello\r\n",
        CHUNKED_HEAD + b"5\r\nhello\r\n0\r\n",
        CHUNKED_HEAD + b"5\r\nhello\r\n0x3\r\nabc\r\n0\r\n\r\n",
        CHUNKED_HEAD + b"5\r\nhelloXX0\r\n\r\n",
        CHUNKED_HEAD + b"5\r\nhello\r\n-1\r\n0\r\n\r\n",
        CHUNKED_HEAD + b"5\nhello\r\n0\r\n\r\n",
    ],
)
async def test_a_truncated_response_does_not_appear_complete(
    rig: Rig, serve: Serve, raw: bytes
) -> None:
    session = await rig.session(await serve(raw_response(raw, then_close=True)))
    cookie = ("Cookie", await rig.opened(session))
    stream = await rig.connect()
    fields = [cookie, ("Connection", "close")]
    stream.send(request("GET", "/", host=session.host, fields=fields))
    text = await stream.read_to_end()
    head, _, body = text.partition(b"\r\n\r\n")
    if b" 502 " in head.partition(b"\r\n")[0]:
        return
    assert head.startswith(b"HTTP/1.1 200")
    assert not body.endswith(b"0\r\n\r\n")
    length = re.search(rb"(?i)\r\ncontent-length: *([0-9]+)", head)
    assert length is None or int(length[1]) > len(body)
    assert length is not None or b"chunked" in head.lower()


async def test_an_app_that_closes_without_a_response_is_502(rig: Rig, serve: Serve) -> None:
    app = await serve(raw_response(b"", then_close=True))
    assert (await ask_twice(rig, *await rig.entered(app)))[0] == 502


async def test_an_unknown_upgrade_protocol_is_dropped(rig: Rig, serve: Serve) -> None:
    app = await serve()
    session = await rig.session(app)
    cookie = ("Cookie", await rig.opened(session))
    for upgrade in ("h2c", "TLS/1.0", "foo/2", "h2c, foo"):
        fields = [cookie, ("Connection", "Upgrade, HTTP2-Settings"), ("Upgrade", upgrade)]
        fields += [("HTTP2-Settings", "AAMAAABkAARAAAAAAAIAAAAA")]
        assert (await rig.get(session, fields=fields)).status == 200
    for one in app.requests:
        assert {"upgrade", "http2-settings"}.isdisjoint(one.names())


async def test_an_upgrade_with_content_length_0_is_allowed(rig: Rig, serve: Serve) -> None:
    session = await rig.session(await serve(websocket()))
    own = rig.own(session, await rig.opened(session))
    _, response = await rig.upgrade(session, "/", [*own, ("Content-Length", "0")])
    assert response.status == 101


async def test_the_response_to_a_refused_upload_arrives(rig: Rig, serve: Serve) -> None:
    app = await serve()
    session = await rig.session(app)
    stream = await rig.connect()
    head = f"POST /x HTTP/1.1\r\nHost: {session.host}\r\nContent-Length: 3000000\r\n\r\n"
    stream.send(head.encode())
    for _ in range(30):
        if stream.transport.is_closing():
            break
        stream.send(b"x" * 100_000)
        await stream.drain()
    response = await read_response(stream)
    assert response.status == 401
    await stream.until_ended()
    assert app.connections == []
