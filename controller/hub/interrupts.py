"""An interrupt (Ctrl+C) of a flood has all output that waits behind the clients read at once.

Megabytes of a flood may wait in the sockets between the hub, the API server and the kubelet, which
are not the hub's to bound. A terminal drops its output queue with INTR, QUIT and SUSP
(POSIX.1-2024, 11.1.9). The hub does the same with this queue: the stream is read without waiting
for any client until it falls silent. Clients that are far behind then continue near its end, and
are told how much was left out. A client that keeps up loses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

# Ctrl+C, Ctrl+\ and Ctrl+Z, each typed by itself.
INTERRUPTS: Final = frozenset((b"\x03", b"\x1c", b"\x1a"))
QUIET_SECONDS: Final = 0.2
"""Without output for so long the flood is over."""
DRAIN_SECONDS: Final = 2.0
"""A program that writes on despite the interrupt is waited for again after so long."""
_LOOK_SECONDS: Final = 0.05


class Drain:
    """Whether a stream is read without waiting for its clients; *finish* is called at its end."""

    def __init__(self, finish: Callable[[], None]) -> None:
        self._finish = finish
        self._timer: asyncio.TimerHandle | None = None
        self._until = self._heard = 0.0

    @property
    def is_going(self) -> bool:
        """Whether it has begun, and is not finished."""
        return self._timer is not None

    def begin(self) -> None:
        """Begin, unless it has."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._heard = loop.time()
            self._until = self._heard + DRAIN_SECONDS
            self._timer = loop.call_later(_LOOK_SECONDS, self._look)

    def heard(self) -> None:
        """There was output."""
        if self._timer is not None:
            self._heard = asyncio.get_running_loop().time()

    def cancel(self) -> None:
        """Be over, without finishing."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        loop = asyncio.get_running_loop()
        if min(self._heard + QUIET_SECONDS, self._until) > loop.time():
            self._timer = loop.call_later(_LOOK_SECONDS, self._look)
        else:
            self._timer = None
            self._finish()
