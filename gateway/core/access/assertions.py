"""Assertions: the user of a request, signed by the gateway so that an app can verify it.

An app believes ``X-Forwarded-User`` because only gateways reach it; an assertion can be verified
anywhere. It is a JWT (RFC 7519) with ES256 (RFC 7518, section 3.4): the one elliptic-curve
algorithm that Web Crypto, Java, .NET, Go and every JWT library verify. Ed25519 would be shorter but
some of them lack it. An RSA signature costs the gateway twenty times as much.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
)
from jwt.algorithms import ECAlgorithm

from gateway.core.access.access_right import AccessRight
from gateway.core.access.grants import Grant
from shared.bounded import BoundedDict
from shared.jose.signing_keys import named_jwks, read_private_keys

LIFE_SECONDS: Final = 120
RENEWED_SECONDS: Final = 60.0
"""How long an assertion is reused; the app then still has a minute to verify it."""

_ALGORITHM: Final = "ES256"
_REMEMBERED: Final = 8192


@dataclass(frozen=True, slots=True)
class Assertion:
    """One assertion; it is sent from *made_at* until *renew_at*, in unix seconds."""

    value: str = field(repr=False)
    made_at: float
    renew_at: float


class AssertionKeys:
    """The private key that signs, and the public keys that are published.

    Args:
        keys: The first one signs; the others are published, for a key rotation.

    Raises:
        ValueError: If there is no key, a duplicate, or more than 16.
    """

    def __init__(self, keys: Sequence[EllipticCurvePrivateKey]) -> None:
        members = named_jwks(map(_public_members, keys), algorithm=_ALGORITHM)
        self.private = keys[0]
        self.kid: str = members[0]["kid"]
        self.jwks: bytes = json.dumps({"keys": members}).encode()
        """The JSON Web Key set (RFC 7517) that verifies these keys' signatures."""


def read_assertion_keys(pem: bytes) -> AssertionKeys:
    """Return the keys in *pem*: private keys for P-256, one in each PEM block.

    Raises:
        ValueError: If there is no key, or a block that holds no such key.
    """
    keys: list[EllipticCurvePrivateKey] = []
    for number, key in enumerate(read_private_keys(pem), 1):
        if not isinstance(key, EllipticCurvePrivateKey) or not isinstance(key.curve, SECP256R1):
            raise ValueError(f"the key in block {number} is not for P-256 (ES256)")
        keys.append(key)
    return AssertionKeys(keys)


def _public_members(key: EllipticCurvePrivateKey) -> dict[str, Any]:
    member: dict[str, Any] = ECAlgorithm.to_jwk(key.public_key(), as_dict=True)
    return {name: member[name] for name in ("crv", "kty", "x", "y")}


class Assertions:
    """Makes assertions: one a minute for each grant, not one for each request.

    Args:
        keys: The signing keys; :meth:`replace_keys` exchanges them.
        issuer: The ``iss`` claim: the gateway's public URL.
    """

    def __init__(self, keys: AssertionKeys, *, issuer: str) -> None:
        self._keys = keys
        self._issuer = issuer
        self._made: BoundedDict[Grant, Assertion] = BoundedDict(_REMEMBERED)
        """All live equally long, so that the oldest is renewed first."""
        self.signed = 0
        """The number of signatures made."""

    @property
    def jwks(self) -> bytes:
        """The public keys, as served."""
        return self._keys.jwks

    def replace_keys(self, keys: AssertionKeys) -> None:
        """Sign with *keys* from now on."""
        self._keys = keys
        self._made.clear()

    def for_request(self, right: AccessRight, now: float) -> Assertion | None:
        """Return the assertion for a request by *right*; None without an authenticated user."""
        grant = right.grant
        if grant is None:
            return None
        made = self._made.get(grant)
        # If the clock was set back, apps would have to wait until the "iat".
        if made is None or not made.made_at <= now < made.renew_at:
            self._made.pop(grant, None)
            made = self._made[grant] = self._make(right, grant, now)
        return made

    def _make(self, right: AccessRight, grant: Grant, now: float) -> Assertion:
        issued = math.floor(now)
        claims = {
            "iss": self._issuer,
            "aud": grant.sid,
            "sub": grant.sub,
            "iat": issued,
            "exp": min(issued + LIFE_SECONDS, math.ceil(right.ends_at)),
            "job": right.route.job,
            "rank": right.route.rank,
        }
        self.signed += 1
        value = jwt.encode(
            claims, self._keys.private, algorithm=_ALGORITHM, headers={"kid": self._keys.kid}
        )
        return Assertion(value, now, min(now + RENEWED_SECONDS, right.ends_at))
