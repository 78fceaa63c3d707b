"""Session tokens as bearer, for programs: docs/session-token.md, "Which credential counts"."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from gateway.core.access.opening import OpeningRefused
from gateway.relay.world import BearerRefused
from gateway.session_tokens import SessionTokens
from shared.tokens import LEEWAY_SECONDS, SessionClaims

_MOST_REMEMBERED: Final = 65536


class Bearers:
    """The data path's :class:`gateway.relay.world.BearerGate`.

    A token that was marked as bearer is remembered until ``exp`` + 10 s, so that it costs one
    call of Redis altogether, and is served while Redis is silent.
    """

    def __init__(self, tokens: SessionTokens, *, wall: Callable[[], float]) -> None:
        self._tokens = tokens
        self._wall = wall
        self._marked: dict[str, float] = {}

    def remembered(self, token: str) -> SessionClaims | None:
        """Return the claims of a token that was verified and marked before, while it is good."""
        claims = self._tokens.known(token)
        return claims if claims is not None and claims.jti in self._marked else None

    async def verify(self, token: str, *, address: str) -> SessionClaims:
        """Return the claims of *token*, whose signature and times hold.

        Raises:
            BearerRefused: ``bad_credential`` or ``too_many_checks``.
        """
        try:
            return await self._tokens.verify_again(token, address=address)
        except OpeningRefused as refused:
            raise BearerRefused(refused.code) from refused

    async def mark(self, claims: SessionClaims) -> None:
        """Mark the token as a bearer.

        Raises:
            BearerRefused: ``token_spent``, ``bus_lost`` or ``token_unsure``.
        """
        if claims.jti in self._marked:
            return
        try:
            await self._tokens.mark(claims, "bearer")
        except OpeningRefused as refused:
            raise BearerRefused(refused.code) from refused
        self._remember(claims)

    def _remember(self, claims: SessionClaims) -> None:
        if len(self._marked) >= _MOST_REMEMBERED:
            now = self._wall()
            self._marked = {jti: until for jti, until in self._marked.items() if until > now}
            if len(self._marked) >= _MOST_REMEMBERED:
                del self._marked[next(iter(self._marked))]
        self._marked[claims.jti] = claims.exp + LEEWAY_SECONDS
