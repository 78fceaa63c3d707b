from __future__ import annotations

import pytest

from gateway.core.http.oversize import expiry_lines, foreign_cookie_names, read_oversized

BIG = b"x" * 3000
HTML = b"Accept: text/html\r\n"
CLICK = b"Sec-Fetch-Site: same-origin\r\nSec-Fetch-Mode: navigate\r\n"


def head(
    cookie: bytes, accept: bytes = HTML, other: bytes = b"", path: bytes = b"/.fumarole/cookies"
) -> bytes:
    lines = b"GET %b HTTP/1.1\r\nHost: a\r\n" % path + accept + other
    return lines + b"cookie: " + cookie + b"\r\n"


def test_a_click_expires_the_large_cookies_but_not_the_gateways() -> None:
    cookies = b"a=%b; b = %b; __Host-fumarole=c; fumarole=d; a=1" % (BIG, BIG)
    seen = read_oversized(head(cookies, other=CLICK))
    assert seen.accept == b"text/html"
    assert seen.cookies == (b"a", b"b")
    assert seen.expiry_fields(base="apps.x", secure=False, framed=False) == (
        ("Set-Cookie", "a=; Path=/; Max-Age=0"),
        ("Set-Cookie", "a=; Path=/; Max-Age=0; Domain=apps.x"),
        ("Set-Cookie", "b=; Path=/; Max-Age=0"),
        ("Set-Cookie", "b=; Path=/; Max-Age=0; Domain=apps.x"),
    )
    secure = expiry_lines([b"a"], base="x", secure=True, framed=False)
    assert all("; Secure" in line for line in secure)


@pytest.mark.parametrize(
    ("path", "other"),
    [
        (b"/", CLICK),
        (b"/.fumarole/cookies2", CLICK),
        (b"/.fumarole/cookies", b""),
        (b"/.fumarole/cookies", CLICK.replace(b"same-origin", b"same-site")),
        (b"/.fumarole/cookies", CLICK.replace(b"navigate", b"no-cors")),
    ],
)
def test_no_cookie_is_expired_without_a_click(path: bytes, other: bytes) -> None:
    seen = read_oversized(head(b"a=" + BIG, path=path, other=other))
    assert seen.cookies == (b"a",)
    assert seen.expiry_fields(base="apps.x", secure=False, framed=True) == ()


def test_cookies_of_frames_of_other_sites_are_expired_too() -> None:
    assert expiry_lines([b"a"], base="x", secure=True, framed=True) == [
        "a=; Path=/; Max-Age=0; Secure",
        "a=; Path=/; Max-Age=0; Secure; Domain=x",
        "a=; Path=/; Max-Age=0; SameSite=None; Secure; Partitioned",
    ]


def test_cookie_names_that_could_inject_a_field_are_skipped() -> None:
    seen = read_oversized(head(b"a b=%b; \xff=1; =2; ; c\x00=1; good=1" % BIG))
    assert seen.cookies == (b"good",)


def test_small_cookies_are_kept() -> None:
    assert read_oversized(head(b"a=1", other=b"X: %b\r\n" % BIG)).cookies == ()


def test_no_cookie_of_a_program_is_expired() -> None:
    assert read_oversized(head(b"a=%b" % BIG, accept=b"Accept: */*\r\n")).cookies == ()


def test_the_number_of_expired_cookies_fits_a_response() -> None:
    many = b"; ".join(b"c%d=%b" % (n, b"x" * 90) for n in range(500))
    assert len(foreign_cookie_names([many, many])) == 200


def test_only_as_many_cookies_as_browsers_keep_are_read() -> None:
    assert foreign_cookie_names([b";" * 250_000 + b"a=1"]) == ()
    assert foreign_cookie_names([b";" * 4000, b";" * 250_000, b"a=1"]) == ()
    assert foreign_cookie_names([b";" * 4000 + b"a=1", b"b=1"]) == (b"a", b"b")
    lines = b"Cookie: a=%b\r\n" % (b"x" * 200)
    assert b"a" in read_oversized(head(BIG, other=lines * 250)).cookies
    assert read_oversized(head(BIG, other=b"A:\r\n" * 256) + lines * 9).cookies == ()


def test_any_cookie_field_can_be_read() -> None:
    assert read_oversized(b"").cookies == ()
    assert read_oversized(b"\xff\r\n:\r\n").accept == b""
