"""The connection quota: how many connections a worker holds, and which idle ones it evicts.

A connection is unauthenticated until one of its requests had a valid credential. Authenticated
connections are counted per session and per user, where they are ended: :mod:`gateway.live`. A
client that only holds unauthenticated connections cannot lock others out: idle ones are evicted for
new ones, approximately the oldest first.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from enum import Enum
from itertools import islice
from typing import Final, Generic, Protocol, TypeVar

from gateway.core.limits.overload import Overload, Step

MAX_REFUSED: Final = 1024
"""Connections over the quota that still get a refusal; further ones are closed without one."""
MIN_IDLE_SECONDS: Final = 2.0
"""A connection is evicted only after this time: browsers open connections ahead of requests, and
one that sends no request soon can reconnect."""
ARRIVAL_SECONDS: Final = 1.0
"""The time that a handshake, a head or a page request has before its connection counts as idle:
most take a tenth of it."""
SCANNED_PER_EVICTION: Final = 16
"""Connections examined for each one to evict: examining all of them would itself be an attack."""


class Verdict(Enum):
    """The result for a new connection; the value is the code of the refusal that it gets."""

    ACCEPTED = ""
    FULL = "gateway_full"
    ADDRESS_FULL = "too_many_connections"
    OVERLOADED = "gateway_overloaded"
    DROPPED = "dropped"


ACCEPTED: Final = Verdict.ACCEPTED
DROPPED: Final = Verdict.DROPPED
_REFUSING: Final = Step.REQUESTS
"""Looking up an enumeration member costs more than the rest of a verdict."""


class QuotaMember(Protocol):
    """A connection; ``key`` is the limit key of its address, "" if the address is not limited."""

    key: str

    def idle_since(self) -> float:
        """Return since when it is idle, in the loop's time; infinity if it is not."""

    def evict(self) -> None:
        """Close it while it is idle; it stops counting at once."""


C = TypeVar("C", bound=QuotaMember)


@dataclass(slots=True, kw_only=True, eq=False, repr=False)
class ConnectionQuota(Generic[C]):
    """Counts connections and keeps the unauthenticated ones approximately in order of arrival."""

    limit: int
    """The maximum number of connections; 0 for unlimited."""
    max_unauthenticated: int
    """The maximum number of unauthenticated connections from one address; 0 for unlimited."""
    count_authenticated: Callable[[], int]
    """Returns the number of authenticated connections."""
    overload: Overload | None = None
    """At its last step every new connection is refused."""
    _all: dict[C, None] = field(init=False, default_factory=dict)
    _by_key: dict[str, dict[C, None]] = field(init=False, default_factory=dict)

    @property
    def unauthenticated(self) -> Collection[C]:
        """The unauthenticated connections."""
        return self._all.keys()

    @property
    def full(self) -> bool:
        """Whether the quota admits no new connection."""
        return bool(self.limit) and len(self._all) + self.count_authenticated() >= self.limit

    @property
    def nearly_full(self) -> bool:
        """Whether idle connections are to be evicted for new ones."""
        return (
            bool(self.limit)
            and len(self._all) + self.count_authenticated() >= self.limit - self.limit // 16
        )

    def is_address_full(self, key: str) -> bool:
        """Return whether the address of *key* has used up its unauthenticated connections."""
        return bool(key) and 0 < self.max_unauthenticated <= len(self._by_key.get(key, ()))

    def judge_new(self, key: str) -> Verdict:
        """Return the verdict on a new connection from *key*, "" for an address that is not limited.

        The caller must :meth:`add` every connection that it does not drop.
        """
        if self.overload is not None and self.overload.step is _REFUSING:
            return Verdict.OVERLOADED if len(self._all) < MAX_REFUSED else Verdict.DROPPED
        excess = len(self._all) + self.count_authenticated() - self.limit if self.limit else -1
        if excess >= 0:
            return Verdict.FULL if excess < MAX_REFUSED else Verdict.DROPPED
        here = len(self._by_key.get(key, ())) if key and self.max_unauthenticated else 0
        if here < (self.max_unauthenticated or 1):
            return ACCEPTED
        excess = here - self.max_unauthenticated
        return Verdict.ADDRESS_FULL if excess < MAX_REFUSED else Verdict.DROPPED

    def add(self, connection: C) -> None:
        """Count *connection* as unauthenticated and newest; a second call changes nothing."""
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

    def remove(self, connection: C) -> None:
        """Stop counting *connection*: it is closed or authenticated; no effect if it is unknown."""
        if connection not in self._all:
            return
        del self._all[connection]
        key = connection.key
        if key:
            here = self._by_key[key]
            del here[connection]
            if not here:
                del self._by_key[key]

    def find_idle(self, most: int, *, now: float, key: str = "") -> list[C]:
        """Return up to *most* idle connections: of all, or of the address whose key is *key*.

        The search is limited to the oldest; those found busy move to the end of the order.
        """
        some = self._by_key.get(key, {}) if key else self._all
        found: list[C] = []
        for connection in tuple(islice(some, most * SCANNED_PER_EVICTION)):
            if connection.idle_since() > now - MIN_IDLE_SECONDS:
                del some[connection]
                some[connection] = None
                continue
            found.append(connection)
            if len(found) == most:
                break
        return found
