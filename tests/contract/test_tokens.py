"""Tests invalid tokens: refused in an opening and as a bearer token, never marked as used."""

from __future__ import annotations

import base64
import json
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.contract.conftest import Serve
from tests.contract.rig import Rig, Session
from tests.contract.tokens import HmacKey, base64url, compact, new_jti


def claims_of(rig: Rig, session: Session, **claims: Any) -> dict[str, Any]:
    route = session.route
    good = {name: route[name] for name in ("sid", "job", "rank", "kind")}
    return rig.keys.claims(**({"sub": session.sub} | good | claims))


# Times are in seconds from now.
CLAIMS: dict[str, dict[str, Any]] = {
    "another issuer": {"iss": "https://evil.example"},
    "issuer with a slash": {"iss": "https://cloud.example.com/"},
    "no issuer": {"iss": ...},
    "issuers": {"iss": ["https://cloud.example.com"]},
    "another audience": {"aud": "fumarole-controller"},
    "no audience": {"aud": ...},
    "two audiences": {"aud": ["fumarole-gateway", "fumarole-controller"]},
    "no subject": {"sub": ...},
    "empty subject": {"sub": ""},
    "long subject": {"sub": "x" * 256},
    "line break in subject": {"sub": "ada\r\nX-Forwarded-User: root"},
    "NUL in subject": {"sub": "ada\x00"},
    "DEL in subject": {"sub": "ada\x7f"},
    "C1 in subject": {"sub": "ada\x85"},
    "number as subject": {"sub": 7},
    "no jti": {"jti": ...},
    "empty jti": {"jti": ""},
    "long jti": {"jti": "x" * 129},
    "space in jti": {"jti": "a b"},
    "non-ASCII jti": {"jti": "ä"},
    "number as jti": {"jti": 7},
    "no sid": {"sid": ...},
    "no job": {"job": ...},
    "no rank": {"rank": ...},
    "no kind": {"kind": ...},
    "float rank": {"rank": 0.0},
    "bool rank": {"rank": False},
    "text rank": {"rank": "0"},
    "null rank": {"rank": None},
    "unknown kind": {"kind": "ssh"},
    "unknown mode": {"mode": "admin"},
    "null mode": {"mode": None},
    "max_age of 0": {"max_age": 0},
    "negative max_age": {"max_age": -1},
    "long max_age": {"max_age": 86401},
    "float max_age": {"max_age": 60.0},
    "bool max_age": {"max_age": True},
    "text max_age": {"max_age": "60"},
    "no iat": {"iat": ...},
    "no exp": {"exp": ...},
    "float iat": {"iat": 1.5},
    "text exp": {"exp": "9999999999"},
    "bool exp": {"exp": True},
    "bool nbf": {"nbf": False},
}
TIMES: dict[str, dict[str, float]] = {
    "expired": {"iat": -100, "exp": -12},
    "not yet": {"nbf": 15},
    "of the future": {"iat": 20, "exp": 60},
    "float exp": {"exp": 60.5},
    "too long": {"exp": 3700},
}


async def refuse(rig: Rig, session: Session, token: str, jti: str | None = None) -> None:
    """Assert that *token* is refused in every place that takes a token."""
    assert (await rig.post_open(session, token)).status == 401
    for fields in ([("Authorization", f"Bearer {token}")], [("Fumarole-Token", token)]):
        assert (await rig.get(session, fields=fields)).status == 401
    if jti is not None:
        assert not await rig.bus.redis.exists(rig.bus.key(f"used:{jti}"))


@pytest.mark.parametrize("claims", CLAIMS.values(), ids=CLAIMS)
async def test_a_wrong_claim_is_refused(rig: Rig, serve: Serve, claims: dict[str, Any]) -> None:
    app = await serve()
    session = await rig.session(app)
    jti = new_jti()
    token = compact(rig.keys.ed25519, claims_of(rig, session, **({"jti": jti} | claims)))
    await refuse(rig, session, token, jti)
    assert app.connections == []


@pytest.mark.parametrize("times", TIMES.values(), ids=TIMES)
async def test_a_wrong_time_is_refused(rig: Rig, times: dict[str, float]) -> None:
    session = await rig.session()
    now, jti = int(time.time()), new_jti()
    claims = {name: now + value for name, value in times.items()}
    token = compact(rig.keys.ed25519, claims_of(rig, session, jti=jti, **claims))
    await refuse(rig, session, token, jti)


Make = Callable[[Rig, dict[str, Any]], str]


def none_of(name: str) -> Make:
    """Return a function that makes unsigned tokens with the algorithm *name*."""

    def make(rig: Rig, claims: dict[str, Any]) -> str:
        head = base64url(json.dumps({"alg": name, "kid": "ed-1"}).encode())
        return f"{head}.{base64url(json.dumps(claims).encode())}."

    return make


def with_header(**header: Any) -> Make:
    """Return a function that makes validly signed tokens with another header."""
    return lambda rig, claims: compact(rig.keys.ed25519, claims, **header)


def with_public_key(rig: Rig, claims: dict[str, Any]) -> str:
    return compact(HmacKey("ed-1", rig.keys.ed25519.public), claims)


def with_public_key_text(rig: Rig, claims: dict[str, Any]) -> str:
    text = rig.keys.ed25519.jwk()["x"].encode()
    return compact(HmacKey("ed-1", text), claims)


def with_own_key(rig: Rig, claims: dict[str, Any]) -> str:
    return compact(rig.keys.foreign, claims, jwk=rig.keys.foreign.jwk())


def spoiled(part: int) -> Make:
    """Return a function that makes tokens with one changed byte."""

    def make(rig: Rig, claims: dict[str, Any]) -> str:
        parts = compact(rig.keys.ed25519, claims).split(".")
        data = bytearray(base64.urlsafe_b64decode(parts[part] + "=="))
        data[len(data) // 2] ^= 1
        parts[part] = base64url(bytes(data))
        return ".".join(parts)

    return make


def doubled(name: str) -> Make:
    """Return a function that makes tokens with a claim twice, both times with the valid value."""

    def make(rig: Rig, claims: dict[str, Any]) -> str:
        again = json.dumps({name: claims[name]})
        return compact(rig.keys.ed25519, f"{json.dumps(claims)[:-1]}, {again[1:]}".encode())

    return make


SIGNATURES: dict[str, Make] = {
    "nonsense": lambda rig, claims: "nonsense",
    "three dots": lambda rig, claims: "...",
    "unsigned": none_of("none"),
    "unsigned, in capitals": none_of("None"),
    "unsigned EdDSA": none_of("EdDSA"),
    "HS256 with the public key": with_public_key,
    "HS256 with the public key's text": with_public_key_text,
    "foreign key under our kid": lambda rig, claims: compact(rig.keys.foreign, claims),
    "own key in the header": with_own_key,
    "unknown kid": with_header(kid="unknown"),
    "no kid": with_header(kid=...),
    "number as kid": with_header(kid=7),
    "another key's kid": with_header(kid="spare-7"),
    "kid of an EC key": with_header(kid="ec-1"),
    "ES256 said of an Ed25519 key": with_header(alg="ES256"),
    "jku": with_header(jku="https://evil.example/keys"),
    "x5u beside jku": with_header(jku="https://evil.example/keys", x5u="https://evil.example"),
    "jwk": with_header(jwk={"kty": "OKP"}),
    "crit": with_header(crit=["exp"]),
    "crit with b64": with_header(crit=["b64"], b64=True),
    "RSA key of 1024 bits": lambda rig, claims: compact(rig.keys.small_rsa, claims),
    "RS512": lambda rig, claims: compact(rig.keys.rsa, claims, alg="RS512"),
    "changed header": spoiled(0),
    "changed payload": spoiled(1),
    "changed signature": spoiled(2),
    "cut signature": lambda rig, claims: compact(rig.keys.ed25519, claims)[:-8],
    "no signature": lambda rig, claims: compact(rig.keys.ed25519, claims).rpartition(".")[0],
    "something behind": lambda rig, claims: compact(rig.keys.ed25519, claims) + ".x",
    "padding": lambda rig, claims: compact(rig.keys.ed25519, claims) + "==",
    "sub twice": doubled("sub"),
    "sid twice": doubled("sid"),
    "rank twice": doubled("rank"),
    "a list": lambda rig, claims: compact(rig.keys.ed25519, json.dumps([claims]).encode()),
    "no JSON": lambda rig, claims: compact(rig.keys.ed25519, b"{"),
}


@pytest.mark.parametrize("make", SIGNATURES.values(), ids=SIGNATURES)
async def test_a_token_that_does_not_verify_is_refused(rig: Rig, serve: Serve, make: Make) -> None:
    app = await serve()
    session = await rig.session(app)
    jti = new_jti()
    token = make(rig, claims_of(rig, session, jti=jti))
    await refuse(rig, session, token, jti)
    assert app.connections == []
