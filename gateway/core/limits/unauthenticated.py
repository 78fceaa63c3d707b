"""Which unauthenticated connections make room for others, in all and at each address.

Whoever merely holds connections keeps nobody out: those that have waited for long are closed for
new ones, about the oldest first.
"""

from __future__ import annotations

from collections.abc import Collection
from itertools import islice
from typing import Final, Generic, Protocol, TypeVar

WAITED_SECONDS: Final = 2.0
"""Browsers open connections ahead of requests: whoever does not send one soon can come again."""
COMES_SECONDS: Final = 1.0
"""For a handshake, a head or a page's request that has begun, before its client counts as waited
for: most take a tenth of it."""
LOOKED_AT: Final = 16
"""For each that is to make room: to look at all would be an attack of its own."""


class Waiting(Protocol):
    """A connection. ``key`` stands for its address, "" where that is not counted."""

    key: str

    def waits_since(self) -> float:
        """Return since when its client is waited for, infinity where it is not: loop's time."""


C = TypeVar("C", bound=Waiting)


class Unauthenticated(Generic[C]):
    """Unauthenticated connections, in about the order in which they came."""

    __slots__ = ("_all", "_at")

    def __init__(self) -> None:
        self._all: dict[C, None] = {}
        self._at: dict[str, dict[C, None]] = {}

    def enter(self, connection: C) -> None:
        """Have *connection* be the youngest."""
        self._all[connection] = None
        key = connection.key
        if key:
            here = self._at.get(key)
            if here is None:
                self._at[key] = {connection: None}
            else:
                here[connection] = None

    def leave(self, connection: C) -> None:
        """Forget *connection*, which has entered."""
        del self._all[connection]
        key = connection.key
        if key:
            here = self._at[key]
            del here[connection]
            if not here:
                del self._at[key]

    def every(self) -> Collection[C]:
        """Return all of them."""
        return self._all

    def idle(self, most: int, *, now: float, key: str = "") -> list[C]:
        """Return up to *most* that have waited for long: of all, or of an address by its *key*.

        A few are looked at; those that are at something come last the next time.
        """
        some = self._at.get(key, {}) if key else self._all
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
