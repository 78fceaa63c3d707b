"""Attach tokens, of which each is accepted once, and revoked grants.

The gateway closes a revoked user's connection. But the user's input stays in the shell (a function
named ``sudo``, say), which others share. So the hub must know of revocations too.
"""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from controller.store.sessions.revocations import StoredRevocation
from shared.errors import TokenRefused
from shared.link import ATTACH_SECONDS, Attach, AttachTokens

MOST_REMEMBERED: Final = 100_000


class TokenSpent(Exception):
    """The token was used before."""


class TooManyTokens(Exception):
    """More tokens arrived within their lifetime than can be remembered, so none is accepted."""


class Claims:
    """Verifies attach tokens, and accepts each ``jti`` once until it expires.

    Args:
        link_keys: The keys, each of which verifies: during a rotation there are two.
        clock: Unix seconds.
        most: The most tokens that are remembered at a time.
    """

    __slots__ = ("_clock", "_ends", "_most", "_taken", "_tokens")

    def __init__(
        self,
        link_keys: Sequence[bytes],
        *,
        clock: Callable[[], float],
        most: int = MOST_REMEMBERED,
    ) -> None:
        self._tokens = [AttachTokens(key) for key in link_keys]
        self._clock = clock
        self._most = most
        self._taken: set[str] = set()
        self._ends: list[tuple[float, str]] = []

    def verify(self, token: str) -> Attach:
        """Return the claims of *token*, without spending it.

        Raises:
            TokenRefused: If it does not verify, or has expired.
        """
        now = self._clock()
        for tokens in self._tokens[:-1]:
            with contextlib.suppress(TokenRefused):
                return tokens.verify(token, now=now)
        return self._tokens[-1].verify(token, now=now)

    def take(self, attach: Attach) -> None:
        """Spend the token, so that it cannot be used again.

        Raises:
            TokenSpent: If it was used before.
            TooManyTokens: If it cannot be remembered.
        """
        self._forget()
        if attach.jti in self._taken:
            raise TokenSpent
        if len(self._taken) >= self._most:
            raise TooManyTokens
        self._taken.add(attach.jti)
        heapq.heappush(self._ends, (attach.exp, attach.jti))

    def _forget(self) -> None:
        now = self._clock()
        while self._ends and self._ends[0][0] <= now:
            self._taken.discard(heapq.heappop(self._ends)[1])


@dataclass(frozen=True, slots=True)
class Holder:
    """The grant of an attached client. ``jti`` and ``kid`` are None if the gateway sent none."""

    sub: str
    jti: str | None
    kid: str | None
    issued_at: float


def holder_of(attach: Attach) -> Holder:
    """Return the grant that *attach* was made from.

    A gateway of an earlier version sends no grant. Then the attach token counts as the grant:
    revocations of a user or of everybody apply to it, those of a single grant do not.
    """
    grant = attach.grant
    if grant is None:
        return Holder(attach.sub, None, None, attach.exp - ATTACH_SECONDS)
    return Holder(attach.sub, grant.jti, grant.kid, grant.issued_at)


class Revocations:
    """The revocations that a grant could outlive."""

    __slots__ = ("_at",)

    def __init__(self) -> None:
        self._at: dict[str, StoredRevocation] = {}

    def take(self, revocations: Iterable[StoredRevocation]) -> bool:
        """Add *revocations*; return whether any of them is new."""
        new = False
        for one in revocations:
            known = self._at.get(one.member)
            if known is None or known.at < one.at:
                self._at[one.member] = one
                new = True
        return new

    def forget(self, now: float) -> None:
        """Drop revocations that no grant can outlive."""
        for member in [name for name, one in self._at.items() if one.score < now]:
            del self._at[member]

    def cover(self, sid: str, holder: Holder) -> bool:
        """Return whether *holder*'s grant to *sid* was revoked; see ``RouteTable.is_revoked``."""
        has_grant = holder.jti is not None
        if has_grant and (f"jti:{holder.jti}" in self._at or f"kid:{holder.kid}" in self._at):
            return True
        by_user = (self._at.get(f"sub:{sid}:{holder.sub}"), self._at.get(f"all:{sid}"))
        return any(one is not None and holder.issued_at <= one.at for one in by_user)
