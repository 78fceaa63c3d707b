"""Tests the link key: attach tokens, sealed values, and different keys for different uses."""

from __future__ import annotations

import os
from typing import Any

import jwt
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shared.errors import SealRefused, TokenRefused
from shared.link import AttachGrant, AttachTokens, Seal, derive_key
from tests.shared.samples import SID, change_one, places, shifts

KEY = bytes(range(32))
NOW = 1_800_000_000.5
TOKENS = AttachTokens(KEY)


def make() -> str:
    return TOKENS.make(sid=SID, sub="ada", mode="view", jti="a1", now=NOW)


def forge(key: bytes = derive_key(KEY, "hub attach"), **claims: Any) -> str:
    base = {"aud": "fumarole-hub", "sid": SID, "sub": "ada", "mode": "view", "jti": "a1"}
    times = {"iat": int(NOW), "exp": int(NOW) + 10}
    merged = base | times | claims
    return jwt.encode({k: v for k, v in merged.items() if v is not ...}, key, algorithm="HS256")


def test_an_attach_token_names_user_and_session() -> None:
    attach = TOKENS.verify(make(), now=NOW)
    assert (attach.sid, attach.sub, attach.mode, attach.jti) == (SID, "ada", "view", "a1")


def test_an_attach_token_names_its_grant() -> None:
    assert TOKENS.verify(make(), now=NOW).grant is None
    grant = AttachGrant(jti="t1", kid="k1", issued_at=NOW - 5.25)
    token = TOKENS.make(sid=SID, sub="ada", mode="view", jti="a1", now=NOW, grant=grant)
    assert TOKENS.verify(token, now=NOW).grant == grant


@pytest.mark.parametrize("later", [-6, 16])
def test_an_attach_token_is_short_lived(later: float) -> None:
    with pytest.raises(TokenRefused):
        TOKENS.verify(make(), now=NOW + later)


@pytest.mark.parametrize(
    "claims",
    [
        {"aud": "fumarole-gateway"},
        {"aud": ["fumarole-hub"]},
        {"exp": int(NOW) + 3600},
        {"exp": ...},
        {"iat": ...},
        {"iat": True},
        {"mode": "admin"},
        {"mode": ...},
        {"sid": ...},
        {"sub": ""},
        {"jti": 7},
        {"grant": None},
        {"grant": "t1"},
        {"grant": {}},
        {"grant": {"jti": "t1", "kid": "k1"}},
        {"grant": {"jti": "", "kid": "k1", "iat": 1}},
        {"grant": {"jti": "t1", "kid": 1, "iat": 1}},
        {"grant": {"jti": "t1", "kid": "k1", "iat": True}},
        {"grant": {"jti": "t1", "kid": "k1", "iat": "1"}},
    ],
)
def test_an_attach_token_with_other_claims_is_refused(claims: dict[str, Any]) -> None:
    with pytest.raises(TokenRefused):
        TOKENS.verify(forge(**claims), now=NOW)


@pytest.mark.parametrize("key", [KEY, derive_key(KEY, "sealed route"), bytes(32)])
def test_a_token_made_with_any_other_key_is_refused(key: bytes) -> None:
    with pytest.raises(TokenRefused):
        TOKENS.verify(forge(key), now=NOW)


@pytest.mark.parametrize("token", ["", "a.b.c", "é", forge().rpartition(".")[0] + "."])
def test_a_malformed_token_is_refused(token: str) -> None:
    with pytest.raises(TokenRefused):
        TOKENS.verify(token, now=NOW)


# Sealing

SEAL = Seal(KEY)
names = st.text(st.characters(codec="utf-8"), max_size=20)


@given(st.dictionaries(names, names), st.integers(0, 2**40))
def test_sealed_text_opens_for_the_same_route(secrets: dict[str, str], rev: int) -> None:
    sealed = SEAL.seal(secrets, sid=SID, rev=rev, random=os.urandom)
    assert SEAL.open(sealed, sid=SID, rev=rev) == secrets


@pytest.mark.parametrize(("sid", "rev"), [(SID, 2), (SID[:-1] + "a", 1)])
def test_sealed_text_opens_for_no_other_route(sid: str, rev: int) -> None:
    sealed = SEAL.seal({"vnc_password": "s3cret"}, sid=SID, rev=1, random=os.urandom)
    with pytest.raises(SealRefused):
        SEAL.open(sealed, sid=sid, rev=rev)


def test_during_a_rotation_text_sealed_with_either_key_opens() -> None:
    old, new = bytes(32), KEY
    for first, others in ((old, (old, new)), (new, (old, new)), (old, (new, old))):
        sealed = Seal(first).seal({"a": "b"}, sid=SID, rev=1, random=os.urandom)
        assert Seal(*others).open(sealed, sid=SID, rev=1) == {"a": "b"}
    sealed = Seal(new, old).seal({"a": "b"}, sid=SID, rev=1, random=os.urandom)
    assert Seal(new).open(sealed, sid=SID, rev=1) == {"a": "b"}


@given(places, shifts)
def test_changed_sealed_text_does_not_open(place: int, shift: int) -> None:
    sealed = SEAL.seal({"vnc_password": "s3cret"}, sid=SID, rev=1, random=os.urandom)
    with pytest.raises(SealRefused):
        SEAL.open(change_one(sealed, place, shift), sid=SID, rev=1)


def test_another_link_key_opens_nothing() -> None:
    sealed = SEAL.seal({}, sid=SID, rev=1, random=os.urandom)
    with pytest.raises(SealRefused):
        Seal(bytes(32)).open(sealed, sid=SID, rev=1)


def test_no_key_shows_in_a_repr() -> None:
    shown = repr(Seal(b"k" * 32)) + repr(AttachTokens(b"k" * 32))
    assert "kkkk" not in shown
