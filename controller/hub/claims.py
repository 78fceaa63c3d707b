"""Which attach tokens are taken, each once before it ends, and whose grants have been revoked.

The gateway ends a revoked user's connection. The user's typed text stays in the shell (a
function named ``sudo``, say), which others share: so the hub must know of revocations, too.
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
    """The token was taken before."""


class TooManyTokens(Exception):
    """More tokens came in their few seconds than can be remembered: nothing is taken on trust."""


class Claims:
    """Verifies attach tokens and takes each once, by its ``jti``, until it has expired.

    Args:
        link_keys: Each verifies: while a key is rotated there are two.
        clock: Unix seconds.
        most: How many tokens are remembered at a time.
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
        """Return what *token* allows; it is not taken yet.

        Raises:
            TokenRefused: If it does not verify, or its time is over.
        """
        now = self._clock()
        for tokens in self._tokens[:-1]:
            with contextlib.suppress(TokenRefused):
                return tokens.verify(token, now=now)
        return self._tokens[-1].verify(token, now=now)

    def take(self, attach: Attach) -> None:
        """Take the token; nobody can take it again.

        Raises:
            TokenSpent: If somebody has.
            TooManyTokens: If it could not be remembered.
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
    """By whose grant a client is attached. ``jti`` and ``kid`` are None where none was told."""

    sub: str
    jti: str | None
    kid: str | None
    issued_at: float


def holder_of(attach: Attach) -> Holder:
    """Return whose grant *attach* was made from.

    A gateway of before tells none: then the attach itself counts as what was issued, so that what
    revokes a user or everybody is known, and what revokes one grant is not.
    """
    grant = attach.grant
    if grant is None:
        return Holder(attach.sub, None, None, attach.exp - ATTACH_SECONDS)
    return Holder(attach.sub, grant.jti, grant.kid, grant.issued_at)


class Revocations:
    """The revocations that a grant could still outlive."""

    __slots__ = ("_at",)

    def __init__(self) -> None:
        self._at: dict[str, StoredRevocation] = {}

    def take(self, revocations: Iterable[StoredRevocation]) -> bool:
        """Take in *revocations*; say whether anything is new."""
        new = False
        for one in revocations:
            known = self._at.get(one.member)
            if known is None or known.at < one.at:
                self._at[one.member] = one
                new = True
        return new

    def forget(self, now: float) -> None:
        """Drop those that no grant can outlive."""
        for member in [name for name, one in self._at.items() if one.score < now]:
            del self._at[member]

    def cover(self, sid: str, holder: Holder) -> bool:
        """Say whether *holder*'s grant to *sid* was revoked; see ``RouteTable.is_revoked``."""
        told = holder.jti is not None
        if told and (f"jti:{holder.jti}" in self._at or f"kid:{holder.kid}" in self._at):
            return True
        by_user = (self._at.get(f"sub:{sid}:{holder.sub}"), self._at.get(f"all:{sid}"))
        return any(one is not None and holder.issued_at <= one.at for one in by_user)
