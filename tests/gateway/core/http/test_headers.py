from __future__ import annotations

import re
from pathlib import Path

from gateway import pages
from gateway.core.http.fields import FieldReader, Fields, Section
from gateway.core.http.headers import (
    NO_UPSTREAM_HEAD,
    ForwardedInfo,
    UpstreamHead,
    forwarded_fields,
    framing_field,
    page_head,
    upstream_head,
)
from gateway.core.http.heads import read_start_line
from gateway.core.http.request_reader import RequestHead

OURS = "e30.eyJhdWQiOiJmdW1hcm9sZS1nYXRld2F5In0.e30"
UPGRADE = (
    "Connection: Upgrade",
    "Upgrade: websocket",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
)
OURS_IN_A_LIST = "e30.eyJhdWQiOlsiYSIsImZ1bWFyb2xlLWdhdGV3YXkiXX0.e30"


def read_section(*lines: str) -> Section:
    raw = "\r\n".join(("Host: A:1", *lines, "", "")).encode()
    return FieldReader(b"fumarole").read_section(raw, None)


def read(*lines: str) -> Fields:
    return read_section(*lines).fields


def to_app(section: Section, forwarded: bytes = b"") -> bytes:
    head = upstream_head(section.fields, forwarded, path_prefix=b"")
    return head.prefix + section.end_to_end + head.suffix


def test_an_app_receives_user_and_client_address() -> None:
    facts = ForwardedInfo(scheme="https", user="Ada Ü/%,\n")
    assert forwarded_fields("a:1", facts) == (
        b"X-Forwarded-Host: a:1\r\nX-Forwarded-Proto: https\r\n"
        b"X-Forwarded-User: Ada%20%C3%9C%2F%25%2C%0A\r\n"
    )
    assert NO_UPSTREAM_HEAD.for_client("::1").suffix == b"X-Forwarded-For: ::1\r\n"


def test_each_upgrade_has_its_own_client_and_key() -> None:
    shared = upstream_head(read(*UPGRADE), b"F: g\r\n", path_prefix=b"/p")
    assert shared.for_client("1.1.1.1", b"k1") == UpstreamHead(
        b"/p",
        b" HTTP/1.1\r\nHost: A:1\r\n",
        b"X-Forwarded-For: 1.1.1.1\r\nSec-WebSocket-Key: k1\r\nF: g\r\nConnection: Upgrade\r\n"
        b"Upgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\r\n",
    )


def test_no_user_is_named_on_a_public_host() -> None:
    facts = ForwardedInfo(scheme="https", user=None)
    assert b"User" not in forwarded_fields("a", facts)


def test_a_head_to_an_app_is_canonical() -> None:
    tail = to_app(read_section("X: y", "Content-Length: 3"), b"F: g\r\n")
    assert tail == b" HTTP/1.1\r\nHost: A:1\r\nX: y\r\nF: g\r\nContent-Length: 3\r\n\r\n"


def test_a_gateway_bearer_is_removed_and_the_apps_bearer_forwarded() -> None:
    for line in (
        f"Bearer {OURS}",
        f"bearer   {OURS}",
        f"BEARER\t{OURS} ",
        f"Bearer {OURS_IN_A_LIST}",
    ):
        assert b"Authorization" not in to_app(read_section(f"Authorization: {line}"))
    for line in ("Basic eA==", "Bearer x", "Bearer a.b.c", "Bearer", "token e30.e30.e30"):
        assert f"Authorization: {line}\r\n".encode() in to_app(
            read_section(f"Authorization: {line}")
        )


def test_framing_is_written_in_canonical_form() -> None:
    assert framing_field(read()) == b""
    assert framing_field(read("Content-Length: 007")) == b"Content-Length: 7\r\n"
    assert framing_field(read("Transfer-Encoding: CHUNKED")) == b"Transfer-Encoding: chunked\r\n"


def test_a_page_request_has_no_credential_and_connection_close() -> None:
    section = read_section("Fumarole-Token: t", "Authorization: Basic x", "Cookie: fumarole=a; b=c")
    start = read_start_line(b"POST /.fumarole/open?x HTTP/1.0")
    assert page_head(RequestHead(start, section.fields, section.end_to_end)) == (
        b"POST /.fumarole/open?x HTTP/1.1\r\nHost: A:1\r\nCookie: b=c\r\nConnection: close\r\n\r\n"
    )


def test_pages_read_only_fields_that_they_are_given() -> None:
    sources = Path(pages.__file__).parent.glob("*.py")
    reads = re.compile(r'(?:headers\.get(?:all)?\(|field_of\(request, )"([A-Za-z-]+)"')
    names = {name for source in sources for name in reads.findall(source.read_text())}
    assert {"Accept-Language", "Cookie", "Origin", "Sec-Fetch-Site"} < names
    section = read_section(*(f"{name}: x" for name in names))
    start = read_start_line(b"POST / HTTP/1.1")
    head = page_head(RequestHead(start, section.fields, section.end_to_end)).decode()
    assert {name for name in names if f"\r\n{name}: x\r\n" not in head} == set()
