"""All scrollbacks of a hub: each has a limit, and all together have one.

While they are at it, the shells that nobody is attached to give way first, in the order in which
they were left; then the largest. Each keeps a segment or two whatever happens.
"""

from __future__ import annotations

from typing import Final

from controller.hub.scrollback import LIMIT_BYTES, Scrollback

TOTAL_BYTES: Final = 512 << 20


class Scrollbacks:
    """Makes scrollbacks, adds to them, and keeps all of them within *total_bytes*.

    Args:
        shell_bytes: The most that one shell keeps.
        total_bytes: The most that all shells keep together.
    """

    def __init__(self, shell_bytes: int = LIMIT_BYTES, total_bytes: int = TOTAL_BYTES) -> None:
        self._shell_bytes = shell_bytes
        self._total_bytes = total_bytes
        # In the order in which they were left: dicts keep it.
        self._detached: dict[Scrollback, None] = {}
        self._attached: dict[Scrollback, None] = {}
        self.bytes = 0
        """How much is kept."""

    def make(self) -> Scrollback:
        """Return an empty one, to which nobody is attached."""
        made = Scrollback(self._shell_bytes)
        self._detached[made] = None
        return made

    def attach(self, scrollback: Scrollback) -> None:
        """Somebody reads *scrollback*."""
        if scrollback in self._detached:
            self._attached[scrollback] = self._detached.pop(scrollback)

    def detach(self, scrollback: Scrollback) -> None:
        """Nobody reads *scrollback* any more."""
        if scrollback in self._attached:
            self._detached[scrollback] = self._attached.pop(scrollback)

    def forget(self, scrollback: Scrollback) -> None:
        """Count *scrollback* no more: its shell is over, and nobody reads it."""
        for kept in (self._detached, self._attached):
            if scrollback in kept:
                del kept[scrollback]
                self.bytes -= scrollback.size

    def append(self, scrollback: Scrollback, data: bytes) -> None:
        """Add *data* to *scrollback*; whatever is too much then is forgotten somewhere."""
        before = scrollback.size
        scrollback.append(data)
        if scrollback in self._attached or scrollback in self._detached:
            self.bytes += scrollback.size - before
        while self.bytes > self._total_bytes:
            freed = self._shrink()
            if not freed:
                return
            self.bytes -= freed

    def _shrink(self) -> int:
        for scrollback in self._detached:
            if freed := scrollback.shrink():
                return freed
        if not self._attached:
            return 0
        return max(self._attached, key=lambda scrollback: scrollback.size).shrink()
