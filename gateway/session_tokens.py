"""Session tokens at a running gateway: verified with the issuer's keys, marked as used in Redis.

Opening and bearer (docs/session-token.md, "Which credential counts") use the same checks. What
differs is only which mark they set, and what they make of one that was there before.

Signature checks cost more than anything else that a stranger can ask for. A few a second are made
at once. Whatever is beyond that, of one address or of all, waits in a bounded queue for a thread of
its own: the loop goes on serving, and those who send tokens by the thousand wait for each other.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final, Literal, TypeVar

from gateway.bus.follower import Follower
from gateway.core.access.opening import USED_KEPT_SECONDS, OpeningRefused, check_head, check_since
from gateway.core.limits.addresses import limit_key
from gateway.core.limits.rates import Rate
from shared.bus import BusReader, Mark
from shared.errors import BusUnavailable, TokenRefused
from shared.jose.jwks import KeySource
from shared.jose.jws import VerificationKey
from shared.routes.table import RouteTable
from shared.tokens import LEEWAY_SECONDS, Peek, SessionClaims, peek, verify_session_token

T = TypeVar("T")
_ALL = "all"


class TooManyChecks(Exception):
    """The queue is full."""


class Checks:
    """Makes signature checks.

    Args:
        of_address: Made at once for one address (IPv6: one /64) in a second.
        of_all: Made at once for all addresses in a second.
        queued: How many may wait for the thread.
    """

    def __init__(
        self, *, of_address: int, of_all: int, queued: int, clock: Callable[[], float]
    ) -> None:
        self._of_address = Rate(of_address, 1.0, clock=clock)
        self._of_all = Rate(of_all, 1.0, clock=clock)
        self._most = queued
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="checks")
        self.waiting = 0
        self.queued = 0
        """How many had to wait, so far."""
        self.refused = 0

    def tidy(self) -> None:
        """Forget addresses that were idle for long."""
        self._of_address.tidy()

    async def run(self, check: Callable[[], T], *, address: str) -> T:
        """Return what *check* returns, made for a client at *address*.

        Raises:
            TooManyChecks: It was not made.
        """
        if not (self._of_address.take(limit_key(address)) or self._of_all.take(_ALL)):
            return check()
        if self.waiting >= self._most:
            self.refused += 1
            raise TooManyChecks
        self.waiting += 1
        self.queued += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, check)
        finally:
            self.waiting -= 1

    def close(self) -> None:
        """Make no more checks; those that wait are cancelled."""
        self._thread.shutdown(wait=False, cancel_futures=True)


_REMEMBERED: Final = 4096
_MOST_MARKED: Final = 65536

Use = Literal["open", "bearer"]


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class SessionTokens:
    """Verifies session tokens and sees to it that each opens once."""

    keys: KeySource
    issuer: str
    """The only accepted ``iss``."""
    reader: BusReader
    follower: Follower
    wall: Callable[[], float]
    checks: Checks
    _verified: dict[str, tuple[SessionClaims, VerificationKey]] = field(
        init=False, default_factory=dict
    )

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
            keys = await self.keys.keys_for(peeked.kid)
            claims = await self.checks.run(
                lambda: verify_session_token(
                    peeked, keys=keys, issuer=self.issuer, now=self.wall()
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
        if self.keys.keys.get(claims.kid) is key and self.wall() < claims.exp + LEEWAY_SECONDS:
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
        table = self.follower.table
        if table is None or not self.follower.opening:
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
            await self.follower.repair()
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
            return await self.reader.mark_used(
                claims.jti, use, kept_until=claims.exp + USED_KEPT_SECONDS, now=self.wall()
            )
        except BusUnavailable as error:
            raise OpeningRefused("bus_lost") from error


@dataclass(slots=True, eq=False, repr=False)
class Bearers:
    """Verifies session tokens that are used as bearer, and marks them as used so.

    A token that was marked as bearer is remembered until ``exp`` + 10 s, so that it costs one
    call of Redis altogether, and is served while Redis is silent.
    """

    tokens: SessionTokens
    wall: Callable[[], float]
    _marked: dict[str, float] = field(init=False, default_factory=dict)

    def remembered(self, token: str) -> SessionClaims | None:
        """Return the claims of a token that was verified and marked before, while it is good."""
        claims = self.tokens.known(token)
        return claims if claims is not None and claims.jti in self._marked else None

    async def verify(self, token: str, *, address: str) -> SessionClaims:
        """Return the claims of *token*; see :meth:`SessionTokens.verify_again`, and its errors."""
        return await self.tokens.verify_again(token, address=address)

    async def mark(self, claims: SessionClaims) -> None:
        """Mark the token as a bearer; the last check, so that no refused try costs a link.

        Raises:
            OpeningRefused: As :meth:`SessionTokens.mark` does.
        """
        if claims.jti in self._marked:
            return
        await self.tokens.mark(claims, "bearer")
        self._remember(claims)

    def _remember(self, claims: SessionClaims) -> None:
        if len(self._marked) >= _MOST_MARKED:
            now = self.wall()
            self._marked = {jti: until for jti, until in self._marked.items() if until > now}
            if len(self._marked) >= _MOST_MARKED:
                del self._marked[next(iter(self._marked))]
        self._marked[claims.jti] = claims.exp + LEEWAY_SECONDS
