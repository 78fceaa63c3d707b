"""Which attach tokens are taken: each once, before it ends."""

from __future__ import annotations

import contextlib
import heapq
from collections.abc import Callable, Sequence
from typing import Final

from shared.errors import TokenRefused
from shared.link import Attach, AttachTokens

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
