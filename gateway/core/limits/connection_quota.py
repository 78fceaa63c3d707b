"""How many connections a worker holds, and how many unauthenticated ones from one address.

A connection is unauthenticated until a request on it had a good credential. Authenticated ones
are counted where they are ended, per session and per user: :mod:`gateway.live`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from gateway.core.limits.overload import Overload, Step

REFUSED_MORE: Final = 1024
"""Connections that may be told so when there is no place for them; others are closed unheard."""


class Verdict(Enum):
    """What becomes of a new connection; the value is the code of the refusal it is told."""

    WELCOME = ""
    FULL = "gateway_full"
    CROWDED = "too_many_connections"
    OVERLOADED = "gateway_overloaded"
    DROPPED = "dropped"


WELCOME: Final = Verdict.WELCOME
DROPPED: Final = Verdict.DROPPED
_REFUSING: Final = Step.REQUESTS
"""A member of an enumeration costs more to look up than the rest of a verdict."""


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class ConnectionQuota:
    """Counts connections."""

    most: int
    """Connections in all; 0 for without limit."""
    most_unauthenticated: int
    """Unauthenticated connections from one address (IPv6: one /64)."""
    known: Callable[[], int]
    """Returns how many connections are authenticated."""
    overload: Overload | None = None
    """At its last step there is no place for anybody."""
    unauthenticated: int = 0
    _by_key: dict[str, int] = field(init=False, default_factory=dict)

    @property
    def full(self) -> bool:
        """Whether no new connection has a place."""
        return bool(self.most) and self.unauthenticated + self.known() >= self.most

    @property
    def nearly_full(self) -> bool:
        """Whether those that only wait are to make room for new ones."""
        return (
            bool(self.most) and self.unauthenticated + self.known() >= self.most - self.most // 16
        )

    def is_crowded(self, key: str) -> bool:
        """Say whether the address of *key* has as many unauthenticated ones as it may."""
        return bool(key) and 0 < self.most_unauthenticated <= self._by_key.get(key, 0)

    def judge(self, key: str) -> Verdict:
        """Say what becomes of a new connection from *key*; "" for an address that is not counted.

        Whoever is not dropped has to :meth:`enter`.
        """
        if self.overload is not None and self.overload.step is _REFUSING:
            return Verdict.OVERLOADED if self.unauthenticated < REFUSED_MORE else Verdict.DROPPED
        beyond = self.unauthenticated + self.known() - self.most if self.most else -1
        if beyond >= 0:
            return Verdict.FULL if beyond < REFUSED_MORE else Verdict.DROPPED
        here = self._by_key.get(key, 0) if key and self.most_unauthenticated else 0
        if here < (self.most_unauthenticated or 1):
            return WELCOME
        beyond = here - self.most_unauthenticated
        return Verdict.CROWDED if beyond < REFUSED_MORE else Verdict.DROPPED

    def enter(self, key: str) -> None:
        """Count an unauthenticated connection."""
        self.unauthenticated += 1
        if key:
            self._by_key[key] = self._by_key.get(key, 0) + 1

    def leave(self, key: str) -> None:
        """Count one less: it has gone, or is authenticated now."""
        self.unauthenticated -= 1
        if key:
            left = self._by_key.pop(key) - 1
            if left:
                self._by_key[key] = left
