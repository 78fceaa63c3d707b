"""The send window of a client: what it shows within half a second.

Output that was sent cannot be taken back, so that an interrupt (Ctrl+C) of a flood takes effect
only behind it. The bound is therefore a time, measured by the client's own pace. A client whose
round trip is shorter than half a second acknowledges more in the next one, and the window grows up
to its limit. That limit is what TCP calls a sender's window (RFC 9293, section 3.8.6).
"""

from __future__ import annotations

from collections import deque
from typing import Final

LEAST_BYTES: Final = 128 * 1024
"""Twice what the page acknowledges at once: with less, it would wait for itself."""
MOST_BYTES: Final = 1 << 20
PACE_SECONDS: Final = 0.5
# Acknowledgements within this time count as one: a client may send one per byte.
SLOT_SECONDS: Final = 0.025
MOST_GAPS: Final = 16


class SendWindow:
    """A client's acknowledgements, and how far output may be sent ahead of them.

    Until the first acknowledgement there is no bound: clients of earlier versions send none.
    """

    __slots__ = ("_gaps", "_past", "acknowledged")

    def __init__(self) -> None:
        self.acknowledged: int | None = None
        """The offset before which everything was shown."""
        # (time, acknowledged offset). The oldest entry is the last one that is older than the
        # interval of the measurement.
        self._past: deque[tuple[float, int]] = deque()
        # (end, length) of skipped output: showing it takes no time.
        self._gaps: deque[tuple[int, int]] = deque(maxlen=MOST_GAPS)

    def acknowledge(self, offset: int, *, sent: int, now: float) -> None:
        """Acknowledge everything before *offset*, never backwards nor beyond *sent*."""
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
        """Exclude the *count* skipped bytes before *until* from the measured pace."""
        if self.acknowledged is not None:
            self._gaps.append((until, count))

    def size(self) -> int:
        """Return how many bytes may be ahead: what was acknowledged in the last half second."""
        if self.acknowledged is None:
            return MOST_BYTES
        return min(MOST_BYTES, max(LEAST_BYTES, self.acknowledged - self._past[0][1]))

    def is_full(self, sent: int) -> bool:
        """Return whether a client that was sent everything before *sent* has to catch up first."""
        return self.acknowledged is not None and sent - self.acknowledged > self.size()
