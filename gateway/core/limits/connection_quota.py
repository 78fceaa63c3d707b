"""How many connections a worker holds, how many unauthenticated ones, and which make room.

A connection is unauthenticated until a request on it had a good credential. Authenticated ones
are counted where they are ended, per session and per user: :mod:`gateway.live`. Whoever merely
holds unauthenticated ones keeps nobody out: those that have waited for long are closed for new
ones, about the oldest first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Final, Generic, Protocol, TypeVar

from gateway.core.limits.overload import Overload, Step

REFUSED_MORE: Final = 1024
"""Connections that may be told so when there is no place for them; others are closed unheard."""
WAITED_SECONDS: Final = 2.0
"""Browsers open connections ahead of requests: whoever does not send one soon can come again."""
COMES_SECONDS: Final = 1.0
"""For a handshake, a head or a page's request that has begun, before its client counts as waited
for: most take a tenth of it."""
LOOKED_AT: Final = 16
"""For each that is to make room: to look at all would be an attack of its own."""


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


class Waiting(Protocol):
    """A connection. ``key`` stands for its address (IPv6: its /64), "" where it is not counted."""

    key: str

    def waits_since(self) -> float:
        """Return since when its client is waited for, infinity where it is not: loop's time."""


C = TypeVar("C", bound=Waiting)


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class ConnectionQuota(Generic[C]):
    """Counts connections, and holds the unauthenticated ones in about the order they came in."""

    most: int
    """Connections in all; 0 for without limit."""
    most_unauthenticated: int
    """Unauthenticated connections from one address."""
    known: Callable[[], int]
    """Returns how many connections are authenticated."""
    overload: Overload | None = None
    """At its last step there is no place for anybody."""
    _all: dict[C, None] = field(init=False, default_factory=dict)
    _by_key: dict[str, dict[C, None]] = field(init=False, default_factory=dict)

    @property
    def unauthenticated(self) -> Collection[C]:
        """The unauthenticated connections."""
        return self._all.keys()

    @property
    def full(self) -> bool:
        """Whether no new connection has a place."""
        return bool(self.most) and len(self._all) + self.known() >= self.most

    @property
    def nearly_full(self) -> bool:
        """Whether those that only wait are to make room for new ones."""
        return bool(self.most) and len(self._all) + self.known() >= self.most - self.most // 16

    def is_crowded(self, key: str) -> bool:
        """Say whether the address of *key* has as many unauthenticated ones as it may."""
        return bool(key) and 0 < self.most_unauthenticated <= len(self._by_key.get(key, ()))

    def judge(self, key: str) -> Verdict:
        """Say what becomes of a new connection from *key*; "" for an address that is not counted.

        Whoever is not dropped has to :meth:`enter`.
        """
        if self.overload is not None and self.overload.step is _REFUSING:
            return Verdict.OVERLOADED if len(self._all) < REFUSED_MORE else Verdict.DROPPED
        beyond = len(self._all) + self.known() - self.most if self.most else -1
        if beyond >= 0:
            return Verdict.FULL if beyond < REFUSED_MORE else Verdict.DROPPED
        here = len(self._by_key.get(key, ())) if key and self.most_unauthenticated else 0
        if here < (self.most_unauthenticated or 1):
            return WELCOME
        beyond = here - self.most_unauthenticated
        return Verdict.CROWDED if beyond < REFUSED_MORE else Verdict.DROPPED

    def enter(self, connection: C) -> None:
        """Count *connection*, unauthenticated, as the youngest; twice changes nothing."""
        if connection in self._all:
            return
        self._all[connection] = None
        key = connection.key
        if key:
            here = self._by_key.get(key)
            if here is None:
                self._by_key[key] = {connection: None}
            else:
                here[connection] = None

    def leave(self, connection: C) -> None:
        """Count it no more: it has gone, or is authenticated now; nothing where it never was."""
        if connection not in self._all:
            return
        del self._all[connection]
        key = connection.key
        if key:
            here = self._by_key[key]
            del here[connection]
            if not here:
                del self._by_key[key]

    def idle(self, most: int, *, now: float, key: str = "") -> list[C]:
        """Return up to *most* that have waited for long: of all, or of an address by its *key*.

        A few are looked at; those that are at something come last the next time.
        """
        some = self._by_key.get(key, {}) if key else self._all
        found: list[C] = []
        for connection in tuple(islice(some, most * LOOKED_AT)):
            if connection.waits_since() > now - WAITED_SECONDS:
                del some[connection]
                some[connection] = None
                continue
            found.append(connection)
            if len(found) == most:
                break
        return found
