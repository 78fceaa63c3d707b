"""Access decisions as a table; the relay's tests cover their effect on the wire."""

from __future__ import annotations

import dataclasses
import time
from typing import Any

import pytest

from gateway.core.access.access_right import AccessRight
from gateway.core.access.decision import (
    Access,
    Decision,
    Forward,
    OpenBridge,
    Refuse,
    RepairTable,
    ServePage,
    VerifyToken,
    is_own,
    is_root,
    route_refusal,
)
from gateway.core.access.grants import Grant
from gateway.core.access.refusals import REFUSALS, subject_of
from gateway.core.access.site import Site
from gateway.core.http.fields import FieldReader
from gateway.core.http.headers import own_bearer
from gateway.core.http.heads import Provenance, read_start_line
from gateway.core.http.request_reader import RequestHead
from shared.routes.table import RouteTable
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


def ask(
    line: str = "GET / HTTP/1.1", *lines: str, host: str = HOST, upgrade: bool = False
) -> RequestHead:
    more = UPGRADE.strip().split("\r\n") if upgrade else []
    section = "\r\n".join((f"Host: {host}", *lines, *more, "", "")).encode()
    return RequestHead(read_start_line(line.encode()), FIELDS.read_section(section, None).fields)


def decide(asked: RequestHead, table: RouteTable | None = None, **more: Any) -> Decision:
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


def test_the_first_present_credential_decides_alone() -> None:
    token, ours = (
        "Fumarole-Token: bad",
        "Authorization: Bearer e30.eyJhdWQiOiJmdW1hcm9sZS1nYXRld2F5In0.e30",
    )
    assert decide(ask("GET / HTTP/1.1", token, f"Cookie: {COOKIE}", ours)) == VerifyToken("bad")
    assert code(decide(ask("GET / HTTP/1.1", "Cookie: fumarole=bad", ours))) == "bad_credential"
    assert isinstance(decide(ask("GET / HTTP/1.1", ours)), VerifyToken)
    refused = REFUSALS["bad_credential"]
    assert code(decide(ask("GET / HTTP/1.1", token, f"Cookie: {COOKIE}"), proof=refused)) == (
        "bad_credential"
    )


def test_a_verified_token_is_forwarded_and_marked_as_used() -> None:
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


def test_an_unknown_host_triggers_one_repair_for_a_user_with_a_grant() -> None:
    asked = ask("GET / HTTP/1.1", f"Cookie: {COOKIE}")
    assert decide(asked, table_of()) == RepairTable()
    assert code(decide(asked, table_of(), repaired=True)) == "session_ended"
    assert code(decide(ask(), table_of())) == "not_found"
    old = ask("GET / HTTP/1.1", f"Cookie: {cookie(ends_at=1.0)}")
    assert code(decide(old, table_of())) == "not_found"


def test_opening_a_session_may_precede_its_route_event() -> None:
    asked = ask("GET /.fumarole/open HTTP/1.1")
    assert decide(asked, table_of()) == RepairTable()
    assert code(decide(asked, table_of(), repaired=True)) == "not_found"
    with_grant = ask("GET /.fumarole/open HTTP/1.1", f"Cookie: {COOKIE}")
    assert decide(with_grant, table_of()) == RepairTable()
    assert code(decide(with_grant, table_of(), repaired=True)) == "session_ended"


@pytest.mark.parametrize(
    ("line", "upgrade", "kind", "expected"),
    [
        ("GET /.fumarole/connect HTTP/1.1", True, "vnc", OpenBridge),
        ("GET /.fumarole/connect HTTP/1.1", True, "terminal", OpenBridge),
        ("GET /.fumarole/connect?a HTTP/1.1", True, "terminal", OpenBridge),
        ("GET /.fumarole/connect HTTP/1.1", True, "web", ServePage),
        ("GET /.fumarole/connect HTTP/1.1", False, "vnc", ServePage),
        ("GET /.fumarole/connect/ HTTP/1.1", True, "vnc", ServePage),
        ("GET /.fumarole HTTP/1.1", False, "web", ServePage),
        ("GET / HTTP/1.1", False, "vnc", ServePage),
        ("GET / HTTP/1.1", True, "vnc", ServePage),
        ("GET / HTTP/1.1", True, "web", Forward),
        ("GET /.fumarole%2fconnect HTTP/1.1", False, "web", Forward),
    ],
)
def test_each_path_has_its_handler(line: str, upgrade: bool, kind: str, expected: type) -> None:
    scheme = {"vnc": "tcp", "terminal": "ws"}.get(kind, "http")
    table = table_of(route(1, kind=kind, target={"scheme": scheme}))
    asked = ask(line, f"Cookie: {COOKIE}", f"Origin: {ORIGIN}", upgrade=upgrade)
    assert isinstance(decide(asked, table), expected)


def test_a_view_grant_may_see_a_desktop() -> None:
    table = table_of(route(1, kind="vnc", target={"scheme": "tcp"}))
    own = (f"Cookie: {cookie(mode='view')}", f"Origin: {ORIGIN}")
    asked = ask("GET /.fumarole/connect HTTP/1.1", *own, upgrade=True)
    decision = decide(asked, table)
    assert isinstance(decision, OpenBridge)
    assert decision.access_right.grant is not None
    assert decision.access_right.grant.mode == "view"


def test_an_opening_ignores_tokens_but_names_the_user_of_the_cookie() -> None:
    asked = ask("POST /.fumarole/open HTTP/1.1", f"Cookie: {COOKIE}", "Origin: https://o.example")
    decision = decide(asked)
    assert isinstance(decision, ServePage)
    assert (decision.grant, decision.holder) == (None, "ada")
    decision = decide(ask("POST /.fumarole/open HTTP/1.1", "Fumarole-Token: t"))
    assert isinstance(decision, ServePage)


def test_a_revoked_or_foreign_cookie_names_no_user() -> None:
    table = table_of(route(1))
    table.load_revocation("jti:t1", NOW + 86400)
    for value in (COOKIE, cookie(sid=OTHER_SID), "fumarole=x"):
        decision = decide(ask("POST /.fumarole/open HTTP/1.1", f"Cookie: {value}"), table)
        assert isinstance(decision, ServePage)
        assert decision.holder is None


@pytest.mark.parametrize("host", [f"{OTHER_SID}.{BASE}:{PORT}", f"x.{BASE}:{PORT}", "a", BASE])
def test_unknown_hosts_are_not_found(host: str) -> None:
    assert code(decide(ask("GET / HTTP/1.1", f"Cookie: {COOKIE}", host=host))) == "not_found"


@pytest.mark.parametrize(
    ("path", "own"),
    [(b"/.fumarole", True), (b"/.fumarole/", True), (b"/.fumarole/x", True), (b"/", False),
     (b"/.fumarolex", False), (b"/a/.fumarole/", False), (b"//.fumarole/", False)],
)  # fmt: skip
def test_reserved_paths_are_recognised(path: bytes, own: bool) -> None:
    assert is_own(path) == own


def test_only_a_bearer_with_the_gateways_audience_is_a_credential() -> None:
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
def test_an_apps_service_worker_cannot_control_the_whole_host(target: str, refused: bool) -> None:
    asked = ask(f"GET {target} HTTP/1.1", f"Cookie: {COOKIE}", "service-worker: script")
    decision = decide(asked)
    if refused:
        assert code(decision) == "root_service_worker"
    else:
        assert isinstance(decision, Forward)
    assert isinstance(decide(ask(f"GET {target} HTTP/1.1", f"Cookie: {COOKIE}")), Forward)


@pytest.mark.parametrize(
    ("target", "root"),
    [(b"/", True), (b"/sw.js?v=/1", True), (b"/a/sw.js", False), (b"/a/sw.js?v=/1", False)],
)
def test_a_slash_in_a_query_makes_no_folder(target: bytes, root: bool) -> None:
    assert is_root(target) is root


def test_a_route_with_root_service_workers_is_reached_by_bearer_only() -> None:
    table = table_of(route(1, service_workers=True))
    worker = "Service-Worker: script"
    assert code(decide(ask("GET / HTTP/1.1", f"Cookie: {COOKIE}"), table)) == "bearer_only"
    bearer = ask("GET /sw.js HTTP/1.1", "Fumarole-Token: t", worker)
    assert isinstance(decide(bearer, table, proof=CLAIMS), Forward)


@pytest.mark.parametrize(
    ("path", "asserting", "served"),
    [
        ("/.fumarole/static/a.js", False, True), ("/.fumarole/static/a.js", True, True),
        ("/.fumarole/jwks.json", True, True), ("/.fumarole/jwks.json", False, False),
        ("/.fumarole/jwks.json/", True, False), ("/.fumarole/open", True, False),
        ("/", True, False),
    ],
)  # fmt: skip
def test_assets_need_no_credential(path: str, asserting: bool, served: bool) -> None:
    access = Access(SITE, KEYS, asserting=asserting)
    hand = access.find_asset(ask(f"GET {path} HTTP/1.1"))
    assert hand == (ServePage(host=f"{SID}.{BASE}", sid=SID, route=None) if served else None)
    assert access.find_asset(ask(f"GET {path} HTTP/1.1", host="a")) is None
    assert access.find_asset(ask(f"GET {path} HTTP/1.1", host=f"x.{BASE}:{PORT}")) is None


def test_assertion_keys_are_served_if_configured() -> None:
    assert Access(SITE, KEYS).find_asset(ask("GET /.fumarole/jwks.json HTTP/1.1")) is None


def test_a_refusal_names_the_user_proven_by_a_signature() -> None:
    asked = ask("GET / HTTP/1.1", f"Cookie: {COOKIE}")
    assert ACCESS.proven_sender(asked, CLAIMS, NOW) is CLAIMS
    grant = ACCESS.proven_sender(asked, None, NOW)
    assert isinstance(grant, Grant)
    assert grant.sub == "ada"


@pytest.mark.parametrize(
    ("lines", "refused"),
    [
        ((f"Cookie: {COOKIE}",), True),
        (("Fumarole-Token: t", f"Cookie: {COOKIE}"), False),
        ((f"Cookie: {COOKIE}; {COOKIE}",), False),
        (("Cookie: fumarole=x",), False),
        ((), False),
    ],
)
def test_a_credential_that_does_not_decide_proves_no_user(
    lines: tuple[str, ...], refused: bool
) -> None:
    proof = REFUSALS["bad_credential"] if refused else None
    assert ACCESS.proven_sender(ask("GET / HTTP/1.1", *lines), proof, NOW) is None


def test_an_unknown_session_may_be_opened_only_by_post() -> None:
    opened = decide(ask("POST /.fumarole/open HTTP/1.1"), table_of())
    assert opened == ServePage(host=f"{SID}.{BASE}", sid=SID, route=None)
    assert decide(ask("GET /.fumarole/open HTTP/1.1"), table_of()) == RepairTable()
    assert code(decide(ask("POST / HTTP/1.1"), table_of())) == "not_found"


def test_an_unreadable_route_is_reported_as_such() -> None:
    table = table_of()
    table.load_route(SID, b"{}")
    assert code(decide(ask("GET / HTTP/1.1", f"Cookie: {COOKIE}"), table)) == "session_unreadable"


@pytest.mark.parametrize("path", ["/", "/.fumarole/x"])
def test_two_gateway_cookies_are_refused_on_every_path(path: str) -> None:
    asked = ask(f"GET {path} HTTP/1.1", f"Cookie: {COOKIE}; {COOKIE}")
    assert code(decide(asked)) == "two_cookies"


def test_a_page_receives_only_verified_claims() -> None:
    asked = ask("GET /.fumarole/x HTTP/1.1", "Fumarole-Token: t")
    decision = decide(asked, proof=CLAIMS)
    assert isinstance(decision, ServePage)
    assert decision.claims is CLAIMS
    assert decision.grant is not None
    table = table_of(route(1))
    table.load_revocation("jti:b1", NOW + 86400)
    decision = decide(asked, table, proof=CLAIMS)
    assert isinstance(decision, ServePage)
    assert (decision.claims, decision.grant) == (None, None)
    assert decision.refusal is REFUSALS["grant_revoked"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"ends_at": 1.0}, "grant_ended"),
        ({"sid": OTHER_SID}, "other_session"),
        ({"jti": "gone"}, "grant_revoked"),
        ({"mode": "view"}, "view_only"),
    ],
)
def test_a_refused_grant_states_its_reason(changes: dict[str, Any], expected: str) -> None:
    table = table_of(route(1))
    table.load_revocation("jti:gone", NOW + 86400)
    assert code(decide(ask("GET / HTTP/1.1", f"Cookie: {cookie(**changes)}"), table)) == expected


@pytest.mark.parametrize(
    ("changes", "age", "expected"),
    [
        ({"job": "j2"}, 1.0, "other_session"),
        ({}, 100.0, "grant_ended"),
        ({}, 1000.0, "grant_ended"),
        ({"mode": "view"}, 1.0, "view_only"),
    ],
)
def test_refused_claims_state_their_reason(
    changes: dict[str, Any], age: float, expected: str
) -> None:
    now = CLAIMS.iat + age
    claims = dataclasses.replace(CLAIMS, **changes)
    asked = ask("GET / HTTP/1.1", "Fumarole-Token: t")
    decision = ACCESS.decide(asked, table=table_of(route(1)), now=now, proof=claims)
    assert code(decision) == expected


def test_an_access_right_needs_its_own_origin_unless_the_host_is_public() -> None:
    decision = decide(ask("GET / HTTP/1.1", f"Cookie: {COOKIE}"))
    assert isinstance(decision, Forward)
    private = decision.access_right
    public = AccessRight(route=private.route, host="demo.example.org", grant=None)
    foreign = Provenance(b"https://evil.example", None, None, None)
    here = Provenance(ORIGIN.encode(), None, None, None)
    silent = Provenance(None, None, None, None)
    assert ACCESS.is_allowed_origin(private, b"POST", here)
    assert ACCESS.is_allowed_origin(private, b"GET", silent)
    assert not ACCESS.is_allowed_origin(private, b"POST", silent)
    assert not ACCESS.is_allowed_origin(private, b"GET", foreign)
    assert ACCESS.is_allowed_origin(public, b"GET", foreign)


def test_a_bearer_is_read_after_whitespace_and_only_with_its_scheme() -> None:
    ours = b"e30.eyJhdWQiOiJmdW1hcm9sZS1nYXRld2F5In0.e30"
    assert own_bearer(b"Bearer\t" + ours) == ours
    assert own_bearer(b"Bearer   " + ours + b" ") == ours
    # A signature may end in any letter: spaces alone are stripped.
    assert own_bearer(b"Bearer " + ours + b"X") == ours + b"X"
    assert own_bearer(b"Basic " + ours) is None


PUBLIC = {"hosts": [f"{SID}.{BASE}", "demo.example.org"], "public": True}


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"expires_at": 2e9}, "session_expired"),
        ({"expires_at": 2e9 + 1}, None),
        ({"state": "closing"}, "session_closing"),
        ({"state": "starting", "message": "Pulls its image."}, "session_starting"),
        ({}, None),
    ],
)
def test_a_route_states_why_it_accepts_no_new_connections(
    changes: dict[str, Any], expected: str | None
) -> None:
    now = 2e9
    known = table_of(route(1, **PUBLIC, **changes)).route(SID)
    assert known is not None
    refusal = route_refusal(known, now)
    reason = route_refusal(known, now, public=True)
    if expected is None:
        assert (refusal, reason) == (None, None)
        return
    assert refusal is not None
    assert reason is not None
    assert (refusal.code, reason.code) == (expected, expected)
    # Of the job nothing is told under a public link.
    assert refusal.subject == subject_of(known, public=False) != reason.subject
    assert reason.subject == subject_of(known, public=True)


@pytest.mark.parametrize(
    ("line", "changes", "expected"),
    [
        ("GET / HTTP/1.1", PUBLIC, None),
        ("GET /.fumarole/open HTTP/1.1", PUBLIC, "not_found"),
        ("GET / HTTP/1.1", PUBLIC | {"public": False}, "not_found"),
        ("GET / HTTP/1.1", PUBLIC | {"state": "closing"}, "session_closing"),
    ],
)
def test_a_public_host_is_forwarded_without_a_grant(
    line: str, changes: dict[str, Any], expected: str | None
) -> None:
    table = table_of(route(1, **changes))
    decision = decide(ask(line, host=f"demo.example.org:{PORT}"), table)
    if expected is None:
        assert isinstance(decision, Forward)
        assert decision.access_right.grant is None
        assert decision.access_right.host == "demo.example.org"
    else:
        assert code(decision) == expected
        assert isinstance(decision, Refuse)
        known = table.route(SID)
        assert known is not None
        said = None if expected == "not_found" else subject_of(known, public=True)
        assert decision.refusal.subject == said


def test_a_host_claimed_by_two_routes_is_not_served() -> None:
    others = {"sid": OTHER_SID, "hosts": [f"{OTHER_SID}.{BASE}", "demo.example.org"]}
    table = table_of(route(1, **PUBLIC), route(1, **(PUBLIC | others)))
    assert code(decide(ask(host=f"demo.example.org:{PORT}"), table)) == "not_found"
