from __future__ import annotations

import time
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.core.http.cookies import (
    cut_cookie,
    domain_cookies,
    expiry_lines,
    foreign_cookie_names,
    framed_cookie,
    may_set_cookie,
    truncate_cookies,
    without_excess,
    without_own_domain,
)

OURS = b"__Host-fumarole"
NOTICE = b"__Host-fumarole-told"


@pytest.mark.parametrize(
    ("value", "left", "ours"),
    [
        (b"a=1; b=2", b"a=1; b=2", []),
        (b"__Host-fumarole=x", None, [b"x"]),
        (b"__Host-fumarole=x; a=1", b"a=1", [b"x"]),
        (b"a=1; __Host-fumarole=x", b"a=1", [b"x"]),
        (b"a=1; __Host-fumarole=x; b=2", b"a=1; b=2", [b"x"]),
        (b"a=1;__Host-fumarole=x;b=2", b"a=1;b=2", [b"x"]),
        (b"a=1;   __Host-fumarole = x ;  b=2", b"a=1;  b=2", [b"x"]),
        (b"__Host-fumarole=x; __Host-fumarole=y", None, [b"x", b"y"]),
        (b"fumarole=z; a=1", b"a=1", []),
        (b"fumarole2=z; xfumarole=1", b"fumarole2=z; xfumarole=1", []),
        (b"__host-fumarole=x", b"__host-fumarole=x", []),
        (b"__Host-fumarole; a=1", b"__Host-fumarole; a=1", []),
        (b'a="x; __Host-fumarole=y"', b'a="x', [b'y"']),
        (b"a=fumarole", b"a=fumarole", []),
        (b"__Host-fumarole=", None, [b""]),
        (b"a=1; ; __Host-fumarole=x;", b"a=1; ;", [b"x"]),
        (b"; __Host-fumarole=x;", None, [b"x"]),
    ],
)
def test_the_gateway_cookie_is_removed(value: bytes, left: bytes | None, ours: list[bytes]) -> None:
    assert cut_cookie(value, OURS) == (left, ours)


def test_a_bounded_number_of_gateway_cookies_is_read_and_all_are_removed() -> None:
    left, ours = cut_cookie(b"__Host-fumarole=x;" * 300 + b"fumarole=y; a=1", OURS)
    assert (left, ours) == (b"a=1", [b"x"] * 256)


pairs = st.binary(max_size=12).filter(lambda pair: b";" not in pair and b"fumarole" not in pair)


@given(st.lists(pairs, max_size=6), st.integers(0, 6))
def test_the_apps_cookies_are_forwarded_byte_for_byte(theirs: list[bytes], at: int) -> None:
    plain = b";".join(theirs)
    assert cut_cookie(plain, OURS) == (plain, [])
    mixed = b";".join([*theirs[:at], b" __Host-fumarole=x", *theirs[at:]])
    left, ours = cut_cookie(mixed, OURS)
    assert ours == [b"x"]
    expected = plain.lstrip(b" \t") if at == 0 else plain
    assert (left or b"").strip(b" \t;") == expected.strip(b" \t;")
    assert left is None or left == expected


@pytest.mark.parametrize(
    "value",
    [
        b"a=1",
        b"a=1; Path=/; Secure; HttpOnly; SameSite=Lax; Max-Age=3",
        b"a=domain; Path=/domain",
        b"domain=1; domains; x=domain",
        b"a=1; X-Domain=b",
        b"fumarole2=1",
        b"=1",
        b"1",
    ],
)
def test_apps_can_set_their_own_cookies(value: bytes) -> None:
    assert may_set_cookie(value)


@pytest.mark.parametrize(
    "value",
    [
        b"a=1; Domain=example.com",
        b"a=1;domain=.example.com",
        b"a=1; Path=/; DOMAIN =",
        b"a=1; domain",
        b"a=1;\t domain ;Path=/",
        b"fumarole=x",
        b" fumarole =x",
        b"FUMAROLE=x",
        b"__Host-fumarole=x; Secure",
        b"__hOST-Fumarole=x; Secure; Path=/",
        b"=fumarole=x",
        b"= __Host-fumarole=x",
        b"fumarole",
    ],
)
def test_apps_cannot_set_gateway_cookies_or_cookies_of_siblings(value: bytes) -> None:
    assert not may_set_cookie(value)


@pytest.mark.parametrize(
    ("most", "left"),
    [(100, b"a=1; b=2; c=3"), (13, b"a=1; b=2; c=3"), (12, b"a=1; b=2"), (8, b"a=1; b=2"),
     (7, b"a=1"), (2, b"")],
)  # fmt: skip
def test_the_last_cookies_are_dropped_beyond_the_limit(most: int, left: bytes) -> None:
    assert truncate_cookies(b"a=1; b=2; c=3", most) == left


@pytest.mark.parametrize(
    ("value", "kept"),
    [
        (b"a=1; Domain=s.apps.x; Path=/", b"a=1; Path=/"),
        (b"a=1; Path=/;domain = .S.Apps.X ;HttpOnly", b"a=1; Path=/;HttpOnly"),
        (b"a=Domain=x; Domain=s.apps.x", b"a=Domain=x"),
        (b"a=1; Domain=", None),
        (b"a=1; Domain", None),
        (b"a=1; Domain=apps.x", None),
        (b"a=1; Domain=x.s.apps.x", None),
        (b"a=1; Domain=s.apps.x; Domain=apps.x", None),
        (b"a=1; Domain=..s.apps.x", None),
    ],
)
def test_a_cookie_for_the_domain_of_its_own_host_loses_the_attribute(
    value: bytes, kept: bytes | None
) -> None:
    assert without_own_domain(value, b"s.apps.x") == kept
    assert kept is None or may_set_cookie(kept)


def test_a_cookie_of_the_host_takes_precedence_over_one_of_a_domain() -> None:
    removal = b"a=; Domain=s.apps.x; Max-Age=0"
    assert domain_cookies([b"a=1", removal, b"b=2; Domain=x"]) == (b"b=2; Domain=x",)
    assert domain_cookies([removal, b"a=2; Domain=x"]) == (removal, b"a=2; Domain=x")
    assert domain_cookies([b"a=1"]) == ()


def test_cookies_of_one_name_at_different_paths_are_different_cookies() -> None:
    host, other = b"a=1; Path=/", b"a=2; Path=/x; Domain=x"
    assert domain_cookies([host, other]) == (other,)
    assert domain_cookies([host, b"a=2; Domain=x; path = /"]) == ()
    assert domain_cookies([b"a=1; Path=/x; Path=/", b"a=2; Path=/; Domain=x"]) == ()
    assert domain_cookies([b"a=1; Path=/y", host, other]) == (other,)


@pytest.mark.parametrize("host", [b"a=1", b"a=1; Path", b"a=1; Path=x", b"a=1; Path=/x; Path="])
def test_a_cookie_without_a_path_may_have_any(host: bytes) -> None:
    """The browser takes it from the address of the request (RFC 6265, section 5.1.4)."""
    assert domain_cookies([host, b"a=; Max-Age=0; Path=/x; Domain=x"]) == ()
    assert domain_cookies([b"a=1; Path=/x", host + b"; Domain=x"]) == ()


@pytest.mark.parametrize("name", [b"fumarole", b"__Host-Fumarole", b"", b"=__Host-fumarole"])
def test_a_cookie_with_a_domain_cannot_have_a_gateway_name(name: bytes) -> None:
    assert domain_cookies([b"%b=fumarole=1; Domain=s.apps.x" % name]) == ()


@pytest.mark.parametrize(
    ("value", "framed"),
    [
        (b"a=1", b"a=1; SameSite=None; Secure; Partitioned"),
        (
            b"a=secure; Path=/x;SameSite = Lax; HttpOnly; secure",
            b"a=secure; Path=/x; HttpOnly; SameSite=None; Secure; Partitioned",
        ),
        (b"a=1; SameSite=None; Secure; Partitioned", b"a=1; SameSite=None; Secure; Partitioned"),
        (b"a=1; Secured=2", b"a=1; Secured=2; SameSite=None; Secure; Partitioned"),
        (b"a=1;SECURE;\tsecure\t;;secure =", b"a=1;; SameSite=None; Secure; Partitioned"),
        (b"a=1; Secure x", b"a=1; Secure x; SameSite=None; Secure; Partitioned"),
    ],
)
def test_a_cookie_in_a_frame_of_another_site_is_partitioned(value: bytes, framed: bytes) -> None:
    assert framed_cookie(value) == framed


def test_a_cookie_of_attributes_alone_costs_little_more_than_to_split_it() -> None:
    """An app can send one with every response."""
    value = b"a=1" + b";" * 65_000 + b"; Domain=s.apps.x"

    def adapt() -> None:
        without_own_domain(value, b"s.apps.x")
        framed_cookie(value)

    def split() -> None:
        for one in value.split(b";"):
            one.strip()

    seconds: dict[Callable[[], None], list[float]] = {adapt: [], split: []}
    for _ in range(9):
        for work, measured in seconds.items():
            began = time.process_time()
            work()
            measured.append(time.process_time() - began)
    assert min(seconds[adapt]) < 5 * min(seconds[split])


@pytest.mark.parametrize("filler", [b" ", b"\t;", b"; domain", b"; secure ", b";;", b"="])
@pytest.mark.parametrize("start", [b"a=1; Domain=x", b"a=1; Domain", b"a=1; secure", b"a="])
def test_a_hostile_cookie_costs_linear_time(start: bytes, filler: bytes) -> None:
    value = start + filler * (60_000 // len(filler)) + b"x"
    began = time.process_time()
    for _ in range(10):
        may_set_cookie(value)
        domain_cookies([value])
        without_own_domain(value, b"s.apps.x")
        framed_cookie(value)
    assert time.process_time() - began < 2.0


# Too many cookies


def bomb(count: int) -> bytes:
    """The cookies of a browser that another session has filled: 4 KiB each."""
    return b"; ".join(b"s%d=%b" % (n, b"x" * 4000) for n in range(count))


@pytest.mark.parametrize("complete", [True, False])
def test_of_too_many_cookies_the_first_and_the_gateways_are_kept(complete: bool) -> None:
    value = b"%b; __Host-fumarole=ours; a=1" % bomb(50)
    head = b"GET / HTTP/1.1\r\ncooKie: " + value + (b"\r\nX: 1\r\n" if complete else b"")
    short = without_excess(head)
    assert len(short) < 64_000
    assert without_excess(short) == short
    line = short.split(b"\r\n")[1]
    assert line.startswith(b"cooKie: " + bomb(8))
    left, ours = cut_cookie(line, OURS)
    assert (left is not None, ours) == (True, [b"ours"])
    assert short.endswith(b"\r\nX: 1\r\n" if complete else b"; a=1")


def test_neighbours_cookies_with_gateway_names_do_not_displace_the_gateways() -> None:
    theirs = b"; ".join(b"%b=%d" % (name, n) for n in range(4) for name in (b"fumarole", NOTICE))
    value = b"%b; %b; __Host-fumarole=one; __Host-fumarole=two; %b" % (bomb(20), theirs, bomb(30))
    line = without_excess(b"GET / HTTP/1.1\r\nCookie: %b\r\n" % value).split(b"\r\n")[1]
    assert cut_cookie(line, OURS)[1] == [b"one", b"two"]
    assert len(cut_cookie(line, NOTICE)[1]) == 2


def test_a_cookie_within_a_dropped_one_does_not_become_a_cookie() -> None:
    head = b"GET / HTTP/1.1\r\nCookie: %b; a=1" % bomb(50)
    later = without_excess(head) + b"__Host-fumarole=ours"
    assert cut_cookie(later.split(b"\r\n")[1], OURS)[1] == []


@pytest.mark.parametrize("at", [0, 1, 49, 50])
def test_a_field_with_a_cookie_that_no_browser_stores_is_kept(at: int) -> None:
    cookies = bomb(50).split(b"; ")
    head = b"GET / HTTP/1.1\r\nCookie: %b" % b"; ".join(
        [*cookies[:at], b"a=" + b"x" * 4200, *cookies[at:]]
    )
    assert without_excess(head) == head


def test_few_cookies_are_kept_as_they_are() -> None:
    head = b"GET / HTTP/1.1\r\nCookie: %b\r\nCookie: b=1\r\n\r\n" % bomb(16)
    assert without_excess(head) == head


def test_cookies_of_hosts_and_of_frames_are_expired() -> None:
    assert expiry_lines([b"a"], base="x", secure=False, framed=False) == [
        "a=; Path=/; Max-Age=0",
        "a=; Path=/; Max-Age=0; Domain=x",
    ]
    assert expiry_lines([b"a"], base="x", secure=True, framed=True) == [
        "a=; Path=/; Max-Age=0; Secure",
        "a=; Path=/; Max-Age=0; Secure; Domain=x",
        "a=; Path=/; Max-Age=0; SameSite=None; Secure; Partitioned",
    ]


def test_cookie_names_that_could_inject_a_field_are_skipped() -> None:
    assert foreign_cookie_names([b"a b=1; \xff=1; =2; ; c\x00=1; good=1; fumarole=d"]) == (b"good",)


def test_the_number_of_expired_cookies_fits_a_response() -> None:
    many = b"; ".join(b"c%d=%b" % (n, b"x" * 90) for n in range(500))
    assert len(foreign_cookie_names([many, many])) == 200


def test_only_as_many_cookies_as_browsers_keep_are_read() -> None:
    assert foreign_cookie_names([b";" * 250_000 + b"a=1"]) == ()
    assert foreign_cookie_names([b";" * 4000, b";" * 250_000, b"a=1"]) == ()
    assert foreign_cookie_names([b";" * 4000 + b"a=1", b"b=1"]) == (b"a", b"b")
