"""Assertions: who makes a request, signed by the gateway so that an app can prove it.

``X-Forwarded-User`` is believed by an app because only gateways reach it; an assertion holds
wherever it is looked at. It is a JWT (RFC 7519) with ES256 (RFC 7518, section 3.4): the one
elliptic algorithm that Web Crypto, Java, .NET, Go and every JWT library verify. Ed25519 would be
shorter and is missing in some of them; an RSA signature costs the gateway twenty times as much.
"""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import jwt
from cryptography.hazmat.primitives.asymmetric.ec import (
    SECP256R1,
    EllipticCurvePrivateKey,
)
from jwt.algorithms import ECAlgorithm

from gateway.core.access.access_right import AccessRight
from gateway.core.access.grants import Grant
from shared.jose.signing_keys import named_jwks, read_private_keys

LIFE_SECONDS: Final = 120
RENEWED_SECONDS: Final = 60.0
"""How long one is sent again: an app that gets it has at least a minute to look at it."""

_ALGORITHM: Final = "ES256"
_REMEMBERED: Final = 8192


@dataclass(frozen=True, slots=True)
class Assertion:
    """One assertion; it is sent from *made_at* until *renew_at*, in unix seconds."""

    value: str
    made_at: float
    renew_at: float

    def __repr__(self) -> str:
        return f"Assertion(made_at={self.made_at}, renew_at={self.renew_at})"


class AssertionKeys:
    """The key that signs, and the public halves of all that are published.

    Args:
        keys: The first one signs; the others are published, for the time of a rotation.

    Raises:
        ValueError: If there is none, one twice, or more than 16.
    """

    __slots__ = ("jwks", "kid", "private")

    def __init__(self, keys: Sequence[EllipticCurvePrivateKey]) -> None:
        members = named_jwks(map(_public_members, keys), algorithm=_ALGORITHM)
        self.private = keys[0]
        self.kid: str = members[0]["kid"]
        self.jwks: bytes = json.dumps({"keys": members}).encode()
        """The JSON Web Key set (RFC 7517) that verifies what these keys have signed."""

    def __repr__(self) -> str:
        return f"AssertionKeys(kid={self.kid!r})"


def read_assertion_keys(pem: bytes) -> AssertionKeys:
    """Return the keys in *pem*: private keys for P-256, one PEM block each.

    Raises:
        ValueError: If there is no key, or a block that is no such key.
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
    """Makes assertions; one is made once a minute for each grant, not once for each request.

    Args:
        keys: What signs; :meth:`take` exchanges it.
        issuer: The ``iss``: the gateway's public URL.
    """

    __slots__ = ("_issuer", "_keys", "_made", "signed")

    def __init__(self, keys: AssertionKeys, *, issuer: str) -> None:
        self._keys = keys
        self._issuer = issuer
        self._made: dict[Grant, Assertion] = {}
        self.signed = 0
        """How many signatures have been made."""

    @property
    def jwks(self) -> bytes:
        """The public keys, as they are served."""
        return self._keys.jwks

    def take(self, keys: AssertionKeys) -> None:
        """Sign with *keys* from now on."""
        self._keys = keys
        self._made.clear()

    def of(self, right: AccessRight, now: float) -> Assertion | None:
        """Return what a request by *right* is sent with; None where no user was asked for."""
        grant = right.grant
        if grant is None:
            return None
        made = self._made.get(grant)
        # A clock that was set back would have apps wait for an "iat" to come.
        if made is None or not made.made_at <= now < made.renew_at:
            made = self._make(right, grant, now)
            self._remember(grant, made)
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

    def _remember(self, grant: Grant, made: Assertion) -> None:
        self._made.pop(grant, None)
        if len(self._made) >= _REMEMBERED:
            # The oldest: all live equally long.
            del self._made[next(iter(self._made))]
        self._made[grant] = made
