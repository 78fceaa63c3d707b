"""Session tokens at a running gateway: verified with the issuer's keys, marked as used in Redis.

Opening and bearer (docs/session-token.md, "Which credential counts") use the same checks. What
differs is only which mark they set, and what they make of one that was there before.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, Literal

from gateway.bus.follower import Follower
from gateway.checking import Checks, TooManyChecks
from gateway.core.access.opening import (
    USED_KEPT_SECONDS,
    OpeningRefused,
    check_head,
    check_since,
)
from shared.bus import BusReader, Mark
from shared.errors import BusUnavailable, TokenRefused
from shared.jose.jwks import KeySource
from shared.jose.jws import VerificationKey
from shared.routes import RouteTable
from shared.tokens import LEEWAY_SECONDS, Peek, SessionClaims, peek, verify_session_token

_REMEMBERED: Final = 4096
_MOST_MARKED: Final = 65536

Use = Literal["open", "bearer"]


class SessionTokens:
    """Verifies session tokens and sees to it that each opens once.

    Args:
        keys: The issuer's keys.
        issuer: The only accepted ``iss``.
        reader: Marks tokens as used.
        follower: Says whether the bus can be believed.
        wall: Unix seconds.
        checks: Makes signature checks.
    """

    def __init__(
        self,
        *,
        keys: KeySource,
        issuer: str,
        reader: BusReader,
        follower: Follower,
        wall: Callable[[], float],
        checks: Checks,
    ) -> None:
        self._checks = checks
        self._keys = keys
        self._issuer = issuer
        self._reader = reader
        self._follower = follower
        self._wall = wall
        self._verified: dict[str, tuple[SessionClaims, VerificationKey]] = {}

    def peek(self, token: str, *, sid: str) -> Peek:
        """Return what *token* says of itself, if that is *sid*.

        Raises:
            OpeningRefused: ``bad_credential`` or ``other_session``.
        """
        try:
            peeked = peek(token)
        except TokenRefused as error:
            raise OpeningRefused("bad_credential") from error
        if peeked.sid != sid:
            raise OpeningRefused("other_session")
        return peeked

    async def verify(self, token: str | Peek, *, address: str) -> SessionClaims:
        """Return the claims of a token that was signed by the issuer and is good now.

        Args:
            token: What a client at *address* sent.
            address: By what its checks are counted.

        Raises:
            OpeningRefused: ``bad_credential`` or ``too_many_checks``.
        """
        claims, _ = await self._verify(token, address=address)
        return claims

    async def _verify(
        self, token: str | Peek, *, address: str
    ) -> tuple[SessionClaims, VerificationKey]:
        """Return the claims, and the key that proved them."""
        try:
            peeked = peek(token) if isinstance(token, str) else token
            # The keys as they are now: others may come while the check waits for its turn.
            keys = await self._keys.keys_for(peeked.kid)
            claims = await self._checks.run(
                lambda: verify_session_token(
                    peeked, keys=keys, issuer=self._issuer, now=self._wall()
                ),
                address=address,
            )
            return claims, keys[claims.kid]
        except TokenRefused as error:
            raise OpeningRefused("bad_credential") from error
        except TooManyChecks as error:
            raise OpeningRefused("too_many_checks") from error

    def known(self, token: str) -> SessionClaims | None:
        """Return what :meth:`verify_again` verified before, if nothing can have changed since."""
        known = self._verified.get(token)
        if known is None:
            return None
        claims, key = known
        if self._keys.keys.get(claims.kid) is key and self._wall() < claims.exp + LEEWAY_SECONDS:
            return claims
        del self._verified[token]
        return None

    async def verify_again(self, token: str, *, address: str) -> SessionClaims:
        """Return what :meth:`verify` would, from memory where nothing can have changed.

        Programs send the same bearer with every request; a signature costs more than the rest.
        """
        claims = self.known(token)
        if claims is not None:
            return claims
        claims, key = await self._verify(token, address=address)
        if len(self._verified) >= _REMEMBERED:
            del self._verified[next(iter(self._verified))]
        self._verified[token] = (claims, key)
        return claims

    def table(self) -> RouteTable:
        """Return the table in use, if tokens may be used up now.

        Raises:
            OpeningRefused: ``bus_lost``.
        """
        table = self._follower.table
        if table is None or not self._follower.opening:
            raise OpeningRefused("bus_lost")
        return table

    async def mark(self, claims: SessionClaims, use: Use) -> None:
        """Mark the token as used, if it may be used so; the last of all checks.

        Raises:
            OpeningRefused: ``token_spent``; ``token_unsure`` or ``bus_lost`` where it cannot be
                known whether it was.
        """
        check_since(claims, self.table().since)
        mark = await self._mark(claims, use)
        if mark.head is not None and mark.head.epoch != self.table().epoch:
            # The publisher began another epoch just now: its table is a moment away.
            await self._follower.repair()
        check_head(mark.head, self.table())
        check_since(claims, mark.head.since if mark.head is not None else None)
        if not mark.sure:
            # Another process than the one on which the epoch began: it may have lost marks, and
            # the publisher has not noticed yet.
            raise OpeningRefused("token_unsure")
        if mark.before is not None and (use, mark.before) != ("bearer", "bearer"):
            raise OpeningRefused("token_spent")

    async def _mark(self, claims: SessionClaims, use: Use) -> Mark:
        try:
            return await self._reader.mark_used(
                claims.jti, use, kept_until=claims.exp + USED_KEPT_SECONDS, now=self._wall()
            )
        except BusUnavailable as error:
            raise OpeningRefused("bus_lost") from error


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
        """Return the claims of *token*; see :meth:`SessionTokens.verify_again`."""
        return await self._tokens.verify_again(token, address=address)

    async def mark(self, claims: SessionClaims) -> None:
        """Mark the token as a bearer; see :meth:`SessionTokens.mark`."""
        if claims.jti in self._marked:
            return
        await self._tokens.mark(claims, "bearer")
        self._remember(claims)

    def _remember(self, claims: SessionClaims) -> None:
        if len(self._marked) >= _MOST_MARKED:
            now = self._wall()
            self._marked = {jti: until for jti, until in self._marked.items() if until > now}
            if len(self._marked) >= _MOST_MARKED:
                del self._marked[next(iter(self._marked))]
        self._marked[claims.jti] = claims.exp + LEEWAY_SECONDS
