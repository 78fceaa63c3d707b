"""Tests session and service tokens: every claim is checked, and every check refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import TokenRefused
from shared.jose.jws import encode_base64url, read_key_set
from shared.tokens import (
    SessionClaims,
    names_audience,
    peek,
    verify_service_token,
    verify_session_token,
)
from tests.shared.samples import ISSUER, SID, SIGNERS, key_set_of, make_claims

KEYS = read_key_set(key_set_of(*SIGNERS.values()))
ED = SIGNERS["EdDSA"]
NOW = 1_800_000_000


def verify(now: float = NOW, issued: float = NOW, **claims: Any) -> SessionClaims:
    token = ED.sign(make_claims(issued, **claims))
    return verify_session_token(token, keys=KEYS, issuer=ISSUER, now=now)


def reason_of(now: float = NOW, **claims: Any) -> str:
    with pytest.raises(TokenRefused) as refused:
        verify(now, **claims)
    return refused.value.reason


def test_a_valid_token_yields_its_claims() -> None:
    assert verify() == SessionClaims(
        sub="ada", name=None, iat=NOW, exp=NOW + 60, jti="t-1", sid=SID, job="j1", rank=0,
        kind="web", mode="control", max_age=43200, kid=ED.kid, issued_at=NOW,
    )  # fmt: skip


@pytest.mark.parametrize("signer", SIGNERS.values(), ids=SIGNERS)
def test_every_algorithm_of_the_contract_is_accepted(signer: Any) -> None:
    token = signer.sign(make_claims(NOW))
    claims = verify_session_token(peek(token), keys=KEYS, issuer=ISSUER, now=NOW)
    assert claims.kid == signer.kid


@pytest.mark.parametrize(
    ("claims", "reason"),
    [
        *(
            ({name: ...}, "claims")
            for name in ("sub", "iat", "exp", "jti", "sid", "job", "rank", "kind")
        ),
        ({"iss": ...}, "issuer"),
        ({"iss": ISSUER + "/"}, "issuer"),
        ({"iss": [ISSUER]}, "issuer"),
        ({"aud": ...}, "audience"),
        ({"aud": "fumarole-controller"}, "audience"),
        ({"aud": ["fumarole-gateway", "other"]}, "audience"),
        ({"aud": ["fumarole-gateway", "fumarole-gateway"]}, "audience"),
        ({"sub": ""}, "claims"),
        ({"sub": "a" * 256}, "claims"),
        ({"sub": "a\nb"}, "claims"),
        ({"sub": "a\x7f"}, "claims"),
        ({"sub": "a\u2028"}, "claims"),
        ({"sub": 7}, "claims"),
        ({"name": "x\x00"}, "claims"),
        ({"name": ["x"]}, "claims"),
        ({"jti": ""}, "claims"),
        ({"jti": "a b"}, "claims"),
        ({"jti": "é"}, "claims"),
        ({"jti": "a" * 129}, "claims"),
        ({"jti": "a\n"}, "claims"),
        ({"sid": SID.upper()}, "claims"),
        ({"sid": SID[:-1]}, "claims"),
        ({"sid": SID + "a"}, "claims"),
        ({"sid": SID[:-1] + "1"}, "claims"),
        ({"sid": SID + "\n"}, "claims"),
        ({"rank": -1}, "claims"),
        ({"rank": True}, "claims"),
        ({"rank": 0.0}, "claims"),
        ({"rank": "0"}, "claims"),
        ({"rank": None}, "claims"),
        ({"kind": "ssh"}, "claims"),
        ({"kind": ["web"]}, "claims"),
        ({"mode": "admin"}, "claims"),
        ({"mode": None}, "claims"),
        ({"max_age": 0}, "claims"),
        ({"max_age": -1}, "claims"),
        ({"max_age": 86401}, "claims"),
        ({"max_age": 3600.0}, "claims"),
        ({"max_age": None}, "claims"),
        ({"iat": float(NOW)}, "claims"),
        ({"iat": str(NOW)}, "claims"),
        ({"iat": False}, "claims"),
        ({"exp": NOW + 60.5}, "claims"),
        ({"exp": NOW - 1}, "claims"),
        ({"exp": NOW + 3601}, "claims"),
        ({"nbf": True}, "claims"),
        ({"nbf": None}, "claims"),
        ({"nbf": NOW + 11}, "early"),
        ({"iat": NOW + 11, "exp": NOW + 60}, "early"),
        ({"iat": NOW - 80, "exp": NOW - 10}, "expired"),
    ],
)
def test_an_invalid_claim_is_refused(claims: dict[str, Any], reason: str) -> None:
    assert reason_of(**claims) == reason


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": ["fumarole-gateway"]},
        {"name": "Ada Lovelace"},
        {"sub": "a" * 255},
        {"jti": "!" * 128},
        {"rank": 5, "kind": "vnc", "mode": "view", "max_age": 86400},
        {"exp": NOW + 3600},
        {"iat": NOW + 9},
        {"nbf": NOW + 9},
        {"iat": NOW - 69, "exp": NOW - 9},
        {"unheard": {"of": 1}},
    ],
)
def test_claims_that_the_contract_allows_are_accepted(claims: dict[str, Any]) -> None:
    verify(**claims)


def test_a_payload_that_repeats_a_key_is_malformed() -> None:
    payload = json.dumps(make_claims(NOW)).replace('"sub": "ada"', '"sub": "eve", "sub": "ada"')
    with pytest.raises(TokenRefused) as refused:
        verify_session_token(ED.sign(payload.encode()), keys=KEYS, issuer=ISSUER, now=NOW)
    assert refused.value.reason == "malformed"


@given(
    st.dictionaries(
        st.sampled_from(list(make_claims())),
        st.none() | st.booleans() | st.lists(st.integers()),
        min_size=1,
    )
)
def test_claims_of_other_types_are_refused(claims: dict[str, Any]) -> None:
    reason_of(**claims)


@given(st.integers(-200, 200))
def test_a_token_opens_from_iat_to_exp_with_ten_seconds_of_leeway(offset: int) -> None:
    if -10 <= offset < 70:
        verify(NOW + offset)
    else:
        assert reason_of(NOW + offset) == ("early" if offset < 0 else "expired")


@pytest.mark.parametrize(
    ("now", "ends"), [(NOW, NOW + 100), (NOW + 30, NOW + 100), (NOW - 5, NOW + 95)]
)
def test_a_grant_starts_at_the_earlier_of_iat_and_the_local_clock(now: float, ends: float) -> None:
    assert verify(max_age=100).grant_ends_at(now) == ends


def test_a_token_of_an_issuer_with_a_fast_clock_is_still_revocable() -> None:
    assert verify(NOW + 2.5, iat=NOW + 9).issued_at == NOW + 2.5
    assert verify(NOW + 2.5, iat=NOW).issued_at == NOW


def test_a_refusal_quotes_nothing_of_the_token() -> None:
    canary = "c4n4ry"
    cases: list[dict[str, Any]] = [
        {"sub": canary + "\n"},
        {"jti": canary + " "},
        {"sid": canary},
        {"kind": canary},
    ]
    for claims in cases:
        with pytest.raises(TokenRefused) as refused:
            verify(**claims)
        assert canary not in str(refused.value)


# Peeking


def test_an_unverified_read_returns_kid_and_sid() -> None:
    seen = peek(ED.sign(make_claims()))
    assert (seen.kid, seen.sid) == (ED.kid, SID)


def test_an_unverified_read_of_a_token_without_session_is_refused() -> None:
    with pytest.raises(TokenRefused):
        peek(ED.sign(make_claims(sid="../../x")))


@pytest.mark.parametrize(
    "aud", ["fumarole-gateway", ["fumarole-gateway"], ["x", "fumarole-gateway"]]
)
def test_the_audience_is_read_from_an_unverified_token(aud: Any) -> None:
    token = f"e30.{encode_base64url(json.dumps({'aud': aud}).encode())}.sig"
    assert names_audience(token, "fumarole-gateway")


@pytest.mark.parametrize("payload", [b"", b"[]", b"{}", b"{", b"[" * 9000, b'{"aud":"another"}'])
def test_other_authorization_schemes_belong_to_the_app(payload: bytes) -> None:
    assert not names_audience(f"e30.{encode_base64url(payload)}.x", "fumarole-gateway")


@pytest.mark.parametrize("token", ["", "abc", "a.b.c", "é.é.é"])
def test_bearer_text_that_is_no_jwt_belongs_to_the_app(token: str) -> None:
    assert not names_audience(token, "fumarole-gateway")


# Service tokens


def verify_service(**claims: Any) -> str:
    issued = make_claims(NOW, aud="fumarole-controller", **claims)
    return verify_service_token(ED.sign(issued), keys=KEYS, issuer=ISSUER, now=NOW)


def test_a_service_token_needs_the_audience_of_the_controller() -> None:
    assert verify_service(sub="cloud") == "cloud"
    assert verify_service(sub=...) == ""
    with pytest.raises(TokenRefused):
        verify_service_token(ED.sign(make_claims(NOW)), keys=KEYS, issuer=ISSUER, now=NOW)


def test_a_service_token_lasts_at_most_an_hour_or_the_configured_time() -> None:
    assert verify_service(exp=NOW + 3600, sub="cloud") == "cloud"
    with pytest.raises(TokenRefused):
        verify_service(exp=NOW + 3601)
    token = ED.sign(make_claims(NOW, aud="fumarole-controller", exp=NOW + 60))
    with pytest.raises(TokenRefused):
        verify_service_token(token, keys=KEYS, issuer=ISSUER, now=NOW, longest_seconds=59)


@pytest.mark.parametrize(
    "claims", [{"exp": ...}, {"iat": ...}, {"exp": NOW - 10, "iat": NOW - 20}, {"iss": "x"}]
)
def test_a_service_token_needs_its_times_and_issuer(claims: dict[str, Any]) -> None:
    with pytest.raises(TokenRefused):
        verify_service(**claims)
