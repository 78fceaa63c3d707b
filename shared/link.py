"""What controller, hub and gateways prove to and hide from each other with the link key.

One key is shared, and from it one is derived for each use (HKDF, RFC 5869), so that nothing made
for one use passes for another.

- A gateway attaches to a terminal with a token of ten seconds that the hub takes once.
- What only gateways may read of a route (a VNC password) is sealed to its session and revision.
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
    """The grant by which somebody attaches, as far as revocations name it."""

    jti: str
    kid: str
    issued_at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Attach:
    """Who attaches to which terminal, and how. ``exp`` is in unix seconds.

    Gateways of before tell no ``grant``.
    """

    sid: str
    sub: str
    mode: Mode
    jti: str
    exp: float
    grant: AttachGrant | None = None


class AttachTokens:
    """Makes and verifies the tokens by which gateways attach to terminals."""

    __slots__ = ("_key",)

    def __init__(self, link_key: bytes) -> None:
        self._key = derive_key(link_key, "hub attach")

    def __repr__(self) -> str:
        return "AttachTokens(…)"

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
        """Return a token that attaches *sub* to the terminal *sid* within ten seconds."""
        claims: dict[str, Any] = {"aud": HUB_AUDIENCE, "sid": sid, "sub": sub, "mode": mode}
        claims["jti"] = jti
        if grant is not None:
            claims["grant"] = {"jti": grant.jti, "kid": grant.kid, "iat": grant.issued_at}
        times = {"iat": int(now), "exp": int(now) + ATTACH_SECONDS}
        return jwt.encode(claims | times, self._key, algorithm="HS256")

    def verify(self, token: str, *, now: float) -> Attach:
        """Return what *token* allows at *now*; that it is used once is the caller's to see to.

        Raises:
            TokenRefused: If it does not verify, is not for the hub, or its time is over.
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
            # JSON has no NaN here, and a bool is an int that is none.
            if jti and kid and not isinstance(issued_at, bool):
                return AttachGrant(jti=jti, kid=kid, issued_at=float(issued_at))
    raise TokenRefused("claims", "the grant has no jti, kid and iat")


# Sealing


class Seal:
    """Hides values in a route from everybody but controller and gateways (AES-256-GCM).

    The text is base64url of a 12 byte nonce and the ciphertext of a JSON object; it can be opened
    only with the ``sid`` and ``rev`` that it was sealed to.

    Args:
        link_keys: The first seals, each opens: while a key is rotated there are two.
    """

    __slots__ = ("_ciphers",)

    def __init__(self, *link_keys: bytes) -> None:
        self._ciphers = [AESGCM(derive_key(key, "sealed route")) for key in link_keys]

    def __repr__(self) -> str:
        return "Seal(…)"

    def seal(
        self, secrets: Mapping[str, str], *, sid: str, rev: int, random: Callable[[int], bytes]
    ) -> str:
        """Return *secrets* as only :meth:`open` can read them."""
        nonce = random(_NONCE_BYTES)
        plain = json.dumps(dict(secrets)).encode()
        return encode_base64url(nonce + self._ciphers[0].encrypt(nonce, plain, _bound_to(sid, rev)))

    def open(self, sealed: str, *, sid: str, rev: int) -> dict[str, str]:
        """Return what was sealed to *sid* and *rev*.

        Raises:
            SealRefused: If it was not, or is damaged.
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
