"""Reads a flood of output at once after an interrupt (Ctrl+C), without waiting for clients.

Megabytes of output may wait in the sockets between the hub, the API server and the kubelet, which
the hub cannot bound. A terminal discards its output queue on INTR, QUIT and SUSP (POSIX.1-2024,
11.1.9). The hub does the same with this queue: it reads the stream without backpressure until the
stream falls silent. Clients that are far behind then continue near its end, and are told how much
was skipped. A client that keeps up loses nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

# Ctrl+C, Ctrl+\ and Ctrl+Z, each sent alone.
INTERRUPTS: Final = frozenset((b"\x03", b"\x1c", b"\x1a"))
QUIET_SECONDS: Final = 0.2
"""The flood is over after this time without output."""
DRAIN_SECONDS: Final = 2.0
"""After this time, backpressure applies again to a program that writes on despite the interrupt."""
_LOOK_SECONDS: Final = 0.05


class Drain:
    """Whether the stream is read without backpressure; *finish* is called at the end of that."""

    def __init__(self, finish: Callable[[], None]) -> None:
        self._finish = finish
        self._timer: asyncio.TimerHandle | None = None
        self._until = self._heard = 0.0

    @property
    def is_going(self) -> bool:
        """Whether the drain has begun and is not over."""
        return self._timer is not None

    def begin(self) -> None:
        """Begin, unless the drain is under way."""
        if self._timer is None:
            loop = asyncio.get_running_loop()
            self._heard = loop.time()
            self._until = self._heard + DRAIN_SECONDS
            self._timer = loop.call_later(_LOOK_SECONDS, self._look)

    def heard(self) -> None:
        """Note that there was output."""
        if self._timer is not None:
            self._heard = asyncio.get_running_loop().time()

    def cancel(self) -> None:
        """End the drain without calling *finish*."""
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
