"""Plays the orchestrator: holds keys, publishes their public halves, issues session tokens.

The code follows RFC 7515, 7517 and 7519 and uses primitives only. It shares nothing with the
product.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import secrets
import time
from typing import Any

from cryptography.hazmat.primitives.asymmetric import ec, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

ISSUER = "https://cloud.example.com"
AUDIENCE = "fumarole-gateway"


def base64url(data: bytes) -> str:
    """Return *data* in base64url without padding."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def new_jti() -> str:
    """Return an identifier that no other token has."""
    return secrets.token_urlsafe(12)


class Ed25519Key:
    """An Ed25519 key, for EdDSA."""

    algorithm = "EdDSA"

    def __init__(self, kid: str) -> None:
        self.kid = kid
        self._private = ed25519.Ed25519PrivateKey.generate()

    @property
    def public(self) -> bytes:
        """The public half's 32 bytes."""
        return self._private.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)

    def jwk(self) -> dict[str, Any]:
        """Return the public half as a JWK."""
        return {"kty": "OKP", "crv": "Ed25519", "x": base64url(self.public), "kid": self.kid}

    def sign(self, data: bytes) -> bytes:
        """Return the signature of *data*."""
        return self._private.sign(data)


class P256Key:
    """A P-256 key, for ES256."""

    algorithm = "ES256"

    def __init__(self, kid: str) -> None:
        self.kid = kid
        self._private = ec.generate_private_key(ec.SECP256R1())

    def jwk(self) -> dict[str, Any]:
        """Return the public half as a JWK."""
        numbers = self._private.public_key().public_numbers()
        x, y = (base64url(n.to_bytes(32, "big")) for n in (numbers.x, numbers.y))
        return {"kty": "EC", "crv": "P-256", "x": x, "y": y, "kid": self.kid}

    def sign(self, data: bytes) -> bytes:
        """Return the signature of *data* in the format of RFC 7518."""
        r, s = decode_dss_signature(self._private.sign(data, ec.ECDSA(SHA256())))
        return r.to_bytes(32, "big") + s.to_bytes(32, "big")


class RsaKey:
    """An RSA key, for RS256."""

    algorithm = "RS256"

    def __init__(self, kid: str, bits: int = 2048) -> None:
        self.kid = kid
        self._private = rsa.generate_private_key(65537, bits)

    def jwk(self) -> dict[str, Any]:
        """Return the public half as a JWK."""
        modulus = self._private.public_key().public_numbers().n
        n = base64url(modulus.to_bytes((modulus.bit_length() + 7) // 8, "big"))
        return {"kty": "RSA", "n": n, "e": "AQAB", "kid": self.kid}

    def sign(self, data: bytes) -> bytes:
        """Return the signature of *data*."""
        return self._private.sign(data, padding.PKCS1v15(), SHA256())


Key = Ed25519Key | P256Key | RsaKey


class HmacKey:
    """A secret that is misused as an issuer's key, for HS256."""

    algorithm = "HS256"

    def __init__(self, kid: str, secret: bytes) -> None:
        self.kid = kid
        self._secret = secret

    def sign(self, data: bytes) -> bytes:
        """Return the MAC of *data*."""
        return hmac.digest(self._secret, data, hashlib.sha256)


def compact(key: Key | HmacKey, claims: dict[str, Any] | bytes, **header: Any) -> str:
    """Return *claims* signed by *key*; a header field given as ``...`` is left out."""
    base = {"alg": key.algorithm, "kid": key.kid, "typ": "JWT"} | header
    head = {name: value for name, value in base.items() if value is not ...}
    payload = claims if isinstance(claims, bytes) else json.dumps(claims).encode()
    data = f"{base64url(json.dumps(head).encode())}.{base64url(payload)}"
    return f"{data}.{base64url(key.sign(data.encode()))}"


def verify_hs256(token: str, secret: bytes) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return header and claims of an HS256 token, whose signature must verify."""
    data, _, signature = token.rpartition(".")
    good = base64url(hmac.digest(secret, data.encode(), hashlib.sha256))
    assert hmac.compare_digest(good, signature), "the signature does not verify"
    head, payload = (json.loads(base64.urlsafe_b64decode(part + "==")) for part in data.split("."))
    assert head["alg"] == "HS256"
    return head, payload


class Orchestrator:
    """Holds the keys that the gateway trusts, and one key that the gateway does not know."""

    def __init__(self) -> None:
        self.ed25519 = Ed25519Key("ed-1")
        self.p256 = P256Key("ec-1")
        self.rsa = RsaKey("rsa-1")
        self.small_rsa = RsaKey("rsa-small", 1024)
        # Tests may revoke these keys, because nothing else is signed with them.
        self.spare = [Ed25519Key(f"spare-{number}") for number in range(8)]
        self.foreign = Ed25519Key("ed-1")

    def key_set(self, *more: Key) -> bytes:
        """Return the JSON Web Key set."""
        keys = [self.ed25519, self.p256, self.rsa, self.small_rsa, *self.spare, *more]
        return json.dumps({"keys": [key.jwk() for key in keys]}).encode()

    def claims(self, **claims: Any) -> dict[str, Any]:
        """Return the claims of a valid token; a claim given as ``...`` is left out."""
        now = int(time.time())
        base = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ada", "iat": now, "exp": now + 60}
        merged = base | {"jti": new_jti()} | claims
        return {name: value for name, value in merged.items() if value is not ...}

    def token(self, key: Key | None = None, **claims: Any) -> str:
        """Return a token of *claims*."""
        return compact(key or self.ed25519, self.claims(**claims))
