"""How a token becomes a grant: each check alone, with what it accepts and refuses."""

from __future__ import annotations

import json
from dataclasses import replace
from http.cookies import SimpleCookie
from urllib.parse import urlencode, urljoin, urlsplit

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.core.access.opening import (
    OpeningRefused,
    check_head,
    check_route,
    check_since,
    expired_cookies,
    make_cookie,
    make_grant,
    may_post,
    read_opening,
    safe_next,
)
from shared.events import Head
from shared.routes.route import RouteReader
from shared.routes.table import RouteTable
from shared.tokens import SessionClaims
from tests.corpora import read_corpus, unescape
from tests.gateway.bus.following import encode, make_route, sid_of

SID = sid_of(1)
OWN = "https://sid.apps.example.com"
OTHERS = ("https://orchestrator.example.org",)
NOW = 1_800_000_000.0
CLAIMS = SessionClaims(
    sub="ada",
    name=None,
    iat=int(NOW) - 5,
    exp=int(NOW) + 55,
    jti="j",
    sid=SID,
    job="j1",
    rank=0,
    kind="web",
    mode="control",
    max_age=3600,
    kid="k1",
    issued_at=NOW - 5,
)


def refusal(call: object, *args: object, **options: object) -> str:
    assert callable(call)
    with pytest.raises(OpeningRefused) as refused:
        call(*args, **options)
    return refused.value.code


# Who asks


@pytest.mark.parametrize(
    ("origin", "site", "may"),
    [
        (OWN, "same-origin", True),
        (OWN, None, True),
        (OTHERS[0], "cross-site", True),
        (None, None, True),
        ("null", None, False),
        ("null", "cross-site", False),
        (None, "same-origin", False),
        (None, "none", False),
        (None, "cross-site", False),
        ("https://evil.example", "same-origin", False),
        ("http://sid.apps.example.com", None, False),
        ("https://other.apps.example.com", "same-site", False),
        ("https://sid.apps.example.com:8443", None, False),
        ("", None, False),
    ],
)
def test_only_allowed_origins_and_programs_may_post(
    origin: str | None, site: str | None, may: bool
) -> None:
    assert may_post(origin, site, own=OWN, others=OTHERS) is may


# What is asked


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/json", json.dumps({"token": "t", "next": "/x", "replace": "1"})),
        ("application/json; charset=utf-8", json.dumps({"token": "t", "next": "/x", "replace": 1})),
        ("Application/JSON", json.dumps({"token": "t", "next": "/x", "replace": True})),
        ("application/x-www-form-urlencoded", "token=t&next=%2Fx&replace=1"),
    ],
)
def test_json_and_forms_are_read_alike(content_type: str, body: str) -> None:
    opening = read_opening(content_type, body.encode())
    assert (opening.token, opening.next, opening.replace) == ("t", "/x", True)


@pytest.mark.parametrize("value", [0, "0", "", "true", False, None, 2, 1.0, [1]])
def test_only_an_explicit_yes_replaces_a_user(value: object) -> None:
    body = json.dumps({"token": "t", "replace": value}).encode()
    assert read_opening("application/json", body).replace is False


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        ("application/json", b""),
        ("application/json", b"[]"),
        ("application/json", b"{}"),
        ("application/json", b'{"token":1}'),
        ("application/json", b'{"token":"a","token":"b"}'),
        ("application/json", b'{"token":"a","next":["/"]}'),
        ("application/json", b'{"token":"a"'),
        ("application/json", b'{"token":"\xff"}'),
        ("application/json", b"[" * 10_000),
        ("application/x-www-form-urlencoded", b"next=/"),
        ("application/x-www-form-urlencoded", b"token=a&token=b"),
        ("application/x-www-form-urlencoded", b"token=a&token="),
        ("application/x-www-form-urlencoded", b"token=%ff"),
        ("application/x-www-form-urlencoded", b"token=\xff"),
        ("application/x-www-form-urlencoded", b"&".join(b"a%d=b" % n for n in range(20))),
        ("multipart/form-data; boundary=x", b"--x--"),
        ("text/plain", b"token=a"),
        ("", b"token=a"),
    ],
)
def test_an_ambiguous_body_is_a_bad_request(content_type: str, body: bytes) -> None:
    assert refusal(read_opening, content_type, body) == "bad_request"


def test_a_body_over_16_kib_is_too_large_and_one_of_16_kib_is_not() -> None:
    fits = b"token=" + b"a" * (16 * 1024 - 6)
    assert read_opening("application/x-www-form-urlencoded", fits).token
    assert refusal(read_opening, "application/json", fits + b"a") == "body_too_large"


def test_a_form_of_17_fields_is_a_bad_request_and_one_of_16_is_not() -> None:
    others = [b"a%d=b" % n for n in range(16)]
    fits = b"&".join((b"token=a", *others[:15]))
    assert read_opening("application/x-www-form-urlencoded", fits).token == "a"
    more = b"&".join((b"token=a", *others))
    assert refusal(read_opening, "application/x-www-form-urlencoded", more) == "bad_request"


def test_the_token_is_not_in_the_repr() -> None:
    opening = read_opening("application/json", b'{"token":"secret"}')
    assert repr(opening) == "Opening(next='/', replace=False, same_site=False)"


def test_a_refusal_may_have_retry_after() -> None:
    refused = OpeningRefused("rate_limited", retry_after_seconds=3)
    assert (str(refused), refused.code, refused.retry_after_seconds) == (
        "rate_limited",
        "rate_limited",
        3,
    )


# Where it goes on


def test_next_is_resolved_as_the_corpus_records() -> None:
    for said, answered in read_corpus("next", 2, "\t"):
        assert safe_next(unescape(said)) == answered, said


def test_an_oversize_next_redirects_to_the_root() -> None:
    assert safe_next("/" + "a" * 4095) == "/" + "a" * 4095
    assert safe_next("/" + "a" * 4096) == "/"


def test_a_next_is_decoded_at_most_four_times() -> None:
    assert safe_next("/%25252541") == "/%25252541"
    assert safe_next("/%2525252541") == "/"


def test_a_next_that_decodes_to_non_utf_8_is_kept() -> None:
    assert safe_next("/%ff") == "/%ff"


@given(st.text(alphabet=st.sampled_from("/\\.%2fF5cCeE0aAdD9:@?#x\t\r\n \u00e4"), max_size=24))
@example("/%5c/example.com")
def test_next_never_leaves_the_origin_after_any_decoding(path: str) -> None:
    answered = safe_next(path)
    assert answered.isascii()
    assert not set(answered) & set("\r\n\t \\")
    assert urlsplit(urljoin("https://here.example/x", answered)).netloc == "here.example"
    assert answered.startswith("/")
    assert not answered.startswith("//")


# What is allowed


def table_of(route: dict[str, object]) -> RouteTable:
    table = RouteTable(Head(epoch="e", seq=0, term=1, routes=1, revoked=0), RouteReader())
    table.load_route(SID, encode(route))
    return table


def check(claims: SessionClaims, **changes: object) -> None:
    table = table_of(make_route(SID, **changes))
    route = table.route(SID)
    assert route is not None
    check_route(claims, route, table, now=NOW)


@pytest.mark.parametrize("state", ["ready", "starting"])
def test_a_valid_token_opens_a_ready_or_starting_route(state: str) -> None:
    check(CLAIMS, state=state)


@pytest.mark.parametrize(
    "changes", [{"sid": sid_of(2)}, {"job": "j2"}, {"rank": 1}, {"kind": "vnc"}]
)
def test_a_token_for_something_else_is_refused(changes: dict[str, object]) -> None:
    claims = replace(CLAIMS, **changes)  # type: ignore[arg-type]  # each is of its field's type
    assert refusal(check, claims) == "other_session"


def test_a_web_session_cannot_be_opened_for_viewing() -> None:
    assert refusal(check, replace(CLAIMS, mode="view")) == "view_only"


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"state": "closing"}, "session_closing"),
        ({"service_workers": True}, "bearer_only"),
        ({"expires_at": NOW}, "session_expired"),
        ({"expires_at": NOW - 1}, "session_expired"),
    ],
)
def test_an_expired_route_cannot_be_opened(changes: dict[str, object], code: str) -> None:
    assert refusal(check, CLAIMS, **changes) == code


@pytest.mark.parametrize("member", ["jti:j", "kid:k1", f"sub:{SID}:ada", f"all:{SID}"])
def test_a_revoked_token_cannot_open(member: str) -> None:
    table = table_of(make_route(SID))
    table.load_revocation(member, CLAIMS.iat + 86400)
    route = table.route(SID)
    assert route is not None
    assert refusal(check_route, CLAIMS, route, table, now=NOW) == "grant_revoked"


@pytest.mark.parametrize("member", [f"sub:{SID}:ada", f"all:{SID}"])
def test_a_token_issued_after_a_revocation_opens_again(member: str) -> None:
    table = table_of(make_route(SID))
    table.load_revocation(member, CLAIMS.iat - 1 + 86400)
    route = table.route(SID)
    assert route is not None
    check_route(CLAIMS, route, table, now=NOW)


def test_an_already_expired_grant_is_not_issued() -> None:
    assert refusal(check, replace(CLAIMS, max_age=5)) == "grant_ended"
    check(replace(CLAIMS, max_age=6))


def test_a_token_from_before_a_data_loss_is_uncertain() -> None:
    check_since(CLAIMS, None)
    check_since(CLAIMS, CLAIMS.iat - 10)
    assert refusal(check_since, CLAIMS, CLAIMS.iat - 9.9) == "token_unsure"


def test_a_token_cannot_open_while_redis_has_no_head_or_another_epoch() -> None:
    table = table_of(make_route(SID))
    head = Head(epoch="e", seq=9, term=1, routes=1, revoked=0)
    check_head(head, table)
    assert refusal(check_head, None, table) == "bus_lost"
    other = Head(epoch="f", seq=9, term=1, routes=1, revoked=0)
    assert refusal(check_head, other, table) == "bus_lost"


def test_a_grant_copies_the_token_and_never_outlives_it() -> None:
    grant = make_grant(CLAIMS, now=NOW)
    assert (grant.sid, grant.jti, grant.kid, grant.sub) == (SID, "j", "k1", "ada")
    assert (grant.issued_at, grant.ends_at) == (CLAIMS.iat, CLAIMS.iat + 3600)
    ahead = replace(CLAIMS, iat=int(NOW) + 8)
    assert make_grant(ahead, now=NOW).ends_at == NOW + 3600


@pytest.mark.parametrize(
    ("secure", "framed", "attributes"),
    [
        (True, False, {"Path=/", "HttpOnly", "SameSite=Lax", "Secure", "Max-Age=3595"}),
        (False, False, {"Path=/", "HttpOnly", "SameSite=Lax", "Max-Age=3595"}),
        (
            True,
            True,
            {"Path=/", "HttpOnly", "SameSite=None", "Secure", "Partitioned", "Max-Age=3595"},
        ),
        (
            False,
            True,
            {"Path=/", "HttpOnly", "SameSite=None", "Secure", "Partitioned", "Max-Age=3595"},
        ),
    ],
)
def test_the_cookie_has_exactly_its_attributes(
    secure: bool, framed: bool, attributes: set[str]
) -> None:
    cookie = make_cookie(
        b"__Host-fumarole", "a.b", secure=secure, max_age_seconds=3595.5, framed=framed
    )
    pair, *rest = cookie.split("; ")
    assert pair == "__Host-fumarole=a.b"
    assert set(rest) == attributes
    assert len(rest) == len(attributes)
    assert "__Host-fumarole" in SimpleCookie(cookie.replace("; Partitioned", ""))


def test_a_cookie_of_an_ending_grant_has_a_positive_max_age() -> None:
    cookie = make_cookie(b"fumarole", "a.b", secure=False, max_age_seconds=0.4, framed=False)
    assert "Max-Age=1" in cookie.split("; ")


@pytest.mark.parametrize(
    ("secure", "framed", "lines"),
    [
        (False, False, ["n=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax"]),
        (True, False, ["n=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax; Secure"]),
        (
            True,
            True,
            [
                "n=; Path=/; Max-Age=0; HttpOnly; SameSite=Lax; Secure",
                "n=; Path=/; Max-Age=0; HttpOnly; SameSite=None; Secure; Partitioned",
            ],
        ),
    ],
)
def test_each_cookie_that_a_grant_may_have_is_expired(
    secure: bool, framed: bool, lines: list[str]
) -> None:
    assert expired_cookies(b"n", secure=secure, framed=framed) == lines


@given(st.dictionaries(st.sampled_from(["token", "next", "replace", "x"]), st.text(max_size=30)))
def test_any_form_body_is_read_or_refused(fields: dict[str, str]) -> None:
    try:
        body = urlencode(fields).encode()
    except UnicodeEncodeError:
        return
    try:
        opening = read_opening("application/x-www-form-urlencoded", body)
    except OpeningRefused:
        return
    assert opening.token == fields["token"]
