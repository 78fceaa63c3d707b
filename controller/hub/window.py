"""How far a client is sent ahead of what it has shown: as much as it shows in half a second.

Output that is ahead cannot be taken back: an interrupt (Ctrl+C) of a flood has effect behind it. So
the bound is one of time, as far as the client's own pace tells it. A client whose round trip is
shorter than that half second acknowledges more in the next one, and the window grows up to its
limit; it is the limit of a sender's window that is known from TCP (RFC 9293, section 3.8.6).
"""

from __future__ import annotations

from collections import deque
from typing import Final

LEAST_BYTES: Final = 128 * 1024
"""Twice what our page acknowledges at once: with less it would wait for itself."""
MOST_BYTES: Final = 1 << 20
PACE_SECONDS: Final = 0.5
# Acknowledgements within so long count as one: a client may send one for each byte.
SLOT_SECONDS: Final = 0.025
MOST_GAPS: Final = 16


class SendWindow:
    """A client's acknowledgements, and how much it may be sent ahead of them.

    Until the first acknowledgement there is no bound: clients of before send none.
    """

    __slots__ = ("_gaps", "_past", "acknowledged")

    def __init__(self) -> None:
        self.acknowledged: int | None = None
        """The offset before which everything was shown."""
        # When, by the clock of the caller, and what was acknowledged then; the oldest one is the
        # last that is older than the time that the pace is taken over.
        self._past: deque[tuple[float, int]] = deque()
        # Up to where something was left out, and how much: showing that takes no time.
        self._gaps: deque[tuple[int, int]] = deque(maxlen=MOST_GAPS)

    def acknowledge(self, offset: int, *, sent: int, now: float) -> None:
        """Take that everything before *offset* was shown, never back nor beyond *sent*."""
        if self.acknowledged is None:
            self._past.append((now, min(offset, sent)))
        self.acknowledged = min(max(self.acknowledged or 0, offset), sent)
        while self._gaps and self._gaps[0][0] <= self.acknowledged:
            _, count = self._gaps.popleft()
            self._past = deque((at, shown + count) for at, shown in self._past)
        if now - self._past[-1][0] >= SLOT_SECONDS:
            self._past.append((now, self.acknowledged))
        while len(self._past) > 1 and now - self._past[1][0] >= PACE_SECONDS:
            self._past.popleft()

    def leave_out(self, until: int, count: int) -> None:
        """Count the *count* bytes before *until*, which are not sent, for none of its pace."""
        if self.acknowledged is not None:
            self._gaps.append((until, count))

    def size(self) -> int:
        """Return how many bytes may be ahead: what the last half second of acknowledging took."""
        if self.acknowledged is None:
            return MOST_BYTES
        return min(MOST_BYTES, max(LEAST_BYTES, self.acknowledged - self._past[0][1]))

    def is_full(self, sent: int) -> bool:
        """Say whether a client that was sent everything before *sent* has enough to show."""
        return self.acknowledged is not None and sent - self.acknowledged > self.size()
