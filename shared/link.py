"""Attach tokens and sealed values: what controller, hub and gateways do with the link key.

The link key is shared. A key for each use is derived from it (HKDF, RFC 5869), so that nothing made
for one use is valid for another.

- A gateway attaches to a terminal with an attach token, which lasts ten seconds and which the hub
  accepts once.
- Parts of a route that only gateways may read (a VNC password) are sealed to its session and
  revision.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import jwt
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from shared.errors import SealRefused, TokenRefused
from shared.jose.jws import decode_base64url, encode_base64url, strict_json_object
from shared.tokens import Mode

HUB_AUDIENCE = "fumarole-hub"
ATTACH_SECONDS = 10
_LEEWAY_SECONDS = 5
_NONCE_BYTES = 12


def derive_key(link_key: bytes, use: str) -> bytes:
    """Return the 32 byte key for *use*."""
    return HKDF(SHA256(), 32, None, b"fumarole " + use.encode()).derive(link_key)


# Attaching to the hub


@dataclass(frozen=True, slots=True, kw_only=True)
class AttachGrant:
    """The parts of the user's grant by which revocations name it."""

    jti: str
    kid: str
    issued_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Attach:
    """The verified content of an attach token. ``exp`` is in unix seconds.

    Older gateways send no ``grant``.
    """

    sid: str
    sub: str
    mode: Mode
    jti: str
    exp: float
    grant: AttachGrant | None = None


class AttachTokens:
    """Makes and verifies attach tokens."""

    def __init__(self, link_key: bytes) -> None:
        self._key = derive_key(link_key, "hub attach")

    def make(
        self,
        *,
        sid: str,
        sub: str,
        mode: Mode,
        jti: str,
        now: float,
        grant: AttachGrant | None = None,
    ) -> str:
        """Return a token with which *sub* may attach to the terminal *sid* for ten seconds."""
        claims: dict[str, Any] = {"aud": HUB_AUDIENCE, "sid": sid, "sub": sub, "mode": mode}
        claims["jti"] = jti
        if grant is not None:
            claims["grant"] = {"jti": grant.jti, "kid": grant.kid, "iat": grant.issued_at}
        times = {"iat": int(now), "exp": int(now) + ATTACH_SECONDS}
        return jwt.encode(claims | times, self._key, algorithm="HS256")

    def verify(self, token: str, *, now: float) -> Attach:
        """Return the content of *token*; the caller must accept each ``jti`` only once.

        Raises:
            TokenRefused: If it does not verify, is not for the hub, or is not valid at *now*.
        """
        claims = self._verified(token)
        iat, exp = claims.get("iat"), claims.get("exp")
        if type(iat) is not int or type(exp) is not int or exp - iat > ATTACH_SECONDS:
            raise TokenRefused("claims", "the token has no short life")
        if not iat - _LEEWAY_SECONDS <= now < exp + _LEEWAY_SECONDS:
            raise TokenRefused("expired", "the token's time is over or has not come")
        texts = [claims.get(name) for name in ("sid", "sub", "jti")]
        if not all(isinstance(value, str) and value for value in texts):
            raise TokenRefused("claims", "sid, sub and jti must be given")
        if claims.get("mode") not in ("control", "view"):
            raise TokenRefused("claims", "mode is neither control nor view")
        sid, sub, jti = cast(list[str], texts)
        return Attach(
            sid=sid,
            sub=sub,
            jti=jti,
            mode=claims["mode"],
            exp=exp + _LEEWAY_SECONDS,
            grant=_grant(claims["grant"]) if "grant" in claims else None,
        )

    def _verified(self, token: str) -> dict[str, Any]:
        try:
            payload = jwt.PyJWS().decode(token, self._key, algorithms=["HS256"])
            claims = strict_json_object(payload)
        except (jwt.PyJWTError, ValueError, UnicodeError):
            raise TokenRefused("signature", "the token does not verify") from None
        if claims.get("aud") != HUB_AUDIENCE:
            raise TokenRefused("audience", "the token is not for a hub")
        return claims


def _grant(claim: object) -> AttachGrant:
    match claim:
        case {"jti": str(jti), "kid": str(kid), "iat": int() | float() as issued_at}:
            # The JSON reader refuses NaN; bool is a subclass of int.
            if jti and kid and not isinstance(issued_at, bool):
                return AttachGrant(jti=jti, kid=kid, issued_at=float(issued_at))
    raise TokenRefused("claims", "the grant has no jti, kid and iat")


# Sealing


class Seal:
    """Encrypts values in a route, so that only controller and gateways can read them (AES-256-GCM).

    The text is base64url of a 12-byte nonce and the ciphertext of a JSON object. It can be opened
    only with the ``sid`` and ``rev`` that it was sealed to.

    Args:
        link_keys: The first key seals, and every key opens; there are two during a rotation.
    """

    def __init__(self, *link_keys: bytes) -> None:
        self._ciphers = [AESGCM(derive_key(key, "sealed route")) for key in link_keys]

    def seal(
        self, secrets: Mapping[str, str], *, sid: str, rev: int, random: Callable[[int], bytes]
    ) -> str:
        """Return *secrets* encrypted for :meth:`open`."""
        nonce = random(_NONCE_BYTES)
        plain = json.dumps(dict(secrets)).encode()
        return encode_base64url(nonce + self._ciphers[0].encrypt(nonce, plain, _bound_to(sid, rev)))

    def open(self, sealed: str, *, sid: str, rev: int) -> dict[str, str]:
        """Return the secrets that were sealed to *sid* and *rev*.

        Raises:
            SealRefused: If *sealed* is damaged or was sealed to something else.
        """
        for cipher in self._ciphers:
            try:
                data = decode_base64url(sealed)
                nonce, text = data[:_NONCE_BYTES], data[_NONCE_BYTES:]
                secrets = strict_json_object(cipher.decrypt(nonce, text, _bound_to(sid, rev)))
            except (ValueError, InvalidTag):
                continue
            return {name: value for name, value in secrets.items() if isinstance(value, str)}
        raise SealRefused("the sealed text was not made for this route")


def _bound_to(sid: str, rev: int) -> bytes:
    return f"fumarole:sealed:{sid}:{rev}".encode()
