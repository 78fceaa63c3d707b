"""Decisions as a table; what they lead to on the wire stands in the relay's tests."""

from __future__ import annotations

import time
from typing import Any

import pytest

from gateway.core.access.answers import REFUSALS
from gateway.core.access.decision import (
    Access,
    Ask,
    Connect,
    Decision,
    Forward,
    Hand,
    Prove,
    Refuse,
    Repair,
    is_own,
    own_bearer,
)
from gateway.core.access.site import Site
from gateway.core.http.fields import FieldReader
from gateway.core.http.heads import read_start_line
from shared.routes import RouteTable
from shared.tokens import SessionClaims
from tests.gateway.relay.harness import (
    BASE,
    COOKIE,
    HOST,
    KEYS,
    ORIGIN,
    OTHER_SID,
    PORT,
    SID,
    UPGRADE,
    cookie,
    route,
    table_of,
)

NOW = time.time()
SITE = Site(scheme="http", base=BASE, port=PORT)
ACCESS = Access(SITE, KEYS)
FIELDS = FieldReader(b"fumarole")
CLAIMS = SessionClaims(
    sub="ada", name=None, iat=int(NOW), exp=int(NOW) + 60, jti="b1", sid=SID, job="j1", rank=0,
    kind="web", mode="control", max_age=100, kid="k1", issued_at=NOW,
)  # fmt: skip


def ask(line: str = "GET / HTTP/1.1", *lines: str, host: str = HOST, upgrade: bool = False) -> Ask:
    more = UPGRADE.strip().split("\r\n") if upgrade else []
    section = "\r\n".join((f"Host: {host}", *lines, *more, "", "")).encode()
    return Ask(read_start_line(line.encode()), FIELDS.read(section), upgrade)


def decide(asked: Ask, table: RouteTable | None = None, **more: Any) -> Decision:
    return ACCESS.decide(
        asked, table=table_of(route(1)) if table is None else table, now=NOW, **more
    )


def code(decision: Decision) -> str:
    assert isinstance(decision, Refuse)
    return decision.refusal.code


def test_a_good_cookie_is_forwarded_with_its_grant() -> None:
    decision = decide(ask("GET / HTTP/1.1", f"Cookie: {COOKIE}"))
    assert isinstance(decision, Forward)
    assert decision.access_right.grant is not None
    assert decision.access_right.grant.sub == "ada"
    assert decision.claims is None


def test_the_first_credential_that_is_present_decides_alone() -> None:
    token, ours = (
        "Fumarole-Token: bad",
        "Authorization: Bearer e30.eyJhdWQiOiJmdW1hcm9sZS1nYXRld2F5In0.e30",
    )
    assert decide(ask("GET / HTTP/1.1", token, f"Cookie: {COOKIE}", ours)) == Prove("bad")
    assert code(decide(ask("GET / HTTP/1.1", "Cookie: fumarole=bad", ours))) == "bad_credential"
    assert isinstance(decide(ask("GET / HTTP/1.1", ours)), Prove)
    refused = REFUSALS["bad_credential"]
    assert code(decide(ask("GET / HTTP/1.1", token, f"Cookie: {COOKIE}"), proof=refused)) == (
        "bad_credential"
    )


def test_a_proven_token_is_forwarded_and_to_be_marked() -> None:
    decision = decide(ask("POST / HTTP/1.1", "Fumarole-Token: t"), proof=CLAIMS)
    assert isinstance(decision, Forward)
    assert decision.claims is CLAIMS
    assert decision.access_right.ends_at == pytest.approx(NOW + 100, abs=2)


def test_revoked_claims_are_refused() -> None:
    table = table_of(route(1))
    table.load_revocation("jti:b1", NOW + 86400)
    decision = decide(ask("GET / HTTP/1.1", "Fumarole-Token: t"), table, proof=CLAIMS)
    assert code(decision) == "grant_revoked"


def test_401_comes_before_403_and_403_before_the_routes_state() -> None:
    starting = table_of(route(1, state="starting"))
    foreign = "Origin: https://evil.example"
    assert code(decide(ask("GET / HTTP/1.1", foreign), starting)) == "no_credential"
    assert code(decide(ask("GET / HTTP/1.1", foreign, f"Cookie: {COOKIE}"), starting)) == (
        "other_origin"
    )
    assert code(decide(ask("GET / HTTP/1.1", f"Cookie: {COOKIE}"), starting)) == (
        "session_starting"
    )


def test_an_unknown_host_is_repaired_for_those_with_a_grant_and_once() -> None:
    asked = ask("GET / HTTP/1.1", f"Cookie: {COOKIE}")
    assert decide(asked, table_of()) == Repair()
    assert code(decide(asked, table_of(), repaired=True)) == "session_ended"
    assert code(decide(ask(), table_of())) == "not_found"
    old = ask("GET / HTTP/1.1", f"Cookie: {cookie(ends_at=1.0)}")
    assert code(decide(old, table_of())) == "not_found"


def test_who_is_sent_to_open_a_session_may_be_ahead_of_the_news_of_it() -> None:
    asked = ask("GET /.fumarole/open HTTP/1.1")
    assert decide(asked, table_of()) == Repair()
    assert code(decide(asked, table_of(), repaired=True)) == "not_found"
    with_grant = ask("GET /.fumarole/open HTTP/1.1", f"Cookie: {COOKIE}")
    assert decide(with_grant, table_of()) == Repair()
    assert code(decide(with_grant, table_of(), repaired=True)) == "session_ended"


@pytest.mark.parametrize(
    ("line", "upgrade", "kind", "expected"),
    [
        ("GET /.fumarole/connect HTTP/1.1", True, "vnc", Connect),
        ("GET /.fumarole/connect HTTP/1.1", True, "terminal", Connect),
        ("GET /.fumarole/connect?a HTTP/1.1", True, "terminal", Connect),
        ("GET /.fumarole/connect HTTP/1.1", True, "web", Hand),
        ("GET /.fumarole/connect HTTP/1.1", False, "vnc", Hand),
        ("GET /.fumarole/connect/ HTTP/1.1", True, "vnc", Hand),
        ("GET /.fumarole HTTP/1.1", False, "web", Hand),
        ("GET / HTTP/1.1", False, "vnc", Hand),
        ("GET / HTTP/1.1", True, "vnc", Hand),
        ("GET / HTTP/1.1", True, "web", Forward),
        ("GET /.fumarole%2fconnect HTTP/1.1", False, "web", Forward),
    ],
)
def test_who_answers_which_path(line: str, upgrade: bool, kind: str, expected: type) -> None:
    scheme = {"vnc": "tcp", "terminal": "ws"}.get(kind, "http")
    table = table_of(route(1, kind=kind, target={"scheme": scheme}))
    asked = ask(line, f"Cookie: {COOKIE}", f"Origin: {ORIGIN}", upgrade=upgrade)
    assert isinstance(decide(asked, table), expected)


def test_a_view_may_look_at_a_desktop() -> None:
    table = table_of(route(1, kind="vnc", target={"scheme": "tcp"}))
    own = (f"Cookie: {cookie(mode='view')}", f"Origin: {ORIGIN}")
    asked = ask("GET /.fumarole/connect HTTP/1.1", *own, upgrade=True)
    decision = decide(asked, table)
    assert isinstance(decision, Connect)
    assert decision.access_right.grant is not None
    assert decision.access_right.grant.mode == "view"


def test_opening_looks_at_no_token_but_says_who_holds_the_cookie() -> None:
    asked = ask("POST /.fumarole/open HTTP/1.1", f"Cookie: {COOKIE}", "Origin: https://o.example")
    decision = decide(asked)
    assert isinstance(decision, Hand)
    assert (decision.grant, decision.holder) == (None, "ada")
    decision = decide(ask("POST /.fumarole/open HTTP/1.1", "Fumarole-Token: t"))
    assert isinstance(decision, Hand)


def test_a_revoked_or_foreign_cookie_holds_nothing() -> None:
    table = table_of(route(1))
    table.load_revocation("jti:t1", NOW + 86400)
    for value in (COOKIE, cookie(sid=OTHER_SID), "fumarole=x"):
        decision = decide(ask("POST /.fumarole/open HTTP/1.1", f"Cookie: {value}"), table)
        assert isinstance(decision, Hand)
        assert decision.holder is None


@pytest.mark.parametrize("host", [f"{OTHER_SID}.{BASE}:{PORT}", f"x.{BASE}:{PORT}", "a", BASE])
def test_hosts_nobody_has_are_not_found(host: str) -> None:
    assert code(decide(ask("GET / HTTP/1.1", f"Cookie: {COOKIE}", host=host))) == "not_found"


@pytest.mark.parametrize(
    ("path", "own"),
    [(b"/.fumarole", True), (b"/.fumarole/", True), (b"/.fumarole/x", True), (b"/", False),
     (b"/.fumarolex", False), (b"/a/.fumarole/", False), (b"//.fumarole/", False)],
)  # fmt: skip
def test_which_paths_are_ours(path: bytes, own: bool) -> None:
    assert is_own(path) == own


def test_only_a_bearer_that_names_us_is_ours() -> None:
    assert own_bearer(None) is None
    assert own_bearer(b"Basic x") is None
    assert own_bearer(b"Bearer ") is None
    assert own_bearer(b"Bearer \xff.\xff.\xff") is None
    ours = b"e30.eyJhdWQiOiJmdW1hcm9sZS1nYXRld2F5In0.e30"
    assert own_bearer(b"bearer " + ours) == ours


@pytest.mark.parametrize(
    ("target", "refused"),
    [
        ("/sw.js", True), ("/", True), ("/sw.js?v=/1", True), ("/a%2Fsw.js", True),
        ("/static/sw.js", False), ("//sw.js", False), ("/lab/sw.js?x", False),
    ],
)  # fmt: skip
def test_no_service_worker_of_an_app_has_all_of_the_host(target: str, refused: bool) -> None:
    asked = ask(f"GET {target} HTTP/1.1", f"Cookie: {COOKIE}", "service-worker: script")
    decision = decide(asked)
    if refused:
        assert code(decision) == "root_service_worker"
    else:
        assert isinstance(decision, Forward)
    assert isinstance(decide(ask(f"GET {target} HTTP/1.1", f"Cookie: {COOKIE}")), Forward)


def test_a_route_with_root_service_workers_is_reached_by_bearer_only() -> None:
    table = table_of(route(1, service_workers=True))
    worker = "Service-Worker: script"
    assert code(decide(ask("GET / HTTP/1.1", f"Cookie: {COOKIE}"), table)) == "bearer_only"
    bearer = ask("GET /sw.js HTTP/1.1", "Fumarole-Token: t", worker)
    assert isinstance(decide(bearer, table, proof=CLAIMS), Forward)
