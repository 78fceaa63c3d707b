"""Bytes that the kernel holds for a peer that takes nothing: looked for now and then.

A transport tells when much waits in itself. Before that the kernel takes megabytes for a peer that
does not read, or that has vanished, and tells nobody. So every open connection is asked from time
to time; those for which something waits are watched from then on (:mod:`.stalls`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from typing import Final, Protocol

_AT_ONCE: Final = 500
"""Connections asked before the loop turns: about a millisecond."""
_PAUSE_SECONDS: Final = 0.01


class Swept(Protocol):
    """A connection that is asked."""

    def look_for_stalls(self) -> None:
        """Have those of its sides watched for which the kernel holds something."""
        ...


class Sweep:
    """Asks all connections, again and again.

    Args:
        loop: Asks from here.
        seconds: From the end of one round to the next.
        everyone: Returns the connections that are open.
    """

    __slots__ = ("_everyone", "_loop", "_seconds", "_timer")

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        *,
        seconds: float,
        everyone: Callable[[], Sequence[Swept]],
    ) -> None:
        self._loop = loop
        self._seconds = seconds
        self._everyone = everyone
        self._timer: asyncio.TimerHandle | None = None
        self._begin_later()

    def close(self) -> None:
        """Ask nobody any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _begin_later(self) -> None:
        self._timer = self._loop.call_later(self._seconds, self._begin)

    def _begin(self) -> None:
        self._ask(iter(self._everyone()))

    def _ask(self, left: Iterator[Swept]) -> None:
        asked = 0
        for connection in islice(left, _AT_ONCE):
            connection.look_for_stalls()
            asked += 1
        if asked == _AT_ONCE:
            self._timer = self._loop.call_later(_PAUSE_SECONDS, self._ask, left)
        else:
            self._begin_later()
