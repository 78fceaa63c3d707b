"""How much of a worker's memory the buffers of one client may take while memory is short.

The limits of a connection bound its buffers, and a user may have thousands of connections. Their
product exceeds the memory of a worker. It is no limit of its own, because many slow readers at once
are legitimate while memory is plentiful. Once it is short, the connections of a client over its
share are ended, those with the largest buffers first.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Generic, Protocol, TypeVar

from gateway.core.limits.overload import Step

CLIENT_SHARE: Final = 8
"""A client's share is this part of the memory bound: 64 MiB of 512 MiB, or 170 readers that take
nothing. At each further step of overload it is halved: buffers within TLS are not seen, and may
take twice as much again."""
LEAST_SHARE: Final = 4 << 20
"""It is not halved below this: eight connections of 512 KiB, as one browser with slow downloads has
them. Somebody else may have caused the shortage."""
SMALL_BYTES: Final = 4096
"""Smaller buffers are not counted: ending their connections would free little."""


def client_share(bound: int, step: Step) -> int:
    """Return how many bytes a client may buffer at *step*, when *bound* is the memory bound."""
    share = bound // CLIENT_SHARE
    return max(share >> (step - Step.BUFFERS), min(share, LEAST_SHARE))


class BufferOwner(Protocol):
    """A connection with buffers."""

    @property
    def client(self) -> str:
        """The user, or the key of the address without one; "" if the client is not known."""

    def buffered_bytes(self) -> int:
        """Return how many bytes wait for either side, or for their rest."""

    def shed(self) -> None:
        """End the connection to free memory, within a second; no effect on a closed one."""


C = TypeVar("C", bound=BufferOwner)


@dataclass(slots=True, eq=False, repr=False)
class BufferShares(Generic[C]):
    """Sums the buffers of each client, and finds what exceeds *limit* bytes."""

    limit: int
    _sums: dict[str, int] = field(init=False, default_factory=dict)
    _connections: dict[str, list[tuple[int, C]]] = field(init=False, default_factory=dict)

    def count(self, connection: C) -> None:
        """Count the buffers of *connection*, once."""
        size = connection.buffered_bytes()
        client = connection.client if size >= SMALL_BYTES else ""
        if client:
            self._sums[client] = self._sums.get(client, 0) + size
            self._connections.setdefault(client, []).append((size, connection))

    def find_excess(self) -> dict[str, list[C]]:
        """Return the connections to end, by client: the fewest that leave it within the limit."""
        return {
            client: self._largest(client, total - self.limit)
            for client, total in self._sums.items()
            if total > self.limit
        }

    def _largest(self, client: str, excess: int) -> list[C]:
        found: list[C] = []
        for size, connection in sorted(
            self._connections[client], key=lambda one: one[0], reverse=True
        ):
            if excess <= 0:
                break
            excess -= size
            found.append(connection)
        return found
