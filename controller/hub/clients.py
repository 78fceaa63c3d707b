"""The attached clients of a hub, and a bound on the input that they have waiting together."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from prometheus_client import Counter

from controller.hub.attached import Attached

MOST_INPUT_BYTES: Final = 128 << 20
"""Messages that do not end, and input that waits for shells, of all clients of a hub."""
LOOK_SECONDS: Final = 0.25
"""A gigabit a second fills 30 MiB in this time."""

log = logging.getLogger(__name__)


class Clients:
    """The clients that are attached; :meth:`run` disconnects those whose input takes too much.

    Each client's input is bounded, but a hub has thousands of clients and no bound on their number.

    Args:
        shed: Counts the clients that are disconnected.
    """

    def __init__(self, shed: Counter) -> None:
        self._clients: set[Attached] = set()
        self._shed = shed

    def __len__(self) -> int:
        """Return their number."""
        return len(self._clients)

    @contextmanager
    def attached(self, client: Attached) -> Iterator[None]:
        """Count *client* while the context is open."""
        self._clients.add(client)
        try:
            yield
        finally:
            self._clients.discard(client)

    async def run(self) -> None:
        """Keep the bound until cancelled."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            self.shed_input()

    def shed_input(self) -> None:
        """Reset the clients with most input, until the rest is within the bound."""
        sizes = {client: client.input_bytes for client in self._clients}
        total, count = sum(sizes.values()), 0
        if total <= MOST_INPUT_BYTES:
            return
        for client in sorted(sizes, key=sizes.__getitem__, reverse=True):
            if total <= MOST_INPUT_BYTES:
                break
            total -= sizes[client]
            count += 1
            self._clients.discard(client)
            client.connection.abort()
        self._shed.inc(count)
        log.warning("clients with too much input are disconnected", extra={"clients": count})
