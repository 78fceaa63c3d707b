"""The two kinds of tokens that an orchestrator signs."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

import jwt

from deploy.local.orchestrator.keys import SigningKey

# Long enough for a slow browser, too short to be worth stealing. It works only once anyway.
OPENING_SECONDS = 60
SERVICE_SECONDS = 60
# How long an opened session may last before its user has to return to the orchestrator.
SESSION_SECONDS = 12 * 3600


class Tokens:
    """Signs tokens of one issuer."""

    def __init__(self, key: SigningKey, issuer: str) -> None:
        self._key = key
        self._issuer = issuer

    def for_controller(self, now: float) -> str:
        """Return a token with which this orchestrator can call the controller for a minute."""
        return self._sign(
            {"aud": "fumarole-controller", "sub": "orchestrator"}, now, SERVICE_SECONDS
        )

    def for_session(self, session: Mapping[str, Any], *, user: str, now: float) -> str:
        """Return a token with which *user* opens *session*: once, within a minute.

        Call this only after you have decided that the user may open it. The gateway makes no check
        of its own.
        """
        claims = {
            "aud": "fumarole-gateway",
            "sub": user,
            "jti": secrets.token_urlsafe(16),
            "sid": session["sid"],
            "job": session["job"],
            "rank": session["rank"],
            "kind": session["kind"],
            "mode": "control",
            "max_age": SESSION_SECONDS,
        }
        return self._sign(claims, now, OPENING_SECONDS)

    def _sign(self, claims: dict[str, Any], now: float, seconds: int) -> str:
        times = {"iss": self._issuer, "iat": int(now), "exp": int(now) + seconds}
        headers = {"kid": self._key.kid}
        return jwt.encode(claims | times, self._key.private, algorithm="EdDSA", headers=headers)
