from __future__ import annotations

from gateway.core.oversize import read_oversized

BIG = b"x" * 3000
HTML = b"Accept: text/html\r\n"


def head(cookie: bytes, accept: bytes = HTML, other: bytes = b"") -> bytes:
    return b"GET / HTTP/1.1\r\nHost: a\r\n" + accept + other + b"cookie: " + cookie + b"\r\n"


def test_the_cookies_that_are_the_cause_are_named_but_not_ours() -> None:
    seen = read_oversized(head(b"a=%b; b = %b; __Host-fumarole=c; fumarole=d; a=1" % (BIG, BIG)))
    assert seen.accept == b"text/html"
    assert seen.cookies == (b"a", b"b")
    assert seen.expiring(secure=False) == (
        ("Set-Cookie", "a=; Path=/; Max-Age=0"),
        ("Set-Cookie", "b=; Path=/; Max-Age=0"),
    )
    assert seen.expiring(secure=True)[0][1].endswith("; Secure")


def test_names_that_could_forge_a_field_are_left_out() -> None:
    seen = read_oversized(head(b"a b=%b; \xff=1; =2; ; c\x00=1; good=1" % BIG))
    assert seen.cookies == (b"good",)


def test_cookies_that_are_not_the_cause_are_left_alone() -> None:
    assert read_oversized(head(b"a=1", other=b"X: %b\r\n" % BIG)).cookies == ()


def test_nothing_is_taken_from_programs() -> None:
    assert read_oversized(head(b"a=%b" % BIG, accept=b"Accept: */*\r\n")).cookies == ()


def test_no_more_are_named_than_an_answer_can_hold() -> None:
    many = b"; ".join(b"c%d=%b" % (n, b"x" * 90) for n in range(500))
    assert len(read_oversized(head(many)).cookies) == 200


def test_anything_can_be_read() -> None:
    assert read_oversized(b"").cookies == ()
    assert read_oversized(b"\xff\r\n:\r\n").accept == b""
