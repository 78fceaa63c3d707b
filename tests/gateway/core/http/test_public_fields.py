"""Tests what a browser gets of an app's redirects and cookies."""

from __future__ import annotations

import time

import pytest

from gateway.core.http.public_fields import PublicView, adapt_fields, public_location
from gateway.core.http.response_heads import ResponseReader
from shared.routes.route import Target

HOST = "s.apps.x:8443"
OWN = b"https://s.apps.x:8443"


def view(*, host: str = "10.0.0.5", base: str = "/", framed: bool = False) -> PublicView:
    target = Target(scheme="http", host=host, port=8888, base_path=base, id="pod")
    return PublicView(scheme="https", host=HOST, target=target, framed=framed)


def adapted(lines: bytes, seen: PublicView) -> list[bytes]:
    fields = ResponseReader("frame-ancestors 'self'").read(lines + b"\r\n")
    assert fields.adapts
    return adapt_fields(fields, seen).split(b"\r\n")


@pytest.mark.parametrize(
    ("location", "seen"),
    [
        (b"http://10.0.0.5:8888/a?b#c", OWN + b"/a?b#c"),
        (b"http://localhost:8888/a", OWN + b"/a"),
        (b"https://127.0.0.1:8888", OWN + b"/"),
        (b"HTTP://[::1]:8888?a=1", OWN + b"/?a=1"),
        (b"http://s.apps.x:8443/a", OWN + b"/a"),
        (b"http://S.Apps.x/a", OWN + b"/a"),
        # nginx in a job: the name of the request, and the port on which it listens.
        (b"http://s.apps.x:8888/docs/", OWN + b"/docs/"),
        (b"http://10.0.0.5:8888//evil.example/", OWN + b"//evil.example/"),
        (b"https://s.apps.x:8443/a", b"https://s.apps.x:8443/a"),
    ],
)
def test_a_redirect_to_the_apps_own_address_leads_to_its_public_one(
    location: bytes, seen: bytes
) -> None:
    assert public_location(location, view()) == seen


@pytest.mark.parametrize(
    "location",
    [
        b"/a",
        b"a",
        b"//localhost:8888/a",
        b"?next=http://localhost:8888/",
        b"http://10.0.0.5/a",
        b"http://10.0.0.5:9999/a",
        b"http://localhost/a",
        b"http://example.org:8888/a",
        b"https://login.example.org/?next=http://localhost:8888/",
        b"http://me@localhost:8888/",
        b"http://localhost:8888x/",
        b"http://other.s.apps.x:8888/",
        b"ftp://localhost:8888/",
        b"http://[::1/",
        b"http://localhost:123456/",
        b"",
    ],
)
def test_any_other_redirect_stays(location: bytes) -> None:
    assert public_location(location, view()) == location


def test_an_ipv6_target_is_recognised_in_brackets() -> None:
    assert public_location(b"http://[fd00::5]:8888/a", view(host="fd00::5")) == OWN + b"/a"


@pytest.mark.parametrize(
    ("path", "seen"),
    [(b"/base/a", b"/a"), (b"/base", b"/"), (b"/base?a", b"/?a"), (b"/based", b"/based")],
)
def test_a_redirect_to_the_target_loses_the_base_path_that_the_gateway_prepends(
    path: bytes, seen: bytes
) -> None:
    assert public_location(b"http://10.0.0.5:8888" + path, view(base="/base/")) == OWN + seen


def test_redirect_and_cookies_are_adapted_to_the_host_of_the_request() -> None:
    lines = adapted(
        b"location: http://localhost:8888/a\r\n"
        b"Set-Cookie: a=1; Domain=S.apps.x\r\nSet-Cookie: b=1; Domain=apps.x\r\n"
        b"Set-Cookie: c=1; SameSite=Strict\r\n",
        view(),
    )
    assert b"location: %b/a" % OWN in lines
    cookies = [line for line in lines if line.startswith(b"Set-Cookie")]
    assert cookies == [b"Set-Cookie: c=1; SameSite=Strict", b"Set-Cookie: a=1"]


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (b"0; url=", b""),
        (b"5;URL='", b"'"),
        (b'1.5, url = "', b'"'),
        (b"5 url=", b""),
        (b"5;", b""),
        (b"5 , '", b"'"),
    ],
)
@pytest.mark.parametrize(
    ("url", "seen"),
    [
        (b"http://localhost:8888/a?b", OWN + b"/a?b"),
        (b"http://example.org:8888/a", b"http://example.org:8888/a"),
    ],
)
def test_a_refresh_of_the_apps_own_address_leads_to_its_public_one(
    before: bytes, after: bytes, url: bytes, seen: bytes
) -> None:
    lines = adapted(b"refresh: %b%b%b\r\n" % (before, url, after), view())
    assert b"refresh: %b%b%b" % (before, seen, after) in lines


@pytest.mark.parametrize(
    "url", [b"http://example.org/a;url=http://localhost:8888/", b"/a?b, url=http://localhost:8888/"]
)
@pytest.mark.parametrize("before", [b"0; ", b"0; url=", b"0; url='"])
def test_a_url_within_the_url_of_a_refresh_stays(before: bytes, url: bytes) -> None:
    assert b"Refresh: %b%b" % (before, url) in adapted(b"Refresh: %b%b\r\n" % (before, url), view())


@pytest.mark.parametrize("value", [b"5", b"5; url=/a", b"", b"5; url="])
def test_a_refresh_without_a_whole_url_stays(value: bytes) -> None:
    fields = ResponseReader("x").read(b"Refresh: %b\r\n\r\n" % value)
    assert not fields.adapts
    assert fields.end_to_end.startswith(b"Refresh: %b\r\n" % value)


def test_a_long_refresh_costs_little() -> None:
    named = (b"url" * 20_000, b" url" * 15_000, b"; url " * 10_000, b"; url=" * 10_000)
    for value in (*named, b"1" * 60_000, b" " * 60_000, b"1; " + b" " * 60_000):
        fields = ResponseReader("x").read(b"Refresh: %b://\r\n\r\n" % value)
        began = time.process_time()
        adapt_fields(fields, view())
        assert time.process_time() - began < 0.1


def test_every_cookie_in_a_frame_of_another_site_is_partitioned() -> None:
    lines = adapted(
        b"Set-Cookie: a=1; Domain=s.apps.x\r\nset-cookie: c=1; SameSite=Strict\r\n",
        view(framed=True),
    )
    end = b"=1; SameSite=None; Secure; Partitioned"
    assert [line for line in lines if b"ookie" in line] == [
        b"set-cookie: c" + end,
        b"Set-Cookie: a" + end,
    ]


def test_several_locations_stay_as_they_are() -> None:
    fields = ResponseReader("x").read(b"Location: http://a/\r\nLocation: http://b/\r\n\r\n")
    assert not fields.adapts
    assert fields.end_to_end.startswith(b"Location: http://a/\r\nLocation: http://b/\r\n")


def test_a_redirect_to_a_path_is_not_examined_for_each_request() -> None:
    fields = ResponseReader("x").read(b"Location: /lab?next=http://localhost:8888/\r\n\r\n")
    assert not fields.adapts
    assert fields.end_to_end.startswith(b"Location: /lab?next=http://localhost:8888/\r\n")


def test_connection_can_nominate_location_and_cookies() -> None:
    fields = ResponseReader("x").read(
        b"Location: http://a/\r\nSet-Cookie: a=1\r\nSet-Cookie: b=1; Domain=x\r\n"
        b"Refresh: 0; url=http://a/\r\nConnection: location, set-cookie, refresh\r\n\r\n"
    )
    assert not fields.adapts
    assert not fields.has_location
    assert b"ocation" not in fields.end_to_end
    assert b"efresh" not in fields.end_to_end
    assert fields.domain_cookies == ()
    assert b"ookie" not in fields.end_to_end
