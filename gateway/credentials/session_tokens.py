"""Verifies session tokens with the issuer's keys, and marks them as used in Redis.

Opening a session and bearer use (docs/session-token.md, "Which credential counts") share the
checks. They differ in the mark that they set and in the earlier marks that they accept.

A signature check costs more than anything else that an unauthenticated client can cause. A few a
second run on the loop. Checks beyond that rate, of one address or of all, wait in a bounded queue
for one thread, so that the loop goes on serving and floods of tokens delay each other only.
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
from shared.bounded import BoundedDict
from shared.bus import BusReader, Mark
from shared.errors import BusUnavailable, TokenRefused
from shared.events import Head
from shared.jose.jwks import KeySource
from shared.jose.jws import VerificationKey
from shared.routes.table import RouteTable
from shared.tokens import LEEWAY_SECONDS, Peek, SessionClaims, peek, verify_session_token

T = TypeVar("T")
Use = Literal["open", "bearer"]

_ALL: Final = "all"
_MOST_VERIFIED: Final = 4096
_MOST_MARKED: Final = 65536


class SignatureChecks:
    """Runs signature checks, on the loop or in a thread.

    Args:
        of_address: Checks per second that run on the loop for one address (IPv6: one /64).
        of_all: Checks per second that run on the loop for all addresses that exceed theirs.
        queued: The maximum number of checks that wait for the thread.
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
        """The number of checks that had to wait, so far."""
        self.refused = 0

    def tidy(self) -> None:
        """Forget addresses that have been idle for long."""
        self._of_address.tidy()

    async def run(self, check: Callable[[], T], *, address: str) -> T:
        """Run *check* for a client at *address*; return its result.

        Raises:
            OpeningRefused: ``too_many_checks`` if the queue is full; *check* has not run.
        """
        if not (self._of_address.take(limit_key(address)) or self._of_all.take(_ALL)):
            return check()
        if self.waiting >= self._most:
            self.refused += 1
            raise OpeningRefused("too_many_checks")
        self.waiting += 1
        self.queued += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._thread, check)
        finally:
            self.waiting -= 1

    def close(self) -> None:
        """Stop the thread; checks that wait are cancelled."""
        self._thread.shutdown(wait=False, cancel_futures=True)


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class SessionTokens:
    """Verifies session tokens, and enforces that each opens a session once."""

    keys: KeySource
    issuer: str
    """The only accepted ``iss``."""
    reader: BusReader
    follower: Follower
    wall: Callable[[], float]
    checks: SignatureChecks

    def peek(self, token: str, *, sid: str) -> Peek:
        """Return the unverified claims of *token*, which must name *sid*.

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

    async def verify(
        self, token: str | Peek, *, address: str
    ) -> tuple[SessionClaims, VerificationKey]:
        """Return the claims of a token that is valid now, and the issuer's key that signed it.

        Args:
            token: The token.
            address: The client's address, for the rate limit of signature checks.

        Raises:
            OpeningRefused: ``bad_credential`` or ``too_many_checks``.
        """
        try:
            peeked = peek(token) if isinstance(token, str) else token
            # A snapshot of the keys, which may be replaced while the check is queued.
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

    def table(self) -> RouteTable:
        """Return the table in use, if tokens may be marked as used now.

        Raises:
            OpeningRefused: ``bus_lost``.
        """
        table = self.follower.table
        if table is None or not self.follower.opening:
            raise OpeningRefused("bus_lost")
        return table

    async def mark(self, claims: SessionClaims, use: Use) -> None:
        """Mark the token as used for *use*; call it after all other checks.

        Raises:
            OpeningRefused: ``token_spent`` if an earlier use excludes this one; ``token_unsure``
                or ``bus_lost`` if earlier uses cannot be known.
        """
        check_since(claims, self.table().since)
        await self._reach_epoch(self.follower.catch_up.wanted)
        mark = await self._mark(claims, use)
        await self._reach_epoch(mark.head)
        check_head(mark.head, self.table())
        check_since(claims, mark.head.since if mark.head is not None else None)
        if not mark.sure:
            # Another Redis process than the one on which the epoch began: it may have lost marks,
            # and the publisher has not noticed yet.
            raise OpeningRefused("token_unsure")
        if mark.before is not None and (use, mark.before) != ("bearer", "bearer"):
            raise OpeningRefused("token_spent")

    async def _reach_epoch(self, head: Head | None) -> None:
        """Wait for the table of another epoch, which the publisher has just begun."""
        if head is not None and head.epoch != self.table().epoch:
            await self.follower.repair()
            check_head(head, self.table())

    async def _mark(self, claims: SessionClaims, use: Use) -> Mark:
        try:
            return await self.reader.mark_used(
                claims.jti, use, kept_until=claims.exp + USED_KEPT_SECONDS, now=self.wall()
            )
        except BusUnavailable as error:
            raise OpeningRefused("bus_lost") from error


@dataclass(slots=True, eq=False, repr=False)
class BearerTokens:
    """Verifies session tokens that are sent as bearer tokens, and marks them as such.

    Clients send the same bearer token with every request. Verified tokens are cached, since a
    signature check costs more than the rest of a request. Marked tokens are remembered, the last
    65,536: each costs one Redis call in all, and is served while Redis does not respond.
    """

    tokens: SessionTokens
    _verified: BoundedDict[str, tuple[SessionClaims, VerificationKey]] = field(
        init=False, default_factory=lambda: BoundedDict(_MOST_VERIFIED)
    )
    _marked: BoundedDict[str, None] = field(
        init=False, default_factory=lambda: BoundedDict(_MOST_MARKED)
    )

    def remembered(self, token: str) -> SessionClaims | None:
        """Return the claims of a token that was verified and marked before, while it is valid."""
        claims = self._cached(token)
        return claims if claims is not None and claims.jti in self._marked else None

    def _cached(self, token: str) -> SessionClaims | None:
        """Return the cached claims of *token* while its key is in use and it has not expired."""
        cached = self._verified.get(token)
        if cached is None:
            return None
        claims, key = cached
        tokens = self.tokens
        if tokens.keys.keys.get(claims.kid) is key and tokens.wall() < claims.exp + LEEWAY_SECONDS:
            return claims
        del self._verified[token]
        return None

    async def verify(self, token: str, *, address: str) -> SessionClaims:
        """As :meth:`SessionTokens.verify`, from the cache if possible."""
        claims = self._cached(token)
        if claims is not None:
            return claims
        claims, key = await self.tokens.verify(token, address=address)
        self._verified[token] = (claims, key)
        return claims

    async def mark(self, claims: SessionClaims) -> None:
        """Mark the token as a bearer token; call it last, so that a refusal does not spend it.

        Raises:
            OpeningRefused: As :meth:`SessionTokens.mark` does.
        """
        if claims.jti in self._marked:
            return
        await self.tokens.mark(claims, "bearer")
        self._marked[claims.jti] = None
