"""Verifies the tokens that the orchestrator issues.

A session token opens one session at a gateway. A service token lets the orchestrator call the
controller. Keys and the time are arguments. The contract is docs/session-token.md.
"""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, cast

from shared.errors import TokenRefused
from shared.jose.jws import (
    Unverified,
    VerificationKey,
    read_unverified,
    strict_json_object,
    verify_signature,
)
from shared.routes.route import Kind

SESSION_AUDIENCE = "fumarole-gateway"
SERVICE_AUDIENCE = "fumarole-controller"
LEEWAY_SECONDS = 10
MAX_OPENING_SECONDS = 3600
LONGEST_SERVICE_SECONDS = 3600.0
"""The default limit for the lifetime of a service token."""
DEFAULT_MAX_AGE_SECONDS = 43200
LONGEST_MAX_AGE_SECONDS = 86400
_LATEST_TIME = 2**53

Mode = Literal["control", "view"]

_SID = re.compile(r"[a-z2-7]{26}", re.ASCII)
_VISIBLE = re.compile(r"[!-~]{1,128}", re.ASCII)
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\ud800-\udfff]")
_NAME_LENGTH = 255


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionClaims:
    """The claims of a verified session token. Times are unix seconds, ``max_age`` is in seconds.

    ``issued_at`` is the earlier of ``iat`` and the time of verification. A revocation of a user
    ends grants issued up to it, and an issuer's clock that is ahead must not evade that.
    """

    sub: str
    name: str | None
    iat: int
    exp: int
    jti: str
    sid: str
    job: str
    rank: int
    kind: Kind
    mode: Mode
    max_age: int
    kid: str
    issued_at: float

    def grant_ends_at(self, now: float) -> float:
        """Return when a grant made at *now* ends: ``max_age`` after *now* or ``iat`` if earlier."""
        return min(float(self.iat), now) + self.max_age


@dataclass(frozen=True, slots=True)
class Peek:
    """Unverified claims of a token, for cheap refusals before its signature is checked."""

    kid: str
    sid: str
    parts: Unverified


def peek(token: str) -> Peek:
    """Return the unverified claims of *token*.

    Raises:
        TokenRefused: ``malformed``, ``header`` or ``claims``.
    """
    parts = read_unverified(token)
    claims = _claims(parts)
    sid = claims.get("sid")
    if not isinstance(sid, str) or not _SID.fullmatch(sid):
        raise TokenRefused("claims", "sid is not a session identifier")
    return Peek(parts.kid, sid, parts)


def names_audience(token: str, audience: str) -> bool:
    """Return whether *token* is a JWT whose payload names *audience*, verified or not.

    If this is false, an ``Authorization`` field belongs to the app.
    """
    try:
        parts = token.split(".")
        if len(parts) != 3:
            return False
        claims = _loose_claims(parts[1])
    except (ValueError, RecursionError):
        return False
    named = claims.get("aud")
    return named == audience or (isinstance(named, list) and audience in named)


def verify_session_token(
    token: str | Peek, *, keys: Mapping[str, VerificationKey], issuer: str, now: float
) -> SessionClaims:
    """Return the claims of *token* if one of *keys* signed it and it is valid at *now*.

    Args:
        token: The compact JWS, or what :func:`peek` returned for it.
        keys: The issuer's keys by ``kid``.
        issuer: The only accepted ``iss``.
        now: Unix seconds.

    Raises:
        TokenRefused: With one of the reasons ``malformed``, ``header``, ``kid``, ``algorithm``,
            ``signature``, ``claims``, ``issuer``, ``audience``, ``early`` and ``expired``.
    """
    parts = token.parts if isinstance(token, Peek) else read_unverified(token)
    verify_signature(parts, keys)
    claims = _claims(parts)
    _check_issued(claims, issuer=issuer, audience=SESSION_AUDIENCE)
    iat, exp = _check_times(claims, now)
    if exp - iat > MAX_OPENING_SECONDS:
        raise TokenRefused("claims", f"exp is more than {MAX_OPENING_SECONDS} s after iat")
    return SessionClaims(
        sub=_text(claims, "sub"),
        name=_text(claims, "name") if claims.get("name") is not None else None,
        iat=iat,
        exp=exp,
        jti=_matching(claims, "jti", _VISIBLE),
        sid=_matching(claims, "sid", _SID),
        job=_text(claims, "job"),
        rank=_integer(claims, "rank", 0, 2**31),
        kind=cast(Kind, _one_of(claims, "kind", ("web", "vnc", "terminal"))),
        mode=cast(Mode, _one_of(claims, "mode", ("control", "view"), "control")),
        max_age=_integer(claims, "max_age", 1, LONGEST_MAX_AGE_SECONDS, DEFAULT_MAX_AGE_SECONDS),
        kid=parts.kid,
        issued_at=min(float(iat), now),
    )


def verify_service_token(
    token: str,
    *,
    keys: Mapping[str, VerificationKey],
    issuer: str,
    now: float,
    longest_seconds: float = LONGEST_SERVICE_SECONDS,
) -> str:
    """Return the ``sub`` (``""`` without one) of a service token that is valid at *now*.

    Args:
        token: The compact JWS.
        keys: The issuer's keys by ``kid``.
        issuer: The only accepted ``iss``.
        now: Unix seconds.
        longest_seconds: The limit for ``exp`` - ``iat``, so that a stolen token expires.

    Raises:
        TokenRefused: As :func:`verify_session_token`.
    """
    parts = read_unverified(token)
    verify_signature(parts, keys)
    claims = _claims(parts)
    _check_issued(claims, issuer=issuer, audience=SERVICE_AUDIENCE)
    iat, exp = _check_times(claims, now)
    if exp - iat > longest_seconds:
        raise TokenRefused("claims", f"exp is more than {longest_seconds:g} s after iat")
    return _text(claims, "sub") if "sub" in claims else ""


# Claims


def _claims(parts: Unverified) -> dict[str, Any]:
    try:
        return strict_json_object(parts.payload)
    except ValueError as error:
        raise TokenRefused("malformed", f"the token's payload is malformed: {error}") from None


def _loose_claims(segment: str) -> dict[str, Any]:
    # Lenient: even a badly encoded token with this audience is meant for Fumarole.
    claims = json.loads(base64.urlsafe_b64decode(segment + "=" * (-len(segment) % 4)))
    return claims if isinstance(claims, dict) else {}


def _check_issued(claims: Mapping[str, Any], *, issuer: str, audience: str) -> None:
    if claims.get("iss") != issuer:
        raise TokenRefused("issuer", "the token is from another issuer")
    if claims.get("aud") not in (audience, [audience]):
        raise TokenRefused("audience", f"the token is not for {audience} alone")


def _check_times(claims: Mapping[str, Any], now: float) -> tuple[int, int]:
    iat = _integer(claims, "iat", 0, _LATEST_TIME)
    exp = _integer(claims, "exp", 0, _LATEST_TIME)
    nbf = _integer(claims, "nbf", 0, _LATEST_TIME, iat)
    if exp < iat:
        raise TokenRefused("claims", "exp is before iat")
    if now >= exp + LEEWAY_SECONDS:
        raise TokenRefused("expired", "the token has expired")
    if now < max(iat, nbf) - LEEWAY_SECONDS:
        raise TokenRefused("early", "the token is not valid yet")
    return iat, exp


def _integer(
    claims: Mapping[str, Any], name: str, least: int, most: int, default: int | None = None
) -> int:
    value = claims.get(name, default)
    if type(value) is not int or not least <= value <= most:
        raise TokenRefused("claims", f"{name} is not an integer from {least} to {most}")
    return value


def _text(claims: Mapping[str, Any], name: str) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not 1 <= len(value) <= _NAME_LENGTH or _CONTROL.search(value):
        raise TokenRefused(
            "claims", f"{name} is not text of 1 to {_NAME_LENGTH} characters without control ones"
        )
    return value


def _matching(claims: Mapping[str, Any], name: str, pattern: re.Pattern[str]) -> str:
    value = claims.get(name)
    if not isinstance(value, str) or not pattern.fullmatch(value):
        raise TokenRefused("claims", f"{name} is missing or malformed")
    return value


def _one_of(
    claims: Mapping[str, Any], name: str, values: tuple[str, ...], default: str | None = None
) -> str:
    value = claims.get(name, default)
    if not isinstance(value, str) or value not in values:
        raise TokenRefused("claims", f"{name} is not one of {', '.join(values)}")
    return value
