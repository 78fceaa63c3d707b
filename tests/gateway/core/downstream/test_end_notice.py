"""Which users get a notice that a session ends soon, when, and in place of what."""

from __future__ import annotations

import math

import msgspec
import pytest

from gateway.core.access.access_right import AccessRight
from gateway.core.access.site import Site
from gateway.core.downstream.end_notice import (
    is_document,
    make_notice,
    make_notice_cookie,
    notice_starts_at,
    shows_notice,
)
from gateway.core.http.fields import FieldReader
from gateway.core.http.heads import read_start_line
from gateway.core.http.request_reader import RequestHead
from gateway.core.http.response_heads import ResponseReader
from tests.gateway.relay.harness import GRANT, HOST, SID, route, table_of

NAVIGATES = (
    "Sec-Fetch-Site: same-origin",
    "Sec-Fetch-Mode: navigate",
    "Sec-Fetch-Dest: document",
    "Accept: text/html,application/xhtml+xml,*/*;q=0.8",
)


def right(*, lasts: float = 43200, public: bool = False, **changes: object) -> AccessRight:
    known = table_of(route(1, **changes)).route(SID)
    assert known is not None
    grant = msgspec.structs.replace(GRANT, issued_at=1000.0, ends_at=1000.0 + lasts)
    return AccessRight(route=known, host=known.hosts[0], grant=None if public else grant)


def test_the_earliest_end_is_announced_and_short_access_in_its_second_half() -> None:
    assert notice_starts_at(right(), 600) == 1000 + 43200 - 600
    assert notice_starts_at(right(expires_at=9000), 600) == 8400
    assert notice_starts_at(right(lasts=300, expires_at=9000), 600) == 1150
    # A session of five minutes, opened early and late, and a long one that is opened late.
    assert notice_starts_at(right(expires_at=1300), 600) == 1150
    for times in ({"since": 800}, {"times": [["queued", 10], ["starting", 800]]}):
        begun = {"phase": "ready", **times}
        assert notice_starts_at(right(expires_at=1100, status=begun), 600) == 950
        assert notice_starts_at(right(expires_at=9000, status=begun), 600) == 8400
    assert notice_starts_at(right(expires_at=900), 600) == 900
    assert (
        notice_starts_at(right(), 0)
        == notice_starts_at(right(public=True, expires_at=1), 600)
        == math.inf
    )


def test_the_notice_names_what_ends_and_when() -> None:
    session = make_notice(right(expires_at=9000.5))
    assert (session.code, session.ends_at) == ("session_ends_soon", 9000)
    access = make_notice(right(lasts=100, expires_at=9000))
    assert (access.code, access.ends_at) == ("access_ends_soon", 1100)
    assert access.subject is not None
    assert access.subject.job == "j1"


HTTP = Site(scheme="http", base="apps.localhost", port=80)
HTTPS = Site(scheme="https", base="apps.example.com", port=443)


def asks(
    *lines: str,
    line: str = "GET /lab HTTP/1.1",
    cookie: str = "fumarole=c",
    site: Site = HTTP,
) -> bool:
    sent = (f"Host: {HOST}", f"Cookie: {cookie}", *lines, "", "")
    section = "\r\n".join(sent).encode()
    fields = FieldReader(site.cookie_name).read_section(section, None).fields
    notice = make_notice(right(expires_at=9000))
    request = RequestHead(read_start_line(line.encode()), fields, raw=section)
    return shows_notice(notice, request, site=site)


def test_a_navigating_window_gets_one_notice_per_end() -> None:
    assert asks(*NAVIGATES)
    notice = "fumarole-told=9000"
    for cookie in (f"fumarole=c; {notice}", f"{notice}; fumarole=c", f"a=b;{notice} ;fumarole=c"):
        assert not asks(*NAVIGATES, cookie=cookie)
    secure = "__Host-fumarole=c; __Host-fumarole-told=9000"
    assert not asks(*NAVIGATES, cookie=secure, site=HTTPS)
    for other in ("fumarole-told=8000", "fumarole-told=90001", "xfumarole-told=9000", "a=9000"):
        assert asks(*NAVIGATES, cookie=f"fumarole=c; {other}")


def test_cookies_of_sibling_hosts_neither_repeat_nor_suppress_a_notice() -> None:
    # Scripts of a neighbour's app can set one for all hosts of the domain, but none with a prefix.
    ours, theirs = "fumarole-told=9000", "fumarole-told=1"
    for cookie in (f"fumarole=c; {ours}; {theirs}", f"{theirs}; fumarole=c; {ours}"):
        assert not asks(*NAVIGATES, cookie=cookie)
    assert not asks(f"Cookie: {ours}", *NAVIGATES, f"Cookie: {theirs}")
    assert asks(*NAVIGATES, cookie=f"__Host-fumarole=c; {ours}", site=HTTPS)


@pytest.mark.parametrize(
    "change",
    [
        ("Sec-Fetch-Mode: navigate", "Sec-Fetch-Mode: no-cors"),
        ("Sec-Fetch-Mode: navigate", "Sec-Fetch-Mode: cors"),
        ("Sec-Fetch-Dest: document", "Sec-Fetch-Dest: iframe"),
        ("Sec-Fetch-Dest: document", "Sec-Fetch-Dest: empty"),
        ("Accept: text/html,application/xhtml+xml,*/*;q=0.8", "Accept: */*"),
        ("Accept: text/html,application/xhtml+xml,*/*;q=0.8", "Accept: application/json"),
    ],
)
def test_only_navigations_get_a_notice(change: tuple[str, str]) -> None:
    assert not asks(*(change[1] if line == change[0] else line for line in NAVIGATES))


@pytest.mark.parametrize(
    "line",
    [
        "Sec-Purpose: prefetch;prerender",
        "Purpose: prefetch",
        "X-Moz: prefetch",
        "Service-Worker: x",
    ],
)
def test_a_prefetch_gets_no_notice(line: str) -> None:
    assert not asks(line, *NAVIGATES)
    assert not asks(*NAVIGATES, line)


@pytest.mark.parametrize("method", ["POST", "HEAD", "PUT", "OPTIONS"])
def test_other_methods_get_no_notice(method: str) -> None:
    assert not asks(*NAVIGATES, line=f"{method} /lab HTTP/1.1")


def test_clients_without_fetch_metadata_or_with_tokens_get_no_notice() -> None:
    assert not asks(NAVIGATES[-1])
    assert not asks("Fumarole-Token: x", *NAVIGATES)
    assert not asks(*NAVIGATES, cookie="app=1")


@pytest.mark.parametrize(
    ("fields", "status", "shown"),
    [
        (("Content-Type: text/html; charset=utf-8",), 200, True),
        (("content-type:Text/HTML",), 200, True),
        (("Content-Type: application/xhtml+xml",), 200, True),
        ((), 200, True),
        (("ETag: x",), 304, False),
        (("Content-Type: text/html", "Content-Disposition: inline"), 200, True),
        (("Content-Type: text/html", 'content-disposition: Attachment; filename="a"'), 200, False),
        (("Content-Type: text/html", "Content-Disposition: attachment;filename=a"), 200, False),
        (("Content-Disposition: attachment",), 304, False),
        (("Content-Type: application/pdf",), 200, False),
        (("Content-Type: text/csv",), 200, False),
        (("Content-Type: application/json",), 200, False),
        (("Content-Type: text/html",), 206, False),
        (("Content-Type: text/html",), 404, False),
        (("Content-Type: text/html", "Location: /b"), 302, False),
    ],
)
def test_only_documents_are_deferred_for_a_notice(
    fields: tuple[str, ...], status: int, shown: bool
) -> None:
    raw = "\r\n".join((f"HTTP/1.1 {status} OK", *fields, "", "")).encode()
    assert is_document(ResponseReader("'none'").read_head(raw)) is shown


def test_the_notice_cookie_expires_with_its_end() -> None:
    assert make_notice_cookie(HTTP, 9000, now=8400) == (
        "fumarole-told=9000; Path=/; Max-Age=600; HttpOnly; SameSite=Lax"
    )
    assert make_notice_cookie(HTTPS, 9000, now=9001).startswith(
        "__Host-fumarole-told=9000; Path=/; Max-Age=1; "
    )
