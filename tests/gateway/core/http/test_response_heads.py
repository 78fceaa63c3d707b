from __future__ import annotations

from typing import Any

import msgspec
import pytest

from gateway.core.http.framing import ChunkedBody, CloseDelimitedBody, LengthBody, NoBody
from gateway.core.http.heads import MAX_HEAD_BYTES, HeadRefused
from gateway.core.http.response_heads import (
    ResponseFields,
    ResponseHead,
    ResponseReader,
    find_response_end,
    read_status_line,
    response_body,
)

READER = ResponseReader("frame-ancestors 'self' https://embed.example")
ADDED = b"Content-Security-Policy: frame-ancestors 'self' https://embed.example\r\n"
PRIVATE = b"Cache-Control: private\r\n"
ACCEPT = "s3pPLMBiTxaQ9kYGzzhZRbK+xOo="


def asdict(head: ResponseHead) -> dict[str, Any]:
    return msgspec.structs.asdict(head) | {"fields": msgspec.structs.asdict(head.fields)}


def head(*lines: str, minor: int = 1, status: int = 200) -> ResponseHead:
    first = f"HTTP/1.{minor} {status} Said"
    return READER.read_head("\r\n".join((first, *lines, "", "")).encode("latin-1"))


def read(*lines: str) -> ResponseFields:
    return READER.read("\r\n".join((*lines, "", "")).encode("latin-1"))


def test_with_gateway_tls_every_response_has_strict_transport_security() -> None:
    strict = ResponseReader("frame-ancestors 'self'", strict_transport=True)
    assert b"Strict-Transport-Security: max-age=31536000\r\n" in strict.read(b"\r\n").end_to_end
    assert b"Strict-Transport-Security" not in read().end_to_end
    # A browser takes the first one only (RFC 6797, section 8.1).
    apps = strict.read(b"Strict-Transport-Security: max-age=0\r\n\r\n").end_to_end
    assert apps.index(b"max-age=31536000") < apps.index(b"max-age=0")


def test_every_response_has_frame_ancestors_and_is_private_by_default() -> None:
    assert read().end_to_end == ADDED + PRIVATE
    assert read("cache-control: public").end_to_end == b"cache-control: public\r\n" + ADDED
    own = "Content-Security-Policy: default-src *; frame-ancestors *"
    assert read(own).end_to_end == own.encode() + b"\r\n" + ADDED + PRIVATE


@pytest.mark.parametrize(
    "line",
    [
        "Clear-Site-Data: *", "Alt-Svc: h3=evil", "alt_svc: x",
        "Service-Worker-Allowed: /", "Set-Cookie: a=1; Domain=b",
        "Set-Cookie: fumarole=x", "set-cookie: __Host-fumarole=x", "Connection: keep-alive",
        "Keep-Alive: timeout=5", "Upgrade: h2c", "Trailer: X", "Proxy-Authenticate: Basic",
        "X-Forwarded-User: eve",
        "X-Accel-Redirect: /internal/", "x_accel_redirect: @other", "X-Sendfile: /etc/passwd",
        "X-LIGHTTPD-send-file: /etc/passwd", "X-Envoy-Immediate-Health-Check-Fail: 1",
        "x-envoy-degraded: 1", "X-Sendfile2: /etc/passwd 0-", "X-LiteSpeed-Location: /internal/",
        "X-LIGHTTPD-send-tempfile: /tmp/a", "X-Reproxy-URL: http://10.0.0.1/",
        "X-Accel-Expires: 60",
        'NEL: {"report_to":"a","max_age":31536000}', 'Report-To: {"group":"default"}',
        'Secure-Session-Registration: (ES256);path="/a";challenge="b"',
    ],
)  # fmt: skip
def test_withheld_response_fields_are_dropped(line: str) -> None:
    assert read(line).end_to_end == ADDED + PRIVATE


def test_all_other_response_fields_are_forwarded_in_order() -> None:
    lines = ("X-B: 2", "Set-Cookie: a=1; Path=/", "Date: now", "Set-Cookie: b=2", "X-A: \xff")
    assert read("X-Accel-Buffering: no").end_to_end.startswith(b"X-Accel-Buffering: no\r\n")
    assert read(*lines).end_to_end == (
        b"X-B: 2\r\nSet-Cookie: a=1; Path=/\r\nDate: now\r\nSet-Cookie: b=2\r\nX-A: \xff\r\n"
        + ADDED
        + PRIVATE
    )


def test_response_fields_named_by_connection_are_dropped_but_gateway_fields_kept() -> None:
    got = read("Connection: x-hop, content-security-policy, cache-control", "X-Hop: 1", "A: b")
    assert got.end_to_end == b"A: b\r\n" + ADDED + PRIVATE


def test_a_cache_control_named_by_connection_is_ignored() -> None:
    got = read("Connection: cache-control", "Cache-Control: public")
    assert got.end_to_end == ADDED + PRIVATE


def test_a_response_with_oversize_lists_is_refused() -> None:
    for name in ("Connection", "Upgrade"):
        with pytest.raises(HeadRefused) as refused:
            read(f"{name}: " + "a," * 300)
        assert refused.value.code == "app_bad_answer"


def test_a_date_named_by_connection_is_ignored() -> None:
    assert read("Date: now").has_date
    assert not read("A: b").has_date
    got = read("Connection: date", "Date: now")
    assert not got.has_date
    assert got.end_to_end == ADDED + PRIVATE


@pytest.mark.parametrize(
    ("line", "parts"),
    [
        (b"HTTP/1.1 200 OK", (1, 200, b"OK")),
        (b"HTTP/1.0 404 Not Found", (0, 404, b"Not Found")),
        (b"HTTP/1.1 204 ", (1, 204, b"")),
        (b"HTTP/1.1 204", (1, 204, b"")),
        (b"HTTP/1.1 599 \xe4", (1, 599, b"\xe4")),
    ],
)
def test_status_lines_are_read(line: bytes, parts: tuple[int, int, bytes]) -> None:
    assert read_status_line(line) == parts


CASES = [
    (("Content-Length: 5",), b"GET", 200, LengthBody, b"Content-Length: 5\r\n"),
    (("Content-Length: 5",), b"HEAD", 200, NoBody, b"Content-Length: 5\r\n"),
    (("Content-Length: 5",), b"GET", 304, NoBody, b"Content-Length: 5\r\n"),
    (("Content-Length: 0",), b"GET", 204, NoBody, b""),
    (("Transfer-Encoding: Chunked",), b"GET", 200, ChunkedBody, b"Transfer-Encoding: chunked\r\n"),
    (("Transfer-Encoding: chunked",), b"HEAD", 200, NoBody, b""),
    ((), b"GET", 200, CloseDelimitedBody, b""),
    ((), b"HEAD", 200, NoBody, b""),
]


@pytest.mark.parametrize(("lines", "method", "status", "kind", "framing"), CASES)
def test_the_body_framing_of_a_response_follows_rfc_9112(
    lines: tuple[str, ...], method: bytes, status: int, kind: type, framing: bytes
) -> None:
    body, said = response_body(head(*lines, status=status), method, 1)
    assert isinstance(body, kind)
    assert said == framing


def test_an_http_1_0_client_gets_no_chunks() -> None:
    body, said = response_body(head("Transfer-Encoding: chunked"), b"GET", 0)
    assert said == b""
    assert body.feed(b"2\r\nok\r\n0\r\n\r\n") == b"ok"


def test_an_endless_response_head_is_refused() -> None:
    assert find_response_end(b"HTTP/1.1 200 OK\r\n") == 0
    assert find_response_end(b"HTTP/1.1 200 OK\r\n\r\nbody") == 19
    for raw in (b"X: " + b"a" * MAX_HEAD_BYTES, b"X: " + b"a" * MAX_HEAD_BYTES + b"\r\n\r\n"):
        with pytest.raises(HeadRefused) as refused:
            find_response_end(b"HTTP/1.1 200 OK\r\n" + raw)
        assert refused.value.code == "app_bad_answer"


def test_the_status_line_is_written_in_canonical_form() -> None:
    assert head(minor=0, status=404).status_line == b"HTTP/1.1 404 Said\r\n"
    assert READER.read_head(b"HTTP/1.1 204\r\n\r\n").status_line == b"HTTP/1.1 204 \r\n"


@pytest.mark.parametrize(
    ("lines", "named"),
    [
        (b"Upgrade: websocket\r\nConnection: Upgrade\r\n", b"websocket"),
        (b"Upgrade: HTTP/2.0, websocket\r\nConnection: Upgrade\r\n", b"HTTP/2.0, websocket"),
        (b"Sec-WebSocket-Version: 13\r\n", b"websocket"),
    ],
)
def test_a_426_keeps_its_upgrade_field(lines: bytes, named: bytes) -> None:
    reader = ResponseReader("frame-ancestors 'self'")
    head = reader.read_head(b"HTTP/1.1 426 Upgrade Required\r\n%b\r\n" % lines)
    assert head.fields.end_to_end.endswith(b"Connection: Upgrade\r\nUpgrade: %b\r\n" % named)
    other = reader.read_head(b"HTTP/1.1 400 Bad Request\r\n%b\r\n" % lines)
    assert b"Upgrade:" not in other.fields.end_to_end
