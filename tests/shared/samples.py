"""Routes, events, keys and tokens for tests, and Hypothesis strategies that make them."""

from __future__ import annotations

import base64
import json
import time
from typing import Any

import jwt
import msgspec
from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key as generate_rsa
from hypothesis import strategies as st
from jwt.algorithms import ECAlgorithm, OKPAlgorithm, RSAAlgorithm

from shared.events import (
    GrantRevoked,
    Heartbeat,
    RouteRemoved,
    RouteUpserted,
    event_time,
)

ISSUER = "https://cloud.example.com"
SID = "abcdefghijklmnopqrstuvwxyz"[:24] + "23"


def make_sid(number: int) -> str:
    """Return the session identifier of *number*."""
    return base64.b32encode(number.to_bytes(16, "big")).decode().lower().rstrip("=")


def make_route(sid: str = SID, **fields: Any) -> dict[str, Any]:
    """Return a route as a JSON object."""
    target = {"scheme": "http", "host": "10.1.2.3", "port": 8888, "base_path": "/", "id": "pod-1"}
    route = {
        "sid": sid, "rev": 1, "job": "j1", "rank": 0, "kind": "web", "owner": "ada",
        "hosts": [f"{sid}.apps.example.com"], "target": target, "state": "ready", "message": None,
        "expires_at": None, "public": False, "sealed": None,
    }  # fmt: skip
    return route | fields


def encode(value: Any) -> bytes:
    """Return *value* as JSON."""
    return json.dumps(value).encode()


# Keys


def _generate(algorithm: str) -> Any:
    match algorithm:
        case "EdDSA":
            return Ed25519PrivateKey.generate()
        case "ES256":
            return generate_private_key(SECP256R1())
        case _:
            return generate_rsa(65537, 2048)


class Signer:
    """An issuer's key of one type: signs, and returns its public half."""

    def __init__(self, kid: str, algorithm: str) -> None:
        self.kid = kid
        self.algorithm = algorithm
        maker: Any = {"EdDSA": OKPAlgorithm, "ES256": ECAlgorithm, "RS256": RSAAlgorithm}[algorithm]
        self.private = _generate(algorithm)
        self.jwk: dict[str, Any] = maker.to_jwk(self.private.public_key(), as_dict=True)
        self.jwk.pop("key_ops", None)
        self.jwk |= {"kid": kid}

    def sign(self, claims: Any, **header: Any) -> str:
        """Return *claims* (a dict, or the payload's bytes) as a compact JWS."""
        payload = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
        headers = {"kid": self.kid} | header
        algorithm = headers.pop("alg", self.algorithm)
        return jwt.PyJWS().encode(payload, self.private, algorithm=algorithm, headers=headers)


SIGNERS = {name: Signer(f"key-{name}", name) for name in ("EdDSA", "ES256", "RS256")}


def key_set_of(*signers: Signer) -> bytes:
    """Return the JSON Web Key set of *signers*."""
    return json.dumps({"keys": [signer.jwk for signer in signers]}).encode()


def make_claims(now: float | None = None, **claims: Any) -> dict[str, Any]:
    """Return the claims of a valid session token; a claim given as ``...`` is left out."""
    issued = int(time.time() if now is None else now)
    base = {
        "iss": ISSUER, "aud": "fumarole-gateway", "sub": "ada", "iat": issued, "exp": issued + 60,
        "jti": "t-1", "sid": SID, "job": "j1", "rank": 0, "kind": "web",
    }  # fmt: skip
    return {name: value for name, value in (base | claims).items() if value is not ...}


# Strategies

TOKEN_ALPHABET = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_."


def change_one(text: str, place: int, shift: int) -> str:
    """Return *text* with another character at *place* (modulo its length), so any draw fits."""
    index = place % len(text)
    old = TOKEN_ALPHABET.index(text[index])
    new = TOKEN_ALPHABET[(old + 1 + shift) % len(TOKEN_ALPHABET)]
    return text[:index] + new + text[index + 1 :]


places = st.integers(0, 2000)
shifts = st.integers(0, len(TOKEN_ALPHABET) - 2)

texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), min_size=1, max_size=40)
numbers = st.integers(0, 2**31)
sids = st.integers(0, 5).map(make_sid)
"""Few sessions, so that events meet."""

targets = st.fixed_dictionaries(
    {
        "scheme": st.just("http"),
        "host": st.sampled_from(["10.0.0.1", "10.0.0.2"]),
        "port": st.integers(1, 65535),
        "base_path": st.sampled_from(["/", "/app", "/a/b/"]),
        "id": texts,
    }
)
links = st.lists(st.sampled_from(["one.apps.example.com", "two.apps.example.com"]), unique=True)


@st.composite
def routes(draw: st.DrawFn, sid: str | None = None) -> dict[str, Any]:
    """Draw a route, sometimes with public links that other routes name too."""
    sid = sid or draw(sids)
    return make_route(
        sid,
        rev=draw(numbers),
        job=draw(texts),
        rank=draw(numbers),
        owner=draw(texts),
        target=draw(targets),
        state=draw(st.sampled_from(["starting", "ready", "closing"])),
        message=draw(st.none() | texts),
        expires_at=draw(st.none() | st.floats(0, 2**40)),
        public=draw(st.booleans()),
        hosts=[f"{sid}.apps.example.com", *draw(links)],
    )


times = st.integers(0, 4_000_000_000_000).map(lambda ms: event_time(ms / 1000))


def events(epoch: str = "e1", seqs: st.SearchStrategy[int] = numbers) -> st.SearchStrategy[Any]:
    """Return a strategy for events of every known type."""
    shell: dict[str, Any] = {"epoch": st.just(epoch), "seq": seqs, "at": times}
    return st.one_of(
        sids.flatmap(
            lambda sid: st.builds(
                RouteUpserted,
                sid=st.just(sid),
                route=routes(sid).map(lambda route: msgspec.Raw(encode(route))),
                **shell,
            )
        ),
        st.builds(RouteRemoved, sid=sids, reason=texts, **shell),
        st.builds(GrantRevoked, sid=sids, **shell),
        st.builds(GrantRevoked, sid=sids, jti=texts, **shell),
        st.builds(GrantRevoked, sid=sids, sub=texts, **shell),
        st.builds(GrantRevoked, kid=texts, **shell),
        st.builds(Heartbeat, **shell),
    )
